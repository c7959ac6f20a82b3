//! Pods of Kubernetes: what a session can be bound to instead of a TTL.

use alloc::sync::Arc;
use core::fmt;

use crate::name::text;

/// The longest namespace, in bytes; Kubernetes' own limit.
pub const POD_NAMESPACE_BYTES_MAX: usize = 63;
/// The longest name of a Pod, in bytes; Kubernetes' own limit.
pub const POD_NAME_BYTES_MAX: usize = 253;
/// The longest UID of a Pod, in bytes. Kubernetes gives out 36, and 32 to Pods of files.
pub const POD_UID_BYTES_MAX: usize = 64;
/// The longest name of a container, in bytes; Kubernetes' own limit.
pub const CONTAINER_BYTES_MAX: usize = 63;

text! {
    /// The UID of a Pod: another one for each Pod that ever had its name.
    PodUid
}

/// A Pod, and the container in it that a session belongs to.
///
/// One process at a time is behind a container of a Pod, since it is started again only when the one
/// before has ended. So at most one living session is bound to each.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pod {
    // First, so that the containers of one Pod stand together.
    uid: PodUid,
    container: Arc<str>,
    namespace: Arc<str>,
    name: Arc<str>,
}

/// The texts of a [`Pod`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PodText<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name there.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// The container; empty if one is enough to tell.
    pub container: &'a str,
}

/// What was seen of a Pod whose processes are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodSeen {
    /// There is no Pod with its UID any more. If it was deleted by force, that is an operator's word
    /// that its processes have ended.
    Gone,
    /// All its containers have ended well, and are not started again.
    Succeeded,
    /// All its containers have ended, one of them not well, or the Pod was evicted.
    Failed,
    /// Its node is not ready and marked as out of service, which is an operator's word.
    NodeOutOfService,
    /// A new session was opened for the same container of the same Pod: it was started again.
    Restarted,
}

/// Why texts name no [`Pod`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InvalidPod {
    /// One that must be there is empty.
    Empty {
        /// Which.
        part: &'static str,
    },
    /// More bytes than allowed.
    TooLong {
        /// Which.
        part: &'static str,
        /// How many there are.
        bytes: usize,
        /// How many there may be.
        max: usize,
    },
    /// A byte that has no place in it.
    Forbidden {
        /// Which.
        part: &'static str,
        /// Where it stands.
        at: usize,
    },
}

impl fmt::Display for InvalidPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { part } => write!(f, "the {part} of the Pod is empty"),
            Self::TooLong { part, bytes, max } => {
                write!(
                    f,
                    "the {part} of the Pod has {bytes} bytes, at most {max} are allowed"
                )
            }
            Self::Forbidden { part, at } => write!(
                f,
                "the {part} of the Pod has a forbidden byte at {at}; allowed: a-z, 0-9, dots and dashes"
            ),
        }
    }
}

impl core::error::Error for InvalidPod {}

impl PodUid {
    /// Parses a UID.
    ///
    /// # Errors
    /// [`InvalidPod`].
    pub fn parse(raw: &str) -> Result<Self, InvalidPod> {
        part("UID", raw, POD_UID_BYTES_MAX, true).map(Self)
    }
}

impl Pod {
    /// Parses a Pod.
    ///
    /// # Errors
    /// [`InvalidPod`] says which text is wrong, and what is allowed.
    pub fn parse(text: PodText<'_>) -> Result<Self, InvalidPod> {
        Ok(Self {
            uid: PodUid::parse(text.uid)?,
            container: part("container", text.container, CONTAINER_BYTES_MAX, false)?,
            namespace: part("namespace", text.namespace, POD_NAMESPACE_BYTES_MAX, true)?,
            name: part("name", text.name, POD_NAME_BYTES_MAX, true)?,
        })
    }

    /// Its UID.
    #[must_use]
    pub fn uid(&self) -> &PodUid {
        &self.uid
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The container; empty if none was named.
    #[must_use]
    pub fn container(&self) -> &str {
        &self.container
    }

    /// The texts that make it.
    #[must_use]
    pub fn text(&self) -> PodText<'_> {
        PodText {
            namespace: &self.namespace,
            name: &self.name,
            uid: self.uid.as_str(),
            container: &self.container,
        }
    }

    /// Whether it is the same container of the same Pod.
    #[must_use]
    pub fn is_same_container(&self, other: &Self) -> bool {
        self.key() == other.key()
    }

    pub(crate) fn key(&self) -> PodKey {
        (self.uid.clone(), self.container.clone())
    }
}

/// UID and container: at most one living session has each.
pub(crate) type PodKey = (PodUid, Arc<str>);

fn part(part: &'static str, raw: &str, max: usize, needed: bool) -> Result<Arc<str>, InvalidPod> {
    if raw.is_empty() && needed {
        return Err(InvalidPod::Empty { part });
    }
    if raw.len() > max {
        let bytes = raw.len();
        return Err(InvalidPod::TooLong { part, bytes, max });
    }
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
    match raw.bytes().position(|byte| !allowed(byte)) {
        Some(at) => Err(InvalidPod::Forbidden { part, at }),
        None => Ok(Arc::from(raw)),
    }
}

impl fmt::Display for PodSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "is gone",
            Self::Succeeded => "has succeeded",
            Self::Failed => "has failed",
            Self::NodeOutOfService => "was on a node that is out of service",
            Self::Restarted => "has started its container again",
        })
    }
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ({}", self.namespace, self.name, self.uid)?;
        match &*self.container {
            "" => f.write_str(")"),
            container => write!(f, ", container {container})"),
        }
    }
}

impl fmt::Debug for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pod({self})")
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    const TEXT: PodText<'_> = PodText {
        namespace: "shop",
        name: "controller-0",
        uid: "0a1b2c3d-0000-4000-8000-000000000001",
        container: "main",
    };

    #[test]
    fn a_pod_is_the_texts_that_made_it() {
        let pod = Pod::parse(TEXT).expect("it is one");
        assert_eq!(pod.text(), TEXT);
        assert_eq!(
            pod.to_string(),
            "shop/controller-0 (0a1b2c3d-0000-4000-8000-000000000001, container main)"
        );
    }

    #[test]
    fn what_names_no_pod_is_refused() {
        let long = "a".repeat(POD_NAMESPACE_BYTES_MAX + 1);
        for (text, words) in [
            (PodText { uid: "", ..TEXT }, "UID of the Pod is empty"),
            (
                PodText { name: "A", ..TEXT },
                "name of the Pod has a forbidden byte at 0",
            ),
            (
                PodText {
                    namespace: &long,
                    ..TEXT
                },
                "namespace of the Pod has 64 bytes",
            ),
            (
                PodText {
                    container: "a/b",
                    ..TEXT
                },
                "container of the Pod has a forbidden",
            ),
        ] {
            let refused = Pod::parse(text).expect_err("it is none").to_string();
            assert!(refused.contains(words), "{refused}");
        }
        let alone = PodText {
            container: "",
            ..TEXT
        };
        assert!(Pod::parse(alone).is_ok());
    }
}
