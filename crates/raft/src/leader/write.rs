//! One entry, written in one term.

use openraft::errors::ClientWriteError;
use openraft::raft::ClientWriteResult;
use ringfence_planted::{Bug, planted};

use crate::store::state::Raft;
use crate::types::proposal::Proposal;
use crate::types::reply::{Applied, ProposeError};
use crate::types::type_config::{CommittedLeaderId, FnResponder, TypeConfig};

/// What openraft's answer to a write means.
pub(crate) enum Written {
    Applied(Applied),
    /// It never got into the log.
    NotAppended(String),
    /// It may be in the log.
    Unknown(String),
}

pub(crate) fn classify(result: ClientWriteResult<TypeConfig>) -> Written {
    match result {
        Ok(response) => Written::Applied(response.data),
        Err(ClientWriteError::ForwardToLeader(forward)) => {
            Written::NotAppended(format!("this node does not lead ({:?})", forward.reason))
        }
        Err(ClientWriteError::LogEntryDiscarded(_)) if planted(Bug::DiscardedIsNotDone) => {
            Written::NotAppended("leadership was lost".to_owned())
        }
        Err(ClientWriteError::LogEntryDiscarded(_)) => {
            Written::Unknown("leadership was lost while the entry was under way".to_owned())
        }
        Err(ClientWriteError::ChangeMembershipError(error)) => Written::Unknown(error.to_string()),
        Err(ClientWriteError::PreconditionFailed(error)) => Written::Unknown(error.to_string()),
    }
}

/// Writes one entry in a term and waits until it is applied.
pub(crate) async fn write_in_term(
    raft: &Raft,
    term: u64,
    proposal: Proposal,
) -> Result<Applied, ProposeError> {
    let (tell, answer) = tokio::sync::oneshot::channel();
    let responder = FnResponder(Box::new(move |result| {
        tell.send(result).ok();
    }));
    let leader = CommittedLeaderId::new(term);
    let written = raft
        .write(proposal)
        .responder(responder)
        .with_leader(leader)
        .await;
    written.map_err(|fatal| ProposeError::Fault {
        why: fatal.to_string(),
    })?;
    let result = answer
        .await
        .map_err(|_| ProposeError::unknown("the node stopped"))?;
    match classify(result) {
        Written::Applied(applied) => Ok(applied),
        Written::NotAppended(why) => Err(ProposeError::not_done(why)),
        Written::Unknown(why) => Err(ProposeError::unknown(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library offers both of them as a hint to go elsewhere; only one says that nothing was
    /// done.
    #[test]
    fn an_entry_that_was_discarded_by_its_leader_may_still_commit() {
        let elsewhere = openraft::errors::ForwardToLeader::empty;
        let discarded = classify(Err(ClientWriteError::LogEntryDiscarded(elsewhere())));
        assert!(matches!(discarded, Written::Unknown(_)));
        let refused = classify(Err(ClientWriteError::ForwardToLeader(elsewhere())));
        assert!(matches!(refused, Written::NotAppended(_)));
    }
}
