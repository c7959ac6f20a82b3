//! Labels, annotations and owners: their rules, and the bytes in which they are kept.

use std::collections::BTreeMap;

use prost::Message;

use crate::lease::{Lease, Metadata, OwnerReference};
use crate::names;
use crate::status::{Cause, Failure};

/// The most bytes that labels, annotations and owners of one lease take together, encoded.
pub const STORED_BYTES_MAX: usize = 4096;

/// Keys that begin so are the server's: it shows them, and no client sets them.
pub const OWN_PREFIX: &str = "ringfence.io/";

/// Adds what is wrong with labels, annotations and owners.
pub(crate) fn check(metadata: &Metadata, causes: &mut Vec<Cause>) {
    for (key, value) in &metadata.labels {
        if let Err(why) = names::key(key) {
            causes.push(Cause::invalid("metadata.labels", key, &why));
        }
        if let Err(why) = names::value(value) {
            causes.push(Cause::invalid("metadata.labels", value, &why));
        }
    }
    for key in metadata.annotations.keys() {
        if let Err(why) = names::key(&key.to_ascii_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", key, &why));
        }
    }
    owners(&metadata.owner_references, causes);
}

fn owners(owners: &[OwnerReference], causes: &mut Vec<Cause>) {
    const FIELD: &str = "metadata.ownerReferences";
    for (at, owner) in owners.iter().enumerate() {
        let texts = [
            ("apiVersion", &owner.api_version),
            ("kind", &owner.kind),
            ("name", &owner.name),
            ("uid", &owner.uid),
        ];
        for (field, text) in texts {
            if text.is_empty() {
                let field = format!("{FIELD}[{at}].{field}");
                causes.push(Cause::invalid(&field, "", "must not be empty"));
            }
        }
    }
    let controllers = owners.iter().filter(|owner| owner.controller == Some(true));
    if controllers.count() > 1 {
        let why = "Only one reference can have Controller set to true";
        causes.push(Cause::invalid(FIELD, "more than one", why));
    }
}

/// Checks what is the server's in a write against what was shown (`None`: the lease is absent): a
/// key that was added or has another value is 422. One that was left out comes back with the next
/// answer. Versions are compared first: an older one may show other values, and is 409.
pub fn check_own(shown: Option<&Metadata>, written: &Metadata) -> Result<(), Failure> {
    let none = BTreeMap::new();
    let maps = [
        (
            "metadata.labels",
            shown.map_or(&none, |shown| &shown.labels),
            &written.labels,
        ),
        (
            "metadata.annotations",
            shown.map_or(&none, |shown| &shown.annotations),
            &written.annotations,
        ),
    ];
    let mut causes = Vec::new();
    for (field, shown, written) in maps {
        let own = written.iter().filter(|(key, _)| is_own(key));
        for (key, _) in own.filter(|(key, value)| shown.get(*key) != Some(*value)) {
            let why =
                format!("{OWN_PREFIX} is the server's: leave this key out, or as it is shown");
            causes.push(Cause::forbidden(&format!("{field}[{key}]"), &why));
        }
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(Failure::invalid(&written.name, causes))
}

fn is_own(key: &str) -> bool {
    let prefix = key.as_bytes().get(..OWN_PREFIX.len());
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(OWN_PREFIX.as_bytes()))
}

/// What is kept of a lease beside its name and what the cluster knows of its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Without keys of the server's.
    pub labels: BTreeMap<String, String>,
    /// Without keys of the server's.
    pub annotations: BTreeMap<String, String>,
    /// In the order in which they were written.
    pub owner_references: Vec<OwnerReference>,
    /// Whether the last write named no holder, not even an empty one.
    pub without_holder: bool,
}

impl Stored {
    /// What is kept of a lease.
    #[must_use]
    pub fn of(lease: &Lease) -> Self {
        let ours = |map: &BTreeMap<String, String>| {
            let kept = map.iter().filter(|(key, _)| !is_own(key));
            kept.map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        };
        Self {
            labels: ours(&lease.metadata.labels),
            annotations: ours(&lease.metadata.annotations),
            owner_references: lease.metadata.owner_references.clone(),
            without_holder: lease.spec.holder_identity.is_none(),
        }
    }

    /// The bytes to keep: equal for equal values, none for none. 422 above [`STORED_BYTES_MAX`].
    /// `name` is the lease's, for the refusal.
    pub fn encode(&self, name: &str) -> Result<Vec<u8>, Failure> {
        let owners = self.owner_references.iter().cloned().map(Owner::from);
        let mut kept = Kept {
            labels: self.labels.clone(),
            annotations: self.annotations.clone(),
            owners: owners.collect(),
            without_holder: self.without_holder,
        };
        let mut bytes = kept.encode_to_vec();
        if bytes.len() > STORED_BYTES_MAX && self.without_holder {
            // What a client has not written itself must not refuse its release.
            kept.without_holder = false;
            bytes = kept.encode_to_vec();
        }
        if bytes.len() <= STORED_BYTES_MAX {
            return Ok(bytes);
        }
        let why = format!(
            "labels, annotations and ownerReferences take {} bytes, at most {STORED_BYTES_MAX} are \
             allowed",
            bytes.len()
        );
        let cause = Cause::too_long("metadata", &why);
        Err(Failure::invalid(name, vec![cause]))
    }

