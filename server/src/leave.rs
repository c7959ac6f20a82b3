//! How a node that Kubernetes has scaled away takes leave: it gives its seat up before it stops,
//! and clears its directory, which is worth nothing after that.
//!
//! A Pod is stopped for many reasons, and only one of them is for good: that its number is none of
//! its StatefulSet any more. So that is what is asked, and in doubt the seat is kept. A
//! farewell whose answer is missing may still be heard: then the node learns that it was removed
//! when it is started again, and clears its directory then.

use std::time::Duration;

use http::Request;
use ringfence_kube::{Client, Error};
use ringfence_raft::{MembershipError, Node, Standing};
use serde_json::Value;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::limits::LEAVE_MAX;

/// The place of a Pod in its StatefulSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ordinal {
    set: String,
    number: u64,
}

impl Ordinal {
    /// Of a Pod with this name; `None` if no StatefulSet has made it.
    pub(crate) fn of(pod: &str) -> Option<Self> {
        let (set, number) = pod.rsplit_once('-')?;
        let canonical = number.parse::<u64>().ok()?;
        (!set.is_empty() && canonical.to_string() == number).then(|| Self {
            set: set.to_owned(),
            number: canonical,
        })
    }

    /// Whether the StatefulSet has no such Pod any more. No replica at all is a pause of the whole
    /// cluster: it is to come back as it was.
    fn is_outside(&self, wanted: Wanted) -> bool {
        let Wanted { first, replicas } = wanted;
        let numbers = first..first.saturating_add(replicas);
        replicas > 0 && !numbers.contains(&self.number)
    }
}

/// Which Pods a StatefulSet is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    /// The number of the first one, `spec.ordinals.start`.
    first: u64,
    /// How many there are.
    replicas: u64,
}

impl Wanted {
    /// What a StatefulSet says. Kubernetes leaves out the first number if it is 0.
    fn of(set: &Value) -> Option<Self> {
        let first = &set["spec"]["ordinals"]["start"];
        Some(Self {
            first: first.as_u64().unwrap_or(0),
            replicas: set["spec"]["replicas"].as_u64()?,
        })
    }
}

/// When an API server that has no time is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// Why a node has not left for certain.
#[derive(Debug)]
enum Stays {
    /// It keeps its seat.
    Seated(String),
    /// It may have lost it, or may lose it yet.
    Unknown(String),
}

/// Gives up the seat of `node` if its StatefulSet is scaled so that it has none; says whether it
/// did. It takes [`LEAVE_MAX`] at most.
pub(crate) async fn leave_if_scaled_away(node: &Node, client: Client, pod: &Ordinal) -> bool {
    let mut asked = false;
    let left = timeout(LEAVE_MAX, leave(node, client, pod, &mut asked)).await;
    let late = || format!("no answer within {} s", LEAVE_MAX.as_secs());
    let stays = match left {
        Ok(Ok(left)) => return left,
        Ok(Err(stays)) => stays,
        Err(_) if asked => Stays::Unknown(late()),
        Err(_) => Stays::Seated(format!("how many replicas there are to be: {}", late())),
    };
    warn!("{}", told(&stays, pod));
    false
}

fn told(stays: &Stays, pod: &Ordinal) -> String {
    let Ordinal { set, number } = pod;
    match stays {
        Stays::Seated(why) => format!(
            "this node keeps its seat: {why}; if it is not to come back, run `ringfence cluster \
             remove {set}-{number}`"
        ),
        Stays::Unknown(why) => format!(
            "it is unknown whether this node has left its cluster: {why}; if it is not to come back \
             and `ringfence cluster members` still shows it, run `ringfence cluster remove \
             {set}-{number}`"
        ),
    }
}

