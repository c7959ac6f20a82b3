//! What a request is answered, and how much of it at once.

use ringfence_core::{ClusterTime, EndCause, LostGrant, Rejection, SessionEnd, SessionId};
use ringfence_planted::{Bug, planted};

use super::Acknowledgement;

/// How many bytes of ended sessions and lost grants an answer tells, about; a single session is
/// reported in whole, even if it takes more. With the numbers of all that a request of 1 MiB can
/// ask for, an answer stays below the 4 MiB that gRPC clients take unless set otherwise.
const TOLD_BYTES_MAX: usize = 3 << 20;
/// What a reported session or grant costs besides its texts, at most.
const TOLD_EACH_BYTES: usize = 48;

/// The answer: every session of the request that is listed neither in `ended` nor in `untold` was
/// kept alive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptAlive {
    /// Cluster time after the last entry that the request was part of.
    pub time: ClusterTime,
    /// Sessions that are not alive, or whose secret is another one; and those that live on and are
    /// not for this caller: of another principal, or of any if it is banned.
    pub ended: Vec<(SessionId, Rejection)>,
    /// Grants that ended against their session's will and that it has not acknowledged.
    pub lost: Vec<(SessionId, Vec<LostGrant>)>,
    /// Sessions with an end or losses that this answer had no room for, those whose time has come and
    /// that are not ended yet, and those with a loss whose acknowledgement was left out. Nothing is acknowledged to them: asked again, they are
    /// notified, once what was reported now has been taken notice of.
    pub untold: Vec<SessionId>,
}

impl KeptAlive {
    /// Some acknowledgements, sorted, were left out, since a state that may lag had no such losses. A
    /// session of which the answer lists one of these has to acknowledge it again. Its client takes what
    /// a keep-alive acknowledged for heard, unless it is in `untold`.
    pub fn ask_again_for(&mut self, left_out: &[Acknowledgement]) {
        if left_out.is_empty() || planted(Bug::LeftOutLossTold) {
            return;
        }
        let untold = &mut self.untold;
        self.lost.retain(|(session, grants)| {
            let is_left_out =
                |lost: &LostGrant| left_out.binary_search(&(*session, lost.token)).is_ok();
            let again = grants.iter().any(is_left_out);
            if again {
                untold.push(*session);
            }
            !again
        });
    }

    /// Leaves out what would make the answer too long. A session receives all it lost or nothing:
    /// its client believes in every grant that a renewal does not list.
    pub(super) fn limited(mut self) -> Self {
        let mut told = 0;
        let mut untold = std::mem::take(&mut self.untold);
        let mut fits = |bytes: usize| {
            let fits = told == 0 || told + bytes <= TOLD_BYTES_MAX;
            if fits {
                told += bytes;
            }
            fits
        };
        let mut keep = |session: &SessionId, bytes: usize| {
            let fits = fits(bytes);
            if !fits {
                untold.push(*session);
            }
            fits
        };
        self.ended
            .retain(|(session, refusal)| keep(session, TOLD_EACH_BYTES + refusal_bytes(refusal)));
        self.lost.retain(|(session, grants)| {
            let grants = grants.iter().map(|grant| {
                TOLD_EACH_BYTES + grant.name.as_str().len() + grant_end_bytes(&grant.cause)
            });
            keep(session, TOLD_EACH_BYTES + grants.sum::<usize>())
        });
        self.untold = untold;
        self
    }
}

fn refusal_bytes(refusal: &Rejection) -> usize {
    match refusal {
        Rejection::SessionExpired {
            cause: Some(SessionEnd::Evicted { operator, reason }),
        } => operator.len() + reason.len(),
        Rejection::SessionExpired {
            cause: Some(SessionEnd::PodEnded { uid, .. }),
        } => uid.as_str().len(),
        _ => 0,
    }
}

fn grant_end_bytes(cause: &EndCause) -> usize {
    match cause {
        EndCause::Revoked { operator, reason } | EndCause::Evicted { operator, reason } => {
            operator.len() + reason.len()
        }
        EndCause::Released
        | EndCause::Expired
        | EndCause::Closed
        | EndCause::Transferred { .. } => 0,
        EndCause::PodEnded { uid, .. } => uid.as_str().len(),
    }
}

#[cfg(test)]
mod tests {
    use ringfence_core::{FencingToken, LeaseName};
    use ringfence_proto::raft as pb;

    use super::super::wire::{kept_from_answer, kept_to_pb};
    use super::*;

    const LEASES: u64 = 4_096;

    /// A session that lost as many leases as it can have, with names and reasons as long as may be.
    fn losses(session: u64) -> (SessionId, Vec<LostGrant>) {
        let grants = (1..=LEASES).map(|n| LostGrant {
            name: LeaseName::parse(&format!("{:0>255}", session * LEASES + n)).unwrap(),
            token: FencingToken::new(session * LEASES + n).unwrap(),
            cause: EndCause::Revoked {
                operator: "o".repeat(255),
                reason: "r".repeat(255),
            },
        });
        (SessionId::new(session).unwrap(), grants.collect())
    }

    fn bytes(kept: &KeptAlive) -> usize {
        use prost::Message;
        kept_to_pb(kept.clone()).encoded_len()
    }

    #[test]
    fn an_answer_with_many_losses_is_limited_and_the_next_one_tells_the_rest() {
        let all: Vec<_> = (1..=5).map(losses).collect();
        let mut waiting = all.clone();
        for round in 1.. {
            let kept = KeptAlive {
                lost: waiting.clone(),
                ..KeptAlive::default()
            };
            let answer = kept.limited();
            assert!(bytes(&answer) < 4 << 20, "{} bytes", bytes(&answer));
            assert!(!answer.lost.is_empty(), "each answer tells something");
            for (session, grants) in &answer.lost {
                assert!(grants.len() as u64 == LEASES, "{session} is told in whole");
                assert!(!answer.untold.contains(session));
            }
            assert_eq!(answer.lost.len() + answer.untold.len(), waiting.len());
            // What was reported is acknowledged, and not lost any more.
            waiting.retain(|(session, _)| answer.untold.contains(session));
            if waiting.is_empty() {
                assert!(round > 1, "it did not fit in one answer");
                return;
            }
        }
    }

    #[test]
    fn many_sessions_that_were_ended_with_long_reasons_are_told_in_parts() {
        let cause = SessionEnd::Evicted {
            operator: "o".repeat(255),
            reason: "r".repeat(255),
        };
        let refusal = Rejection::SessionExpired { cause: Some(cause) };
        let sessions = (1..=30_000).map(|n| (SessionId::new(n).unwrap(), refusal.clone()));
        let kept = KeptAlive {
            ended: sessions.collect(),
            ..KeptAlive::default()
        };
        let answer = kept.limited();
        assert!(bytes(&answer) < 4 << 20, "{} bytes", bytes(&answer));
        assert_eq!(answer.ended.len() + answer.untold.len(), 30_000);
        assert!(answer.ended.len() > 5_000);
    }

    #[test]
    fn what_is_left_untold_reaches_the_node_that_asked() {
        let kept = KeptAlive {
            time: ClusterTime(7),
            untold: vec![SessionId::new(3).unwrap()],
            ..KeptAlive::default()
        };
        let body = pb::answer::Body::KeptAlive(kept_to_pb(kept.clone()));
        assert_eq!(kept_from_answer(body), Ok(kept));
    }
}
