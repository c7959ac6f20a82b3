//! What a proof says of a caller.

use std::sync::Arc;

use ringfence_core::Principal;

/// Who a request was proven to come from. The edge puts it beside each request, as an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    /// The caller.
    pub principal: Principal,
    /// The id of the cluster token that named the caller.
    pub token: Option<u64>,
    /// From when on the proof does not hold any more, in seconds since 1970:
    /// [`LEEWAY`](crate::LEEWAY) seconds after the end of the credential.
    pub expires_unix: Option<u64>,
    /// The Pod that a service account's token is bound to, by the word of its issuer.
    pub pod: Option<Arc<BoundPod>>,
}

/// The name of [`Proven`] beside a request.
pub type Caller = Proven;

/// The Pod that a token of a service account is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BoundPod {
    /// The alias of the issuer: another Kubernetes cluster may have Pods of the same name.
    pub issuer: String,
    /// The namespace.
    pub namespace: String,
    /// The name of the Pod.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl Proven {
    /// A caller whose proof has no end.
    #[must_use]
    pub fn of(principal: Principal) -> Self {
        Self {
            principal,
            token: None,
            expires_unix: None,
            pod: None,
        }
    }

    /// Whether the proof still holds at `now`, in seconds since 1970.
    #[must_use]
    pub fn holds_at(&self, now: u64) -> bool {
        self.expires_unix.is_none_or(|ends| now < ends)
    }
}
