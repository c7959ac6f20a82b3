//! Who calls, as the edge of this node has proven it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ringfence_core::{Called, Caller, Command, Pod, PodText, PodUid, Principal};
use tonic::Request;

/// Who a request was proven to come from. What proves puts it among the request's extensions; a
/// request without it comes from a caller that has proven nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identified {
    /// Who.
    pub principal: Principal,
    /// The id of the cluster token that proved it.
    pub token: Option<u64>,
    /// The Pod whose own credential was shown.
    pub pod: Option<ProvenPod>,
    /// What tells processes behind one principal apart, and says nothing else: the UID of the Pod that the
    /// credential was made for, of whichever Kubernetes, by the word of its issuer. By the word of an
    /// operator, the same for all credentials of a principal that one process alone has.
    pub process: Option<PodUid>,
    /// When streams and watches that began with this credential end, in seconds since the Unix
    /// epoch, by this node's clock; never if left out. Leeway is added by who proves.
    pub expires_unix: Option<u64>,
}

/// A Pod of the watched Kubernetes that a credential belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name there.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// The caller of a request; empty if it has proven nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Who(Option<Arc<Identified>>);

impl Who {
    /// The caller of this request.
    pub(crate) fn of<T>(request: &Request<T>) -> Self {
        Self::new(request.extensions().get::<Identified>().cloned())
    }

    /// A caller that has proven nothing is `anonymous`, and entries of `anonymous` name no caller.
    pub(crate) fn new(identified: Option<Identified>) -> Self {
        let proven = identified.filter(|who| who.principal.as_str() != Principal::ANONYMOUS);
        Self(proven.map(Arc::new))
    }

    pub(crate) fn principal(&self) -> Option<&Principal> {
        Some(&self.0.as_ref()?.principal)
    }

    /// The caller as entries name it, proven by this node.
    pub(crate) fn caller(&self, node: u64) -> Option<Caller> {
        let who = self.0.as_ref()?;
        Some(Caller {
            principal: who.principal.clone(),
            token: who.token,
            node,
        })
    }

    /// The command with who asks for it.
    pub(crate) fn asks(&self, node: u64, command: Command) -> Command {
        match self.caller(node) {
            Some(caller) => Command::Called(Box::new(Called { caller, command })),
            None => command,
        }
    }

    /// Whether the credential is that of this very Pod.
    pub(crate) fn is_pod(&self, pod: &Pod) -> bool {
        let own = self.0.as_ref().and_then(|who| who.pod.as_ref());
        own.is_some_and(|own| {
            own.namespace == pod.namespace()
                && own.name == pod.name()
                && own.uid == pod.uid().as_str()
        })
    }

    /// The Pod of the watched Kubernetes whose own credential was shown.
    pub(crate) fn watched_pod(&self) -> Option<Pod> {
        let own = self.0.as_ref()?.pod.as_ref()?;
        let text = PodText {
            namespace: &own.namespace,
            name: &own.name,
            uid: &own.uid,
            container: "",
        };
        Pod::parse(text).ok()
    }

    /// What tells its process from others behind its principal.
    pub(crate) fn process(&self) -> Option<PodUid> {
        self.0.as_ref()?.process.clone()
    }

    /// How long the credential is valid still, zero if it is no more; `None` if it never expires.
    pub(crate) fn expires_in(&self) -> Option<Duration> {
        let expires = self.0.as_ref()?.expires_unix?;
        Some(Duration::from_secs(expires).saturating_sub(since_epoch()))
    }

    /// Whether the credential is valid no more.
    pub(crate) fn has_expired(&self) -> bool {
        self.expires_in() == Some(Duration::ZERO)
    }
}

/// This node's wall time, since the Unix epoch. No grant may depend on it.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "a credential expires by the wall clock; no grant depends on it"
)]
pub fn since_epoch() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default()
}
