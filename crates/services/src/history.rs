//! History: who held a token, from when to when, and why it ended.

use std::sync::Arc;

use ringfence_core::{Access, LeaseName, Mode, Principal, Rejection, Scope};
use ringfence_proto::wire::STALENESS_MAX;
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::{HistoryAnswer, HistoryError, HistoryQuery, HistoryRecord};

use super::Context;
use super::paging::{self, Page};
use crate::caller::Who;
use crate::clients::Account;
use crate::rights::judged;
use crate::status::{RETRY_AFTER, not_read};

impl Context {
    /// Answers from this node's own history; the answer says which indices that covers.
    pub(super) async fn history(
        &self,
        account: &Arc<Account>,
        who: &Who,
        request: v1::HistoryRequest,
    ) -> Result<Page<v1::HistoryResponse>, Refusal> {
        let (ask, limit) = wire::history_from_wire(request)?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let query = match ask {
            wire::HistoryAsk::Name(name) => HistoryQuery::Name { name, limit },
            wire::HistoryAsk::Token(token) => HistoryQuery::Token(token),
        };
        match &query {
            HistoryQuery::Name { name, .. } => self.look_early(who, may_read(who, name))?,
            HistoryQuery::Token(_) => self.admit(who)?,
        }
        let items = match &query {
            HistoryQuery::Name { limit, .. } => *limit,
            HistoryQuery::Token(_) => 1,
        };
        let room = paging::page_room(account, items).await?;
        let by_token = matches!(query, HistoryQuery::Token(_));
        let mut answer = self.node.history(query).await.map_err(refusal)?;
        self.rights_are_known(who).await?;
        let caller = self.caller(who);
        // Judged again on a state that is as new as what is shown.
        let state = self.node.read(|machine| machine.access().clone());
        for name in answer.records.iter().map(|record| &record.name) {
            let Err(rejection) = judged(&state, caller.as_ref(), may_read(who, name)) else {
                continue;
            };
            if !by_token {
                return Err(Refusal::from_rejection(&rejection));
            }
            // A token that may not be seen looks as one that is not there; it has one record.
            answer.records.clear();
            break;
        }
        Ok(Page::new(room, encode(answer)))
    }
}

impl Context {
    /// Where rights bind, a node that is cut off stops answering after the longest staleness that a read may
    /// allow: it may have missed a ban, or the end of a right. `local` is exempt, since its rights come with
    /// the machine: without a majority it is the one that looks for what happened.
    async fn rights_are_known(&self, who: &Who) -> Result<(), Refusal> {
        let binds = self.node.access_mode() == Mode::Enforced;
        if !binds || who.principal() == Some(&Principal::local()) {
            return Ok(());
        }
        match self.ready_to_read(Some(STALENESS_MAX)).await {
            Ok(_) => Ok(()),
            // A follower that was not asked for long does not know how old its state is.
            Err(_) => self.node.read_barrier().await.map_err(not_read),
        }
    }
}

/// Whether this caller may read the history of this name.
fn may_read<'a>(
    who: &'a Who,
    name: &'a LeaseName,
) -> impl FnOnce(&Access) -> Result<(), Rejection> + 'a {
    |access| access.judge_read(who.principal(), Scope::Name(name))
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