/// `asked` becomes true before anything is asked that cannot be taken back.
async fn leave(
    node: &Node,
    client: Client,
    pod: &Ordinal,
    asked: &mut bool,
) -> Result<bool, Stays> {
    let wanted = wanted(client, &pod.set).await.map_err(Stays::Seated)?;
    if !pod.is_outside(wanted) {
        return Ok(false);
    }
    let replicas = wanted.replicas;
    let node_id = match node.standing() {
        Standing::None => return Ok(false),
        Standing::Learner(node_id) | Standing::DataLost { node_id, .. } => node_id,
        Standing::Voter => node.status().node_id.unwrap_or_default(),
    };
    *asked = true;
    let removed = node.leave().await;
    removed.map_err(|error| {
        let why =
            format!("its StatefulSet has {replicas} replicas, and yet it cannot leave: {error}");
        match error {
            MembershipError::Unknown { .. } => Stays::Unknown(why),
            MembershipError::Refused { .. }
            | MembershipError::Denied(_)
            | MembershipError::NotDone { .. } => Stays::Seated(why),
        }
    })?;
    info!(node_id, replicas, "this node has left its cluster");
    Ok(true)
}

/// Which Pods a StatefulSet of this namespace is to have.
async fn wanted(client: Client, set: &str) -> Result<Wanted, String> {
    let namespace = client.default_namespace();
    let path = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/{set}");
    loop {
        let asked = Request::get(&path).body(Vec::new());
        let asked = asked.map_err(|error| format!("{path}: {error}"))?;
        match client.request::<Value>(asked).await {
            Ok(set) => {
                let wanted = Wanted::of(&set);
                return wanted.ok_or_else(|| format!("{path}: it has no spec.replicas"));
            }
            Err(Error::Api(status)) if matches!(status.code, 429 | 503 | 504) => {
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            Err(error) => {
                return Err(format!(
                    "cannot ask how many replicas there are to be: {error}"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_of_a_stateful_set_knows_its_number() {
        let third = Ordinal::of("ringfence-eu-3").unwrap();
        assert_eq!((third.set.as_str(), third.number), ("ringfence-eu", 3));
        for other in [
            "n1",
            "ringfence",
            "ringfence-",
            "-3",
            "ringfence-03",
            "a-+3",
        ] {
            assert_eq!(Ordinal::of(other), None, "{other}");
        }
    }

    #[test]
    fn a_farewell_without_an_answer_is_not_called_a_seat_that_is_kept() {
        let third = Ordinal::of("ringfence-3").unwrap();
        let unknown = told(&Stays::Unknown("no answer".to_owned()), &third);
        assert!(!unknown.contains("keeps its seat"), "{unknown}");
        assert!(unknown.contains("it is unknown"), "{unknown}");
        for stays in [Stays::Unknown(String::new()), Stays::Seated(String::new())] {
            let told = told(&stays, &third);
            assert!(
                told.contains("`ringfence cluster remove ringfence-3`"),
                "{told}"
            );
        }
    }

    #[test]
    fn the_highest_numbers_leave_and_a_pause_is_no_farewell() {
        let third = Ordinal::of("ringfence-3").unwrap();
        let leaves = |first, replicas| third.is_outside(Wanted { first, replicas });
        assert!(leaves(0, 3) && leaves(0, 1));
        assert!(!leaves(0, 4) && !leaves(0, 5));
        assert!(!leaves(0, 0));
    }

    #[test]
    fn numbers_that_begin_later_are_not_beyond_the_replicas() {
        let third = Ordinal::of("ringfence-3").unwrap();
        let leaves = |first, replicas| third.is_outside(Wanted { first, replicas });
        assert!(!leaves(3, 1) && !leaves(2, 3) && !leaves(3, 0));
        assert!(leaves(1, 2) && leaves(4, 3));
        let set = serde_json::json!({"spec": {"replicas": 3, "ordinals": {"start": 2}}});
        let wanted = Wanted {
            first: 2,
            replicas: 3,
        };
        assert_eq!(Wanted::of(&set), Some(wanted));
        let set = serde_json::json!({"spec": {"replicas": 0}});
        let wanted = Wanted {
            first: 0,
            replicas: 0,
        };
        assert_eq!(Wanted::of(&set), Some(wanted));
        // An answer of another kind is no reason to leave.
        assert_eq!(Wanted::of(&serde_json::json!({})), None);
    }
}
