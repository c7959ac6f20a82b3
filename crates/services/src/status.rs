//! What is said when a request was not answered as asked: one table per kind of failure, none with
//! a wildcard. What the state machine refuses is mapped in `ringfence_proto::refusal`.
//!
//! "Not done" is said here only where the node knows that the request has no effect and will have
//! none. Everything else is `OUTCOME_UNKNOWN`: the same request number finds out.

use std::time::Duration;

use ringfence_core::Outcome;
use ringfence_proto::Refusal;
use ringfence_proto::v1::Reason;
use ringfence_raft::{LeaderHint, ProposeError};

/// When to try again if there is no better estimate: an election takes about so long.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(200);

/// A limit of this node that is reached.
pub(crate) fn limit(name: &str, max: usize, advice: &str) -> Refusal {
    let message = format!("{name}: at most {max} are allowed; {advice}");
    Refusal::new(Reason::Limit, message)
        .with("limit", name)
        .with("max", max)
}

/// Why a proposal brought no outcome.
pub(crate) fn not_proposed(error: ProposeError) -> Refusal {
    match error {
        ProposeError::NotDone {
            why,
            leader,
            retry_after,
        } => not_done(&why, leader, retry_after),
        ProposeError::Unknown { why } => Refusal::outcome_unknown(why),
        ProposeError::Fault { why } => Refusal::fault(why),
    }
}

/// Why a read was not answered. A read has no effect, so that it may always be repeated.
pub(crate) fn not_read(error: ProposeError) -> Refusal {
    match error {
        ProposeError::NotDone {
            why,
            leader,
            retry_after,
        } => not_done(&why, leader, retry_after),
        ProposeError::Unknown { why } => Refusal::unavailable(why, None, RETRY_AFTER),
        ProposeError::Fault { why } => Refusal::fault(why),
    }
}

fn not_done(why: &str, leader: Option<LeaderHint>, retry_after: Option<Duration>) -> Refusal {
    let leader = leader.as_ref().map(|leader| leader.client_address.as_str());
    Refusal::unavailable(why, leader, retry_after.unwrap_or(RETRY_AFTER))
}

/// An outcome that does not answer what was proposed: a rejection, or else a fault of ours.
pub(crate) fn unexpected(outcome: &Outcome) -> Refusal {
    match outcome {
        Outcome::Rejected(rejection) => Refusal::from_rejection(rejection),
        Outcome::Done
        | Outcome::Opened(_)
        | Outcome::Acquired(_)
        | Outcome::Cancelled(_)
        | Outcome::Released { .. }
        | Outcome::Transferred { .. }
        | Outcome::Closed { .. }
        | Outcome::Renewed(_)
        | Outcome::NodeId(_)
        | Outcome::AccessChanged { .. }
        | Outcome::Object(_) => Refusal::fault("the log answered another question than was asked"),
    }
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};

    use super::*;

    fn leader() -> Option<LeaderHint> {
        Some(LeaderHint {
            node_id: 2,
            client_address: "n2:7420".to_owned(),
        })
    }

    #[test]
    fn not_done_names_the_leader_and_when_to_try_again() {
        let retry_after = Some(Duration::from_millis(30));
        let error = ProposeError::NotDone {
            why: "no quorum".to_owned(),
            leader: leader(),
            retry_after,
        };

        let status = Status::from(not_proposed(error));
        let refusal = Refusal::from_status(&status).expect("a reason of ours");

        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().contains("no quorum"), "{status}");
        assert_eq!(refusal.metadata["leader"], "n2:7420");
        assert_eq!(refusal.retry_after, retry_after);
        assert!(refusal.is_certain());
    }

    #[test]
    fn an_unknown_outcome_is_never_told_as_not_done() {
        let status = Status::from(not_proposed(ProposeError::Unknown {
            why: "gone".to_owned(),
        }));
        let refusal = Refusal::from_status(&status).expect("a reason of ours");

        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert_eq!(refusal.reason, Reason::OutcomeUnknown);
        assert!(!refusal.is_certain());
    }

    #[test]
    fn a_read_may_be_repeated_whatever_became_of_it() {
        let refusal = not_read(ProposeError::Unknown {
            why: "gone".to_owned(),
        });

        assert_eq!(refusal.reason, Reason::Unavailable);
    }
}
