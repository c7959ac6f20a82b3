//! Reads: first the point of the log at which the answer has to stand, then a look at the state.

use std::time::Duration;

use ringfence_core::{FencingToken, LeaseName, SessionId, StateMachine};
use ringfence_proto::{Refusal, v1, wire};

use super::Context;
use crate::metrics::Call;
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
    type Answer: Send + 'static;

    /// What the call asks for, and how old the answer may be.
    fn asked(self) -> Result<(Self::Asked, MaxStaleness), Refusal>;

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

    /// Answers one read.
    pub(super) async fn read<Q: Query>(&self, query: Q) -> Result<Q::Answer, Refusal> {
        let (asked, max_staleness) = query.asked()?;
        let age = self.ready_to_read(max_staleness).await?;
        self.look::<Q>(asked, age)
    }

    /// Answers one read from a state of this age.
    pub(super) fn look<Q: Query>(
        &self,
        asked: Q::Asked,
        age: Duration,
    ) -> Result<Q::Answer, Refusal> {
        self.node
            .read(|machine| Q::look(asked, machine, point(machine, age)))
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

impl Query for v1::ListSessionsRequest {
    const CALL: Call = Call::ListSessions;
    type Asked = (usize, Option<SessionId>);
    type Answer = v1::ListSessionsResponse;

    fn asked(self) -> Result<((usize, Option<SessionId>), MaxStaleness), Refusal> {
        let (size, after) = wire::list_sessions_from_wire(&self)?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        Ok(((size, after), wire::max_staleness_from_wire(self.read)?))
    }

    /// Sessions in the order of their numbers; each page stands at its own index.
    fn look(
        (size, after): (usize, Option<SessionId>),
        machine: &StateMachine,
        at: v1::ReadPoint,
    ) -> Result<v1::ListSessionsResponse, Refusal> {
        let mut behind = machine.sessions(after);
        let sessions = behind.by_ref().take(size);
        let sessions = sessions
            .map(|session| wire::session_to_wire(&session))
            .collect();
        let more = behind.next().is_some();
        Ok(v1::ListSessionsResponse {
            sessions,
            more,
            at: Some(at),
        })
    }
}
