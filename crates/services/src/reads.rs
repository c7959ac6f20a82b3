//! Reads: first the point of the log at which the answer has to stand, then a look at the state.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use ringfence_core::{
    Access, FencingToken, LeaseName, Principal, Rejection, Scope, SessionId, SessionView,
    StateMachine, Verb,
};
use ringfence_proto::{Refusal, v1, wire};

use super::Context;
use super::paging::{Page, page_room};
use crate::caller::Who;
use crate::clients::{Account, Reserved};
use crate::limits::PAGE_BYTES_MAX;
use crate::metrics::Call;
use crate::rights::judged;
use crate::spans;
use crate::status::{RETRY_AFTER, not_read};

/// How old an answer may be; `None`: it reflects everything that was acknowledged before.
pub(super) type MaxStaleness = Option<Duration>;

/// A call that is answered from the state.
pub(super) trait Query: Send + 'static {
    /// Which call it is.
    const CALL: Call;
    /// What is asked for.
    type Asked: Send + 'static;
    /// What it is answered.
    type Answer: Message + 'static;

    /// What the call asks for, and how old the answer may be.
    fn asked(self) -> Result<(Self::Asked, MaxStaleness), Refusal>;

    /// Notes for traces what is asked for.
    fn note(asked: &Self::Asked);

    /// Whether this caller may ask for it, by the state that the answer comes from. It must not
    /// depend on whether there is such a thing.
    fn judge(
        asked: &Self::Asked,
        machine: &StateMachine,
        who: Option<&Principal>,
    ) -> Result<(), Rejection>;

    /// The answer.
    fn look(
        asked: Self::Asked,
        machine: &StateMachine,
        at: v1::ReadPoint,
    ) -> Result<Self::Answer, Refusal>;
}

impl Context {
    /// Waits until this node's state is as fresh as wished; the age that it then has at most.
    pub(super) async fn ready_to_read(&self, max: MaxStaleness) -> Result<Duration, Refusal> {
        let Some(max) = max else {
            self.node.read_barrier().await.map_err(not_read)?;
            return Ok(Duration::ZERO);
        };
        match self.node.age() {
            Some(age) if age <= max => Ok(age),
            age => {
                let known = age.map_or("unknown".to_owned(), |age| format!("{age:?}"));
                let why = format!("the age of this node's state is {known}, {max:?} is allowed");
                let leader = self.node.status().leader;
                let leader = leader.as_ref().map(|leader| leader.client_address.as_str());
                Err(Refusal::unavailable(why, leader, RETRY_AFTER))
            }
        }
    }

    /// Waits until this node's state is as fresh as wished and there is room for a page of so many
    /// items; returns the room, and the age of the state.
    pub(super) async fn ready_for_page(
        &self,
        account: &Arc<Account>,
        items: usize,
        max: MaxStaleness,
    ) -> Result<(Reserved, Duration), Refusal> {
        // No request waits for a leader with room that others could use.
        let age = self.ready_to_read(max).await?;
        let room = page_room(account, items).await?;
        let age = match max {
            // The state has grown older meanwhile.
            Some(_) => self.ready_to_read(max).await?,
            None => age,
        };
        Ok((room, age))
    }

    /// Answers one read.
    pub(super) async fn read<Q: Query>(&self, who: &Who, query: Q) -> Result<Q::Answer, Refusal> {
        self.admit(who)?;
        let (asked, max_staleness) = query.asked()?;
        Q::note(&asked);
        let age = self.ready_to_read(max_staleness).await?;
        self.look::<Q>(who, asked, age).1
    }

    /// Answers one read from a state of this age; also its index.
    pub(super) fn look<Q: Query>(
        &self,
        who: &Who,
        asked: Q::Asked,
        age: Duration,
    ) -> (u64, Result<Q::Answer, Refusal>) {
        let caller = self.caller(who);
        let (index, looked) = self.node.read(|machine| {
            let judge = |_: &Access| Q::judge(&asked, machine, who.principal());
            let judged = judged(machine.access(), caller.as_ref(), judge);
            let looked = judged.map(|would| (would, Q::look(asked, machine, point(machine, age))));
            (machine.index(), looked)
        });
        let answer = match looked {
            Ok((would, answer)) => self.heed(Ok(would)).and(answer),
            Err(rejection) => Err(Refusal::from_rejection(&rejection)),
        };
        (index, answer)
    }
}

/// Where in the log an answer stands.
pub(super) fn point(machine: &StateMachine, age: Duration) -> v1::ReadPoint {
    wire::read_point_to_wire(machine.index(), machine.time(), age)
}

impl Query for v1::GetRequest {
    const CALL: Call = Call::Get;
    type Asked = LeaseName;
    type Answer = v1::GetResponse;

    fn asked(self) -> Result<(LeaseName, MaxStaleness), Refusal> {
        wire::get_from_wire(self)
    }

    fn note(name: &LeaseName) {
        spans::note_lease(name);
    }

    fn judge(
        name: &LeaseName,
        machine: &StateMachine,
        who: Option<&Principal>,
    ) -> Result<(), Rejection> {
        machine.access().judge_read(who, Scope::Name(name))
    }

    fn look(
        name: LeaseName,
        machine: &StateMachine,
        at: v1::ReadPoint,
    ) -> Result<v1::GetResponse, Refusal> {
        let lease = machine.get(&name);
        let lease = lease.ok_or_else(|| {
            Refusal::not_found(format!("lease {name}, or it is idle and forgotten"))
        })?;
        Ok(v1::GetResponse {
            lease: Some(wire::lease_to_wire(&lease)),
            at: Some(at),
        })
    }
}

