//! The connections of clients and nodes: ports with limits, and TLS, both ends of a handshake, with
//! certificates from files that may change while a process runs.
//!
//! ```text
//!   Connector ── TCP, handshake ──> Port ──> Connection ──> a gRPC server
//!       ▲                            ▲
//!   ClientTls                    Acceptor, ServerTls      files, read again when they change
//! ```
//!
//! It stands below gRPC, so that a connection without TLS is what it would be without this crate,
//! and a new connection can take a new certificate. Nothing is trusted but what is named: the
//! machine's own list of authorities is not asked, since the certificates of a cluster come from
//! its operator. A refusal names what was missing and where it is given.
//!
//! While a cluster that spoke without TLS gets it, node by node, a port of peers may take both
//! ([`ServerTls::admit_plain`]), and a node that connects may do without TLS where the other side
//! proves to speak none ([`ClientTls::fall_back_to_plain`]). That protects nothing, and is meant to
//! last for two rounds of restarts.
//!
//! TLS 1.3 and 1.2 are spoken. Sessions are not resumed: connections last, and a resumed one would
//! not look at the certificate again.

mod accept;
mod beginning;
mod connect;
mod connection;
mod dialed;
mod error;
mod explain;
mod first_bytes;
mod limits;
mod material;
mod peer_name;
mod pem;
mod places;
mod port;
mod rarely;
mod refusals;
#[cfg(feature = "cluster-secret")]
mod secret;
#[cfg(feature = "cluster-secret")]
mod secret_file;
mod socket;
mod turned_away;
mod watched;

pub use accept::Acceptor;
pub use connect::Connector;
pub use connection::Connection;
pub use dialed::Dialed;
pub use error::{Part, TlsError};
pub use explain::{certificate_refused, says_expired};
pub use limits::{
    FIRST_BYTES_MAX, HANDSHAKE_MAX, HTTP1_FIRST_BYTES, HTTP2_FIRST_BYTES, PortLimits,
    WRITE_STALL_MAX,
};
pub use material::{ClientTls, ServerTls};
pub use peer_name::{PEER_NAMES_MAX, PeerName};
pub use pem::Pem;
pub use places::{PortFigures, WhenFull};
pub use port::{Incoming, Port};
pub use rarely::{Rarely, RarelyEach};
#[cfg(feature = "cluster-secret")]
pub use secret::{CLUSTER_SECRETS_MAX, ClusterSecret, NODE_NAME};
#[cfg(feature = "cluster-secret")]
pub use secret_file::{CLUSTER_SECRET_BYTES_MIN, CLUSTER_SECRET_FILE_BYTES_MAX};

/// What gRPC is called when a handshake agrees on a protocol.
const HTTP2: &[u8] = b"h2";

/// What HTTP/1.1 is called there.
const HTTP1: &[u8] = b"http/1.1";
