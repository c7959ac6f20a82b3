//! Sessions for Pods of Kubernetes: leaders for life.

use std::env;

use ringfence_core::{InvalidPod, Pod, PodText};

use crate::session::Session;
use crate::session::client::Client;
use crate::session::error::OpenError;
use crate::session::open::{self, Lifetime};

/// The variables that say which Pod this process runs in, as the downward API fills them: namespace,
/// name, UID, and the container's name, which may be left out where the Pod has one that matters.
pub const POD_VARIABLES: [&str; 4] = ["POD_NAMESPACE", "POD_NAME", "POD_UID", "POD_CONTAINER"];

/// Why it is unknown which Pod this process runs in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownPod {
    /// A variable is not set.
    #[error(
        "{0} is not set; fill it from metadata.namespace, metadata.name or metadata.uid (valueFrom.fieldRef)"
    )]
    Unset(&'static str),
    /// What they say is no Pod.
    #[error(transparent)]
    Invalid(#[from] InvalidPod),
}

/// The Pod that this process runs in, by [`POD_VARIABLES`].
///
/// # Errors
/// [`UnknownPod`] if they are not set or name none.
pub fn this_pod() -> Result<Pod, UnknownPod> {
    pod_of(|name| env::var(name).ok())
}

fn pod_of(get: impl Fn(&str) -> Option<String>) -> Result<Pod, UnknownPod> {
    let [namespace, name, uid, container] = POD_VARIABLES;
    let needed = |variable| get(variable).ok_or(UnknownPod::Unset(variable));
    let (namespace, name, uid) = (needed(namespace)?, needed(name)?, needed(uid)?);
    let container = get(container).unwrap_or_default();
    Ok(Pod::parse(PodText {
        namespace: &namespace,
        name: &name,
        uid: &uid,
        container: &container,
    })?)
}

impl Client {
    /// Opens a session that lasts as long as a Pod: nothing is renewed, and no clock ends it.
    ///
    /// The cluster's leader watches the Pod and ends the session when it is gone, has succeeded or
    /// failed, or its node is out of service; a Pod that is merely not ready keeps it, and so does
    /// one whose node is cut off, for as long as that takes. A process that begins again in the
    /// same container ends its former life's session by this very call, and gets new tokens.
    ///
    /// - [`Session::is_live`] and [`HeldLease::is_valid`](crate::Term::is_valid) say yes until
    ///   the cluster has said that it is over; [`Session::valid_until`] is beyond all time, there is
    ///   no jeopardy, and a [heartbeat](Session::heartbeat) stops nothing.
    /// - Each of its leases is watched as long as it is held, so that its end is reported at once,
    ///   a revoke as well as the Pod's end; behind each new connection the cluster is asked, too. A
    ///   node has 10,000 watchers at most.
    /// - **Deleting the Pod by force, or marking its node as out of service, is an operator's word
    ///   that the process is dead.** If it is not, it goes on believing while another one is
    ///   granted the lease. Only guards protect from that.
    ///
    /// # Errors
    /// [`OpenError`] if the cluster watches no Pods, or does not answer in time.
    pub async fn open_session_for(
        &self,
        pod: &Pod,
        identity: impl Into<String>,
    ) -> Result<Session, OpenError> {
        let lifetime = Lifetime::Pod(pod.clone());
        open::open(self, identity.into(), lifetime).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_pod_is_what_the_downward_api_says() {
        let set = |name: &str| match name {
            "POD_NAMESPACE" => Some("shop".to_owned()),
            "POD_NAME" => Some("controller-0".to_owned()),
            "POD_UID" => Some("0a1b".to_owned()),
            _ => None,
        };
        let pod = pod_of(set).unwrap();
        assert_eq!(pod.to_string(), "shop/controller-0 (0a1b)");

        let refused = pod_of(|name| set(name).filter(|_| name != "POD_UID"));
        assert_eq!(refused, Err(UnknownPod::Unset("POD_UID")));
        let refused = pod_of(|_| Some("A b".to_owned()));
        assert!(matches!(refused, Err(UnknownPod::Invalid(_))));
    }
}