    /// Reads what [`Stored::encode`] wrote; `None` if it is something else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let kept = Kept::decode(bytes).ok()?;
        Some(Self {
            labels: kept.labels,
            annotations: kept.annotations,
            owner_references: kept.owners.into_iter().map(OwnerReference::from).collect(),
            without_holder: kept.without_holder,
        })
    }
}

/// The format in which metadata is kept: numbers of fields are never used for something else.
#[derive(Clone, PartialEq, Message)]
struct Kept {
    #[prost(btree_map = "string, string", tag = "1")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "2")]
    annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "3")]
    owners: Vec<Owner>,
    #[prost(bool, tag = "4")]
    without_holder: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Owner {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(bool, optional, tag = "5")]
    controller: Option<bool>,
    #[prost(bool, optional, tag = "6")]
    block_owner_deletion: Option<bool>,
}

impl From<OwnerReference> for Owner {
    fn from(owner: OwnerReference) -> Self {
        Self {
            api_version: owner.api_version,
            kind: owner.kind,
            name: owner.name,
            uid: owner.uid,
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        }
    }
}

impl From<Owner> for OwnerReference {
    fn from(owner: Owner) -> Self {
        Self {
            api_version: owner.api_version,
            kind: owner.kind,
            name: owner.name,
            uid: owner.uid,
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lease::fixtures::held;

    #[test]
    fn what_is_kept_is_read_back_without_what_is_the_servers() {
        let stored = Stored::of(&held());
        assert_eq!(stored.annotations.keys().collect::<Vec<_>>(), ["note"]);
        let bytes = stored.encode("leader").unwrap();
        assert_eq!(Stored::decode(&bytes), Some(stored));
        assert_eq!(Stored::default().encode("").unwrap(), Vec::<u8>::new());
    }

    #[test]
    fn too_much_is_refused_with_both_numbers() {
        let mut lease = held();
        let big = "v".repeat(STORED_BYTES_MAX);
        lease.metadata.annotations.insert("big".to_owned(), big);
        let failure = Stored::of(&lease).encode("leader").unwrap_err();
        assert_eq!(failure.code(), 422);
        assert!(failure.message.contains("at most 4096"), "{failure:?}");
    }

    #[test]
    fn a_holder_that_was_left_out_is_no_empty_one_and_takes_no_room_from_others() {
        let mut lease = held();
        lease.spec.holder_identity = Some(String::new());
        assert!(!Stored::of(&lease).without_holder);
        lease.spec.holder_identity = None;
        let mut stored = Stored::of(&lease);
        assert!(stored.without_holder);
        assert_eq!(
            Stored::decode(&stored.encode("leader").unwrap()),
            Some(stored.clone())
        );
        let room = STORED_BYTES_MAX - stored.encode("leader").unwrap().len();
        // The key, its lengths and the bytes of the flag beside.
        let value = "v".repeat(room + 2 - "big".len() - 8);
        stored.annotations.insert("big".to_owned(), value);
        let bytes = stored.encode("leader").unwrap();
        assert_eq!(bytes.len(), STORED_BYTES_MAX);
        assert!(!Stored::decode(&bytes).unwrap().without_holder);
    }

    #[test]
    fn what_is_the_servers_may_be_repeated_or_left_out() {
        let shown = held().metadata;
        check_own(Some(&shown), &shown).unwrap();
        let mut written = shown.clone();
        written.annotations.remove("ringfence.io/token");
        check_own(Some(&shown), &written).unwrap();
    }

    #[test]
    fn what_is_the_servers_is_not_set() {
        let shown = held().metadata;
        for key in ["ringfence.io/token", "ringfence.io/x", "Ringfence.IO/token"] {
            let mut written = shown.clone();
            written.annotations.insert(key.to_owned(), "8".to_owned());
            let failure = check_own(Some(&shown), &written).unwrap_err();
            assert_eq!(failure.code(), 422, "{key}");
        }
        check_own(None, &shown).unwrap_err();
    }

    #[test]
    fn keys_values_and_owners_are_checked() {
        let mut metadata = held().metadata;
        metadata.labels.insert("a b".to_owned(), "-".to_owned());
        metadata
            .annotations
            .insert("A.com/x".to_owned(), "any thing".to_owned());
        metadata.annotations.insert("-".to_owned(), String::new());
        let second = metadata.owner_references[0].clone();
        metadata.owner_references.push(OwnerReference {
            uid: String::new(),
            ..second
        });
        let mut causes = Vec::new();
        check(&metadata, &mut causes);
        let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        let expected = [
            "metadata.labels",
            "metadata.labels",
            "metadata.annotations",
            "metadata.ownerReferences[1].uid",
            "metadata.ownerReferences",
        ];
        assert_eq!(fields, expected);
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(Ok(kept)) = Stored::decode(&bytes).map(|stored| stored.encode("")) {
                prop_assert!(Stored::decode(&kept).is_some());
            }
        }
    }
}
