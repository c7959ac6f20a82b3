//! Pods that sessions are bound to.

use ringfence_core::{
    ClusterTime, Command, OpenForPod, OpenId, Pod, PodSeen, PodText, PodUid, Secret,
};

use super::{check, open_from_wire};
use crate::{DecodeError, Refusal, v1};

/// The command of an `Open`, for a Pod or not.
///
/// # Errors
/// A refusal names the field that is not as it has to be.
pub fn open_command_from_wire(mut open: v1::OpenRequest) -> Result<Command, Refusal> {
    let Some(pod) = open.pod.take() else {
        return open_from_wire(open).map(Command::Open);
    };
    // 0 is what callers without field presence send.
    if let Some(offered) = open.ttl_ms.filter(|ttl| *ttl != 0) {
        let allowed = "none, since a session that is bound to a Pod has none";
        return Err(Refusal::invalid("ttl_ms", offered, allowed));
    }
    Ok(Command::OpenForPod(OpenForPod {
        id: OpenId::new(check::sixteen(&open.id, "id")?),
        secret: Secret::new(check::sixteen(&open.secret, "secret")?),
        seen: open.seen_cluster_time_ms.map(ClusterTime),
        identity: check::identity(&open.identity, "identity")?,
        pod: pod_from_wire(&pod)?,
    }))
}

/// A Pod.
///
/// # Errors
/// A refusal says which of its texts is not as it has to be.
pub fn pod_from_wire(pod: &v1::Pod) -> Result<Pod, Refusal> {
    let v1::Pod {
        namespace,
        name,
        uid,
        container,
    } = pod;
    let offered = format!("{namespace}/{name} ({uid}, container {container:?})");
    let text = PodText {
        namespace,
        name,
        uid,
        container,
    };
    Pod::parse(text).map_err(|why| Refusal::invalid("pod", offered, why))
}

/// A Pod.
#[must_use]
pub fn pod_to_wire(pod: &Pod) -> v1::Pod {
    let text = pod.text();
    v1::Pod {
        namespace: text.namespace.into(),
        name: text.name.into(),
        uid: text.uid.into(),
        container: text.container.into(),
    }
}

pub(super) fn seen_to_wire(seen: PodSeen) -> v1::PodSeen {
    match seen {
        PodSeen::Gone => v1::PodSeen::Gone,
        PodSeen::Succeeded => v1::PodSeen::Succeeded,
        PodSeen::Failed => v1::PodSeen::Failed,
        PodSeen::NodeOutOfService => v1::PodSeen::NodeOutOfService,
        PodSeen::Restarted => v1::PodSeen::Restarted,
    }
}

/// The Pod's UID and what was seen of it.
pub(super) fn ended_from_wire(uid: &str, seen: i32) -> Result<(PodUid, PodSeen), DecodeError> {
    let field = "pod_seen";
    let seen = match v1::PodSeen::try_from(seen) {
        Ok(v1::PodSeen::Gone) => PodSeen::Gone,
        Ok(v1::PodSeen::Succeeded) => PodSeen::Succeeded,
        Ok(v1::PodSeen::Failed) => PodSeen::Failed,
        Ok(v1::PodSeen::NodeOutOfService) => PodSeen::NodeOutOfService,
        Ok(v1::PodSeen::Restarted) => PodSeen::Restarted,
        Ok(v1::PodSeen::Unspecified) => return Err(DecodeError::Missing { field }),
        Err(_) => {
            let why = format!("{seen} is nothing that this version knows");
            return Err(DecodeError::invalid(field, why));
        }
    };
    let uid = PodUid::parse(uid).map_err(|why| DecodeError::invalid("pod_uid", why))?;
    Ok((uid, seen))
}