impl Query for v1::CheckRequest {
    const CALL: Call = Call::Check;
    type Asked = (LeaseName, FencingToken);
    type Answer = v1::CheckResponse;

    fn asked(self) -> Result<((LeaseName, FencingToken), MaxStaleness), Refusal> {
        let (name, token, max_staleness) = wire::check_from_wire(self)?;
        Ok(((name, token), max_staleness))
    }

    fn note((name, _): &(LeaseName, FencingToken)) {
        spans::note_lease(name);
    }

    fn judge(
        (name, _): &(LeaseName, FencingToken),
        machine: &StateMachine,
        who: Option<&Principal>,
    ) -> Result<(), Rejection> {
        machine.access().judge_read(who, Scope::Name(name))
    }

    fn look(
        (name, token): (LeaseName, FencingToken),
        machine: &StateMachine,
        at: v1::ReadPoint,
    ) -> Result<v1::CheckResponse, Refusal> {
        Ok(wire::verdict_to_wire(machine.check(&name, token), at))
    }
}

impl Query for v1::GetSessionRequest {
    const CALL: Call = Call::GetSession;
    type Asked = SessionId;
    type Answer = v1::GetSessionResponse;

    fn asked(self) -> Result<(SessionId, MaxStaleness), Refusal> {
        Ok((
            wire::get_session_from_wire(&self)?,
            wire::max_staleness_from_wire(self.read)?,
        ))
    }

    fn note(_: &SessionId) {}

    fn judge(
        id: &SessionId,
        machine: &StateMachine,
        who: Option<&Principal>,
    ) -> Result<(), Rejection> {
        match who.is_some() && machine.session_owner(*id) == who {
            true => Ok(()),
            false => judge_sessions(machine.access(), who),
        }
    }

    fn look(
        id: SessionId,
        machine: &StateMachine,
        at: v1::ReadPoint,
    ) -> Result<v1::GetSessionResponse, Refusal> {
        let session = machine.session(id);
        let session = session.ok_or_else(|| {
            Refusal::not_found(format!("session {id}; it has ended, or never was"))
        })?;
        Ok(v1::GetSessionResponse {
            session: Some(wire::session_to_wire(&session)),
            at: Some(at),
        })
    }
}

/// Whether a principal may read the sessions of others.
fn judge_sessions(access: &Access, who: Option<&Principal>) -> Result<(), Rejection> {
    access.judge(who, Verb::Observe, Scope::Prefix(""))
}

impl Context {
    /// Sessions in the order of their numbers; each page stands at its own index and ends at
    /// [`PAGE_BYTES_MAX`].
    pub(super) async fn list_sessions(
        &self,
        account: &Arc<Account>,
        who: &Who,
        request: v1::ListSessionsRequest,
    ) -> Result<Page<v1::ListSessionsResponse>, Refusal> {
        self.admit(who)?;
        let (size, after) = wire::list_sessions_from_wire(&request)?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let max_staleness = wire::max_staleness_from_wire(request.read)?;
        let (room, age) = self.ready_for_page(account, size, max_staleness).await?;
        let state = self.node.frozen();
        let judge = |access: &Access| judge_sessions(access, who.principal());
        self.heed(judged(state.access(), self.caller(who).as_ref(), judge))?;
        let (sessions, more) = sessions_page(state.sessions(after), size, PAGE_BYTES_MAX);
        let page = v1::ListSessionsResponse {
            sessions,
            more,
            at: Some(wire::read_point_to_wire(
                state.index(),
                state.summary().time,
                age,
            )),
        };
        Ok(Page::new(room, page))
    }
}

/// As many sessions as a page may have, and whether there are more.
fn sessions_page(
    views: impl Iterator<Item = SessionView>,
    size: usize,
    bytes_max: usize,
) -> (Vec<v1::Session>, bool) {
    let mut sessions: Vec<v1::Session> = Vec::new();
    let mut bytes = 0;
    for view in views {
        let session = wire::session_to_wire(&view);
        bytes += session.encoded_len();
        let full = sessions.len() >= size || bytes > bytes_max;
        if full && !sessions.is_empty() {
            return (sessions, true);
        }
        sessions.push(session);
    }
    (sessions, false)
}

#[cfg(test)]
mod tests {
    use ringfence_core::{Identity, Millis};

    use super::*;

    fn views(count: u64) -> impl Iterator<Item = SessionView> {
        (1..=count).map(|n| SessionView {
            session: SessionId::new(n).unwrap(),
            identity: Identity::parse(&"i".repeat(255)).unwrap(),
            ttl: Millis(1_000),
            remaining: Millis(1_000),
            leases: Vec::new(),
            waits: 0,
            pod: None,
        })
    }

    #[test]
    fn a_page_of_sessions_ends_at_its_size_and_at_its_bytes() {
        let (page, more) = sessions_page(views(5), 3, usize::MAX);
        assert_eq!((page.len(), more), (3, true));
        let (page, more) = sessions_page(views(5), 5, usize::MAX);
        assert_eq!((page.len(), more), (5, false));
        let (page, more) = sessions_page(views(5), 5, 600);
        assert_eq!((page.len(), more), (2, true));
        let (page, more) = sessions_page(views(2), 5, 1);
        assert_eq!(
            (page.len(), more),
            (1, true),
            "a page is never empty before the end"
        );
    }
}
