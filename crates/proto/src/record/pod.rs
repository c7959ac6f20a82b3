//! Sessions that are bound to Pods.

use ringfence_core::{ClusterTime, OpenForPod, Pod, PodEnded, PodSeen, PodText, PodUid};

use super::id::id;
use super::pb;
use crate::{DecodeError, fields};

impl From<&OpenForPod> for pb::OpenForPod {
    fn from(open: &OpenForPod) -> Self {
        Self {
            id: Some((&open.id).into()),
            secret: Some((&open.secret).into()),
            seen: open.seen.map(|time| time.0),
            identity: open.identity.as_str().into(),
            pod: Some((&open.pod).into()),
        }
    }
}

impl TryFrom<pb::OpenForPod> for OpenForPod {
    type Error = DecodeError;

    fn try_from(open: pb::OpenForPod) -> Result<Self, DecodeError> {
        Ok(Self {
            id: id(open.id, "open_for_pod.id")?,
            secret: id(open.secret, "open_for_pod.secret")?,
            seen: open.seen.map(ClusterTime),
            identity: fields::identity(&open.identity, "open_for_pod.identity")?,
            pod: fields::there(open.pod, "open_for_pod.pod")?.try_into()?,
        })
    }
}

impl From<&Pod> for pb::Pod {
    fn from(pod: &Pod) -> Self {
        let text = pod.text();
        Self {
            namespace: text.namespace.into(),
            name: text.name.into(),
            uid: text.uid.into(),
            container: text.container.into(),
        }
    }
}

impl TryFrom<pb::Pod> for Pod {
    type Error = DecodeError;

    fn try_from(pod: pb::Pod) -> Result<Self, DecodeError> {
        let text = PodText {
            namespace: &pod.namespace,
            name: &pod.name,
            uid: &pod.uid,
            container: &pod.container,
        };
        Self::parse(text).map_err(|why| DecodeError::invalid("pod", why))
    }
}

/// How a Pod's end is written.
pub(super) fn pod_ended(uid: &PodUid, seen: PodSeen) -> pb::PodEnded {
    let seen = match seen {
        PodSeen::Gone => pb::PodSeen::Gone,
        PodSeen::Succeeded => pb::PodSeen::Succeeded,
        PodSeen::Failed => pb::PodSeen::Failed,
        PodSeen::NodeOutOfService => pb::PodSeen::NodeOutOfService,
        PodSeen::Restarted => pb::PodSeen::Restarted,
    };
    pb::PodEnded {
        uid: uid.as_str().into(),
        seen: seen.into(),
    }
}

impl TryFrom<pb::PodEnded> for PodEnded {
    type Error = DecodeError;

    fn try_from(ended: pb::PodEnded) -> Result<Self, DecodeError> {
        let field = "pod_ended.seen";
        let seen = match pb::PodSeen::try_from(ended.seen) {
            Ok(pb::PodSeen::Gone) => PodSeen::Gone,
            Ok(pb::PodSeen::Succeeded) => PodSeen::Succeeded,
            Ok(pb::PodSeen::Failed) => PodSeen::Failed,
            Ok(pb::PodSeen::NodeOutOfService) => PodSeen::NodeOutOfService,
            Ok(pb::PodSeen::Restarted) => PodSeen::Restarted,
            Ok(pb::PodSeen::Unspecified) => return Err(DecodeError::Missing { field }),
            Err(_) => {
                let why = format!("{} is nothing that can be seen", ended.seen);
                return Err(DecodeError::invalid(field, why));
            }
        };
        Ok(Self {
            uid: PodUid::parse(&ended.uid).map_err(|why| DecodeError::invalid("pod.uid", why))?,
            seen,
        })
    }
}
