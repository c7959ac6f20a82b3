//! The stamp: a policy that puts the token of a fenced write on the object.

use super::carrier::Carrier;
use super::fencing::Fencing;
use super::judging::{carries_the_object, mark_of};
use super::manifest::head;
use super::text::{folded, named};
use crate::{CLUSTER, TOKEN};

const STAMP: &str = "The stamp: a fenced write leaves its token on the object, whatever its body says, \
so that the next one is compared with it. A stale one is stamped as well, and then refused by the \
mark. An object that carries the token already is left as it is: to change one takes the API server \
longer than to judge it. It has no parameters: a mutating policy with one would stop the copy of Leases \
that the floor compares with.";

impl Fencing {
    /// The policy that stamps, and its binding.
    pub(super) fn stamp(&self) -> String {
        let mut yaml = self.mutating_head(STAMP, "stamp");
        let carried = self.carried();
        let bytes = self.beginning().len();
        let lease = self.lease.as_str().replace('.', "[.]");
        let (end, token) = match self.carrier {
            Carrier::Sequence => (
                "[.][1-9][0-9]{0,17}$",
                format!("{carried}.substring({bytes}, {carried}.lastIndexOf('.'))"),
            ),
            Carrier::Impersonate | Carrier::FieldManager => {
                ("$", format!("{carried}.substring({bytes})"))
            }
        };
        let fenced = format!("{carried}.matches('^{lease}#[1-9][0-9]{{0,18}}{end}')");
        yaml.push_str(&self.resource_rules(&["", "/*"], "CREATE, UPDATE"));
        yaml.push_str(&self.canary_rule());
        yaml.push_str("  matchConditions:\n");
        yaml.push_str(&named(4, "subject", &self.by_subject()));
        yaml.push_str(&named(4, "object", &carries_the_object()));
        yaml.push_str(&named(4, "fence", &fenced));
        let mut new = format!("{} != {token}", mark_of("object"));
        if let Some(cluster) = &self.cluster {
            new.push_str(&format!(" || {} != '{cluster}'", cluster_of("object")));
        }
        yaml.push_str(&named(4, "new", &new));
        yaml.push_str(&self.mutation_to(&token));
        yaml.push_str(&self.binding("stamp", "MutatingAdmissionPolicyBinding", false));
        yaml
    }

    /// A mark with this token, and the cluster that it is of where one is named.
    pub(super) fn mutation_to(&self, token: &str) -> String {
        let of = self.cluster.as_ref();
        let of = of.map(|cluster| format!(", '{CLUSTER}': '{cluster}'"));
        let of = of.unwrap_or_default();
        let object = format!(
            "Object{{metadata: Object.metadata{{annotations: {{'{TOKEN}': {token}{of}}}}}}}"
        );
        let expression = folded(8, "expression", &object);
        format!(
            "  mutations:\n    - patchType: ApplyConfiguration\n      \
             applyConfiguration:\n{expression}"
        )
    }

    pub(super) fn mutating_head(&self, why: &str, kind: &str) -> String {
        let api = "admissionregistration.k8s.io/v1";
        let head = head(why, api, "MutatingAdmissionPolicy", &self.named(kind));
        let again = match kind {
            "stamp" => "IfNeeded",
            _ => "Never",
        };
        format!(
            "{head}spec:\n  failurePolicy: Fail\n  reinvocationPolicy: {again}\n  \
             matchConstraints:\n    resourceRules:\n"
        )
    }
}

/// The cluster that an object's mark is said to be of.
fn cluster_of(object: &str) -> String {
    format!("{object}.?metadata.?annotations[?'{CLUSTER}'].orValue('')")
}
