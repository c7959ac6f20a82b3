//! The frames of a connection's stream.

use std::time::Duration;

use ringfence_core::{Command, FencingToken, LeaseName};

use super::{
    KeepAlive, acquire_from_wire, cancel_from_wire, check_from_wire, close_from_wire,
    get_from_wire, keep_alive_from_wire, open_from_wire, release_from_wire, transfer_from_wire,
};
use crate::Refusal;
use crate::v1::{self, client_frame, server_frame};

/// The most bytes of one message of a stream.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// The most frames of one message of a stream.
pub const MESSAGE_FRAMES_MAX: usize = 4_096;

/// What a client's frame asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A command to propose.
    Command(Command),
    /// Keep-alives.
    KeepAlive {
        /// The message's own number, to be returned in the answer.
        id: u64,
        /// What to keep alive.
        keep_alive: KeepAlive,
    },
    /// One lease.
    Get {
        /// Its name.
        name: LeaseName,
        /// How old the answer may be; `None` asks for a linearizable read.
        max_staleness: Option<Duration>,
    },
    /// What a token is worth.
    Check {
        /// The lease.
        name: LeaseName,
        /// The token.
        token: FencingToken,
        /// How old the answer may be; `None` asks for a linearizable read.
        max_staleness: Option<Duration>,
    },
}

/// What a frame asks for.
///
/// # Errors
/// A refusal to answer the frame with: its body is missing, unknown or malformed.
pub fn frame_from_wire(body: Option<client_frame::Body>) -> Result<Asked, Refusal> {
    use client_frame::Body;
    let Some(body) = body else {
        return Err(Refusal::missing(
            "body",
            "one of the requests that this version knows",
        ));
    };
    let command = match body {
        Body::Open(open) => Command::Open(open_from_wire(open)?),
        Body::KeepAlive(request) => {
            let id = request.id;
            return Ok(Asked::KeepAlive {
                id,
                keep_alive: keep_alive_from_wire(request)?,
            });
        }
        Body::Close(close) => close_from_wire(close)?,
        Body::Acquire(acquire) => acquire_from_wire(acquire)?,
        Body::Cancel(cancel) => Command::Request(cancel_from_wire(cancel)?),
        Body::Release(release) => Command::Request(release_from_wire(release)?),
        Body::Transfer(transfer) => Command::Request(transfer_from_wire(transfer)?),
        Body::Get(get) => {
            let (name, max_staleness) = get_from_wire(get)?;
            return Ok(Asked::Get {
                name,
                max_staleness,
            });
        }
        Body::Check(check) => {
            let (name, token, max_staleness) = check_from_wire(check)?;
            return Ok(Asked::Check {
                name,
                token,
                max_staleness,
            });
        }
    };
    Ok(Asked::Command(command))
}

/// The frame that refuses a request.
#[must_use]
pub fn refusal_frame(id: u64, refusal: Refusal) -> v1::ServerFrame {
    v1::ServerFrame {
        id,
        body: Some(server_frame::Body::Refusal(refusal.into())),
    }
}
