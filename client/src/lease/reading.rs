//! Reading leases: one of them, all as they change, and what a token is worth.

use ringfence_core::{FencingToken, LeaseName, Verdict};
use ringfence_proto::v1::{CheckRequest, GetRequest, client_frame, server_frame};
use ringfence_proto::wire::verdict_from_wire;

use crate::session::client::Client;
use crate::transport::calls::ReplyMode;
use crate::transport::error::CallError;
use crate::transport::refusal::Reason;
use crate::watch::Watch;
use crate::watch::floors::Floors;
use crate::watch::info::LeaseInfo;
use crate::watch::position::Position;

impl Client {
    /// A lease as the cluster sees it: the newest state, read through the leader. `None` if it was
    /// never granted, or is idle and forgotten. It costs one request, and writes nothing.
    ///
    /// # Errors
    /// [`CallError`] if it cannot be read within the request timeout.
    pub async fn look_up(&self, name: &LeaseName) -> Result<Option<LeaseInfo>, CallError> {
        let ask = GetRequest {
            name: name.to_string(),
            read: None,
        };
        let lease = match self.ask(client_frame::Body::Get(ask)).await {
            Ok(server_frame::Body::Get(reply)) => reply.lease,
            Ok(_) => return Err(nonsense("it answers no Get")),
            Err(CallError::Refused(refusal)) if refusal.reason == Reason::NotFound => None,
            Err(error) => return Err(error),
        };
        let lease = lease.map(LeaseInfo::from_wire).transpose();
        lease.map_err(|fault| nonsense(&fault.to_string()))
    }

    /// What a token is worth at the cluster at this instant. It is advice: by the time the answer is
    /// here it may be worth less. What keeps a stale writer out is a guard in the store that is
    /// written to.
    ///
    /// # Errors
    /// [`CallError`] if it cannot be read within the request timeout.
    pub async fn check(&self, name: &LeaseName, token: FencingToken) -> Result<Verdict, CallError> {
        let ask = CheckRequest {
            name: name.to_string(),
            token: token.get(),
            read: None,
        };
        match self.ask(client_frame::Body::Check(ask)).await? {
            server_frame::Body::Check(reply) => {
                verdict_from_wire(&reply).map_err(|fault| nonsense(&fault.to_string()))
            }
            _ => Err(nonsense("it answers no Check")),
        }
    }

    /// Watches the leases whose names begin with `prefix` (all of them if it is empty), from the
    /// present state on.
    pub fn watch(&self, prefix: impl Into<String>) -> Watch {
        Watch::begin(
            &self.inner.transport,
            &self.keep_running,
            prefix.into(),
            None,
        )
    }

    /// Watches on behind a position that an earlier watch reached, also of another process.
    pub fn watch_from(&self, prefix: impl Into<String>, position: Position) -> Watch {
        Watch::begin(
            &self.inner.transport,
            &self.keep_running,
            prefix.into(),
            Some(position),
        )
    }

    /// Follows the floors of the names that begin with `prefix`; all of them if it is empty.
    pub fn watch_floors(&self, prefix: impl Into<String>) -> Floors {
        Floors::begin(&self.inner.transport, &self.keep_running, prefix.into())
    }

    async fn ask(&self, body: client_frame::Body) -> Result<server_frame::Body, CallError> {
        let transport = &self.inner.transport;
        let answer = transport.call(body, ReplyMode::Prompt, transport.deadline());
        Ok(answer.await?.body)
    }
}

fn nonsense(fault: &str) -> CallError {
    CallError::Unknown {
        why: format!("the server's reply makes no sense: {fault}"),
    }
}
