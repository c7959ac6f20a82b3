//! History: who held a token, from when to when, and why it ended.

use std::sync::Arc;

use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::{HistoryAnswer, HistoryError, HistoryQuery, HistoryRecord};

use super::Context;
use super::paging::{self, Page};
use crate::clients::Account;
use crate::status::RETRY_AFTER;

impl Context {
    /// Answers from this node's own history; the answer says which indices that covers.
    pub(super) async fn history(
        &self,
        account: &Arc<Account>,
        request: v1::HistoryRequest,
    ) -> Result<Page<v1::HistoryResponse>, Refusal> {
        let (ask, limit) = wire::history_from_wire(request)?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let query = match ask {
            wire::HistoryAsk::Name(name) => HistoryQuery::Name { name, limit },
            wire::HistoryAsk::Token(token) => HistoryQuery::Token(token),
        };
        let items = match &query {
            HistoryQuery::Name { limit, .. } => *limit,
            HistoryQuery::Token(_) => 1,
        };
        let room = paging::page_room(account, items).await?;
        let answer = self.node.history(query).await.map_err(refusal)?;
        Ok(Page::new(room, encode(answer)))
    }
}

fn encode(answer: HistoryAnswer) -> v1::HistoryResponse {
    let covered = answer.covered.into_iter();
    v1::HistoryResponse {
        records: answer.records.into_iter().map(record).collect(),
        covered: covered
            .map(|(first, last)| v1::IndexRange { first, last })
            .collect(),
    }
}

fn record(record: HistoryRecord) -> v1::HistoryRecord {
    let HistoryRecord {
        name,
        token,
        granted,
        ended,
    } = record;
    // The end alone tells whose grant it was, but neither when it began nor what it published.
    let beginning_unknown = || v1::Grant {
        name: name.to_string(),
        token: token.get(),
        session: ended.as_ref().map_or(0, |end| end.session.get()),
        identity: ended
            .as_ref()
            .map(|end| end.identity.to_string())
            .unwrap_or_default(),
        ..Default::default()
    };
    let grant = granted
        .as_ref()
        .map_or_else(beginning_unknown, wire::grant_to_wire);
    v1::HistoryRecord {
        grant: Some(grant),
        cause: ended
            .as_ref()
            .map(|end| wire::end_cause_to_wire(&end.cause)),
        ended_index: ended.as_ref().map_or(0, |end| end.index),
        ended_unix_ms: ended.as_ref().map_or(0, |end| end.at.0),
    }
}

fn refusal(error: HistoryError) -> Refusal {
    match error {
        HistoryError::Unavailable { why } => Refusal::unavailable(why, None, RETRY_AFTER),
    }
}
