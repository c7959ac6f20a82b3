//! History: who held a token, from when to when, and why it ended.

use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::{HistoryAnswer, HistoryError, HistoryQuery, HistoryRecord};

use super::Context;
use crate::status::RETRY_AFTER;

impl Context {
    /// Answers from this node's own history; the answer says which indices that covers.
    pub(super) async fn history(
        &self,
        request: v1::HistoryRequest,
    ) -> Result<v1::HistoryResponse, Refusal> {
        let (ask, limit) = wire::history_from_wire(request)?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let query = match ask {
            wire::HistoryAsk::Name(name) => HistoryQuery::ByName { name, limit },
            wire::HistoryAsk::Token(token) => HistoryQuery::ByToken(token),
        };
        self.node.history(query).await.map(encode).map_err(refusal)
    }
}

fn encode(answer: HistoryAnswer) -> v1::HistoryResponse {
    let covered = answer.covered.iter();
    v1::HistoryResponse {
        covered: covered
            .map(|&(first, last)| v1::IndexRange { first, last })
            .collect(),
        records: answer.records.into_iter().map(record).collect(),
    }
}

fn record(record: HistoryRecord) -> v1::HistoryRecord {
    let grant = Some(wire::grant_to_wire(&record.granted));
    match record.ended {
        Some((cause, ended_index, at)) => v1::HistoryRecord {
            grant,
            cause: Some(wire::end_cause_to_wire(&cause)),
            ended_index,
            ended_unix_ms: at.0,
        },
        None => v1::HistoryRecord {
            grant,
            ..Default::default()
        },
    }
}

fn refusal(error: HistoryError) -> Refusal {
    Refusal::unavailable(error, None, RETRY_AFTER)
}
