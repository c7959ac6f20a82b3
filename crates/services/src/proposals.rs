//! Calls that become one log entry: how each is decoded, and what its outcome is as an answer.

use ringfence_core::{Command, Outcome};
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::{Applied, Node};

use super::acquire::opened_answer;
use crate::metrics::Call;
use crate::status::unexpected;

/// A call that becomes one log entry.
pub(super) trait Proposal: Send + 'static {
    /// Which call it is.
    const CALL: Call;
    /// What it is answered.
    type Answer: Send + 'static;

    /// The command that the call means.
    fn command(self) -> Result<Command, Refusal>;

    /// What the outcome means to the caller.
    fn answer(applied: Applied, node: &Node) -> Result<Self::Answer, Refusal>;
}

impl Proposal for v1::OpenRequest {
    const CALL: Call = Call::Open;
    type Answer = v1::OpenResponse;

    fn command(self) -> Result<Command, Refusal> {
        wire::open_command_from_wire(self)
    }

    fn answer(applied: Applied, node: &Node) -> Result<v1::OpenResponse, Refusal> {
        match applied.outcome {
            Outcome::Opened(opened) => Ok(opened_answer(&opened, applied.time, node)),
            other => Err(unexpected(&other)),
        }
    }
}

impl Proposal for v1::CloseRequest {
    const CALL: Call = Call::Close;
    type Answer = v1::CloseResponse;

    fn command(self) -> Result<Command, Refusal> {
        wire::close_from_wire(self)
    }

    fn answer(applied: Applied, _: &Node) -> Result<v1::CloseResponse, Refusal> {
        match applied.outcome {
            Outcome::Closed { cause } => Ok(wire::closed_to_wire(cause.as_ref(), applied.time)),
            other => Err(unexpected(&other)),
        }
    }
}

impl Proposal for v1::EvictRequest {
    const CALL: Call = Call::Evict;
    type Answer = v1::EvictResponse;

    fn command(self) -> Result<Command, Refusal> {
        wire::evict_from_wire(self).map(Command::Evict)
    }

    fn answer(applied: Applied, _: &Node) -> Result<v1::EvictResponse, Refusal> {
        match applied.outcome {
            Outcome::Closed { .. } => Ok(v1::EvictResponse {
                cluster_time_ms: applied.time.0,
            }),
            other => Err(unexpected(&other)),
        }
    }
}

impl Proposal for v1::CancelRequest {
    const CALL: Call = Call::Cancel;
    type Answer = v1::CancelResponse;

    fn command(self) -> Result<Command, Refusal> {
        wire::cancel_from_wire(self).map(Command::Request)
    }

    fn answer(applied: Applied, _: &Node) -> Result<v1::CancelResponse, Refusal> {
        match applied.outcome {
            Outcome::Cancelled(cancelled) => Ok(wire::cancelled_to_wire(&cancelled, applied.time)),
            other => Err(unexpected(&other)),
        }
    }
}

impl Proposal for v1::ReleaseRequest {
    const CALL: Call = Call::Release;
    type Answer = v1::ReleaseResponse;

    fn command(self) -> Result<Command, Refusal> {
        wire::release_from_wire(self).map(Command::Request)
    }

    fn answer(applied: Applied, _: &Node) -> Result<v1::ReleaseResponse, Refusal> {
        match applied.outcome {
            Outcome::Released { .. } => Ok(v1::ReleaseResponse {
                cluster_time_ms: applied.time.0,
            }),
            other => Err(unexpected(&other)),
        }
    }
}

impl Proposal for v1::TransferRequest {
    const CALL: Call = Call::Transfer;
    type Answer = v1::TransferResponse;

    fn command(self) -> Result<Command, Refusal> {
        wire::transfer_from_wire(self).map(Command::Request)
    }

    fn answer(applied: Applied, _: &Node) -> Result<v1::TransferResponse, Refusal> {
        match applied.outcome {
            Outcome::Transferred { to, token } => Ok(v1::TransferResponse {
                to_session: to.get(),
                token: token.get(),
                cluster_time_ms: applied.time.0,
            }),
            other => Err(unexpected(&other)),
        }
    }
}

impl Proposal for v1::RevokeRequest {
    const CALL: Call = Call::Revoke;
    type Answer = v1::RevokeResponse;

    fn command(self) -> Result<Command, Refusal> {
        wire::revoke_from_wire(self).map(Command::Revoke)
    }

    fn answer(applied: Applied, _: &Node) -> Result<v1::RevokeResponse, Refusal> {
        match applied.outcome {
            Outcome::Done => Ok(v1::RevokeResponse {
                cluster_time_ms: applied.time.0,
            }),
            other => Err(unexpected(&other)),
        }
    }
}

impl Proposal for v1::ConfigureRequest {
    const CALL: Call = Call::Configure;
    type Answer = v1::ConfigureResponse;

    fn command(self) -> Result<Command, Refusal> {
        wire::configure_from_wire(&self).map(Command::Configure)
    }

    fn answer(applied: Applied, _: &Node) -> Result<v1::ConfigureResponse, Refusal> {
        match applied.outcome {
            Outcome::Done => Ok(v1::ConfigureResponse {
                settings_index: applied.index,
            }),
            other => Err(unexpected(&other)),
        }
    }
}
