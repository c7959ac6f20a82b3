//! What a whole lease must be, whatever the write that brought it: judged last, on the result.

use crate::lease::Lease;
use crate::metadata;
use crate::names;
use crate::status::{Cause, Failure};

/// The most bytes of `k8s/NAMESPACE/NAME`, and of a holder's identity.
pub const NAME_BYTES_MAX: usize = 255;

/// The field of the holder.
const HOLDER: &str = "spec.holderIdentity";

/// Checks a lease that is to be written: 422 with every fault. What is not kept here (`strategy`,
/// `preferredHolder`) is taken out; the result has a warning for each.
pub(crate) fn settle(lease: &mut Lease) -> Result<Vec<String>, Failure> {
    let mut causes = Vec::new();
    name(lease, &mut causes);
    metadata::check(&lease.metadata, &mut causes);
    spec(lease, &mut causes);
    if !causes.is_empty() {
        return Err(Failure::invalid(&lease.metadata.name, causes));
    }
    let mut warnings = Vec::new();
    let dropped = [
        ("strategy", lease.spec.strategy.take()),
        ("preferredHolder", lease.spec.preferred_holder.take()),
    ];
    for (field, value) in dropped {
        if value.is_some_and(|value| !value.is_empty()) {
            warnings.push(format!(
                "spec.{field} is not supported here, and was dropped"
            ));
        }
    }
    Ok(warnings)
}

fn name(lease: &Lease, causes: &mut Vec<Cause>) {
    let of = &lease.metadata;
    if !of.generate_name.is_empty() {
        let why = "names are not made up here: set metadata.name";
        causes.push(Cause::forbidden("metadata.generateName", why));
    } else if of.name.is_empty() {
        causes.push(Cause::required("metadata.name", "name is required"));
    }
    if !of.finalizers.is_empty() {
        let why = "a deletion waits for no other program here";
        causes.push(Cause::forbidden("metadata.finalizers", why));
    }
    if !of.name.is_empty()
        && let Err(why) = names::subdomain(&of.name)
    {
        causes.push(Cause::invalid("metadata.name", &of.name, &why));
    }
    if let Err(why) = names::label(&of.namespace) {
        causes.push(Cause::invalid("metadata.namespace", &of.namespace, &why));
    }
    let whole = "k8s//".len() + of.namespace.len() + of.name.len();
    if whole > NAME_BYTES_MAX {
        let why =
            format!("k8s/NAMESPACE/NAME takes {whole} bytes, at most {NAME_BYTES_MAX} are allowed");
        causes.push(Cause::too_long("metadata.name", &why));
    }
}

fn spec(lease: &Lease, causes: &mut Vec<Cause>) {
    let spec = &lease.spec;
    if let Some(seconds) = spec.lease_duration_seconds
        && seconds < 1
    {
        let why = "must be greater than 0";
        causes.push(Cause::invalid("spec.leaseDurationSeconds", seconds, why));
    }
    if let Some(count) = spec.lease_transitions
        && count < 0
    {
        let why = "must be greater than or equal to 0";
        causes.push(Cause::invalid("spec.leaseTransitions", count, why));
    }
    let length = spec.holder().map_or(0, str::len);
    if length > NAME_BYTES_MAX {
        let why = format!("{length} bytes, at most {NAME_BYTES_MAX} are allowed");
        causes.push(Cause::too_long(HOLDER, &why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::fixtures::held;

    fn fields(change: impl FnOnce(&mut Lease)) -> Vec<String> {
        let mut lease = held();
        change(&mut lease);
        match settle(&mut lease) {
            Ok(_) => Vec::new(),
            Err(failure) => {
                assert_eq!(failure.code(), 422);
                let causes = failure.details.unwrap().causes;
                causes.into_iter().map(|cause| cause.field).collect()
            }
        }
    }

    #[test]
    fn each_fault_is_named() {
        assert_eq!(fields(|_| ()), Vec::<String>::new());
        let all = fields(|lease| {
            lease.metadata.name = "A".to_owned();
            lease.metadata.finalizers = vec!["a/b".to_owned()];
            lease.spec.lease_duration_seconds = Some(0);
            lease.spec.lease_transitions = Some(-1);
            lease.spec.holder_identity = Some("h".repeat(256));
        });
        let expected = [
            "metadata.finalizers",
            "metadata.name",
            "spec.leaseDurationSeconds",
            "spec.leaseTransitions",
            "spec.holderIdentity",
        ];
        assert_eq!(all, expected);
        let made_up = fields(|lease| {
            lease.metadata.name.clear();
            lease.metadata.generate_name = "a-".to_owned();
        });
        assert_eq!(made_up, ["metadata.generateName"]);
        let none = fields(|lease| lease.metadata.name.clear());
        assert_eq!(none, ["metadata.name"]);
    }

    #[test]
    fn namespace_and_name_fit_in_a_name_of_the_cluster() {
        let of_name = |length: usize| {
            fields(|lease| {
                lease.metadata.namespace = "n".repeat(63);
                lease.metadata.name = "a".repeat(length).replacen("aaaa", "aaa.", 1);
            })
        };
        let longest = NAME_BYTES_MAX - 63 - "k8s//".len();
        // Labels of a subdomain have no limit of their own in Kubernetes.
        assert_eq!(of_name(longest), Vec::<String>::new());
        assert_eq!(of_name(longest + 1), ["metadata.name"]);
    }

    #[test]
    fn coordinated_election_is_dropped_with_a_warning() {
        let mut lease = held();
        lease.spec.strategy = Some("OldestEmulationVersion".to_owned());
        lease.spec.preferred_holder = Some(String::new());
        let warnings = settle(&mut lease).unwrap();
        assert_eq!(warnings.len(), 1);
        assert_eq!(lease, held());
    }
}
