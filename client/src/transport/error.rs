//! What can go wrong with a connection or a call. Three things are kept apart everywhere: *refused*
//! (the cluster said no), *unavailable* (it was not done), *unknown* (it may have been done).

use std::io;

use crate::transport::refusal::Refusal;

/// How a request failed that was sent to the cluster.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The cluster refused it, whichever try asked; nothing was done.
    #[error("refused: {}", .0.message)]
    Refused(Box<Refusal>),
    /// No try of it was carried out before the deadline, nor will be; it was not done.
    #[error("the cluster is unavailable: {why}")]
    Unavailable {
        /// What was tried last.
        why: String,
    },
    /// The deadline passed while the outcome was open: it may have been done, and may still be.
    #[error("the outcome is unknown: {why}")]
    Unknown {
        /// Why it may have been done.
        why: String,
    },
}

impl CallError {
    /// The client's thread has ended in the middle of the call.
    pub(crate) fn stopped() -> Self {
        let why = "the client has stopped".into();
        Self::Unknown { why }
    }

    /// The reply is of another kind than the request.
    pub(crate) fn unexpected_reply() -> Self {
        let why = "the server's reply does not fit the request".into();
        Self::Unknown { why }
    }
}

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Not a single endpoint was given.
    #[error("no endpoint was given; name at least one, for example 127.0.0.1:7420")]
    NoEndpoints,
    /// An endpoint is no address.
    #[error(
        "endpoint {offered:?}: {fault}; expected HOST:PORT, http://HOST:PORT, \
         https://HOST:PORT or unix:/PATH"
    )]
    InvalidEndpoint {
        /// The text that was given.
        offered: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// What was given for TLS cannot be used.
    #[error("TLS: {why}")]
    Tls {
        /// What was given, what is wrong with it, and what is expected.
        why: String,
    },
    /// The token to show cannot be used.
    #[error("token: {why}")]
    Token {
        /// What is wrong with it, and what is expected; never the token itself.
        why: String,
    },
    /// The cluster does not take what this client shows for a proof of who it is, or has banned it:
    /// each endpoint has said so several times, in the TLS handshake too. It is reported at once, before
    /// the connect deadline.
    #[error("refused: {}", .0.message)]
    Refused(Box<Refusal>),
    /// No endpoint answered with a greeting before the connect deadline.
    #[error("no endpoint answered: {why}")]
    Unreachable {
        /// What was tried, and what came of it.
        why: String,
    },
    /// The client's own thread could not be started.
    #[error("start the client's thread")]
    Thread(#[source] io::Error),
}
