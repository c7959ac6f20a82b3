//! The server's side of a handshake.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::error::TlsError;
use crate::explain::{self, Refusal};
use crate::material::ServerTls;
use crate::rarely::Rarely;
use crate::socket::Socket;
use crate::turned_away::{self, begins_http2, begins_tls};
use crate::watched::Watched;
use crate::{HTTP1, HTTP2};

/// How many first bytes tell HTTP/2 from anything else.
const FIRST_BYTES: usize = 4;
/// The most kinds of log lines, by address and reason, that are paced apart. Beyond it all further
/// addresses share a line for each reason, so that no number of addresses is a flood.
const LINES_MAX: usize = 64;

/// Log lines about callers, by address, or for all that found no place here.
type Lines = BTreeMap<(Option<IpAddr>, Refusal), Rarely>;

/// Makes the server's side of handshakes.
#[derive(Clone)]
pub struct Acceptor {
    config: Arc<Watched<ServerConfig>>,
    admits_peers_alone: bool,
    admits_plain: bool,
    lines: Arc<Mutex<Lines>>,
}

impl Acceptor {
    /// Reads the files once, so that what is wrong with them is reported at once.
    ///
    /// # Errors
    /// [`TlsError`] names the file, what is wrong with it, and what is expected.
    pub fn new(tls: ServerTls) -> Result<Self, TlsError> {
        Self::of(tls, &[HTTP2])
    }

    /// The same for a port that speaks HTTP/1.1, as those who call webhooks do.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn http1(tls: ServerTls) -> Result<Self, TlsError> {
        Self::of(tls, &[HTTP1])
    }

    /// The same for a port that speaks both: HTTP/2 with a client that offers it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn http(tls: ServerTls) -> Result<Self, TlsError> {
        Self::of(tls, &[HTTP2, HTTP1])
    }

    fn of(tls: ServerTls, protocols: &'static [&'static [u8]]) -> Result<Self, TlsError> {
        let (admits_peers_alone, admits_plain) = (tls.admits_peers_alone(), tls.admit_plain);
        let config = Watched::new(tls.sources(), move || tls.config(protocols))?;
        Ok(Self {
            config: Arc::new(config),
            admits_peers_alone,
            admits_plain,
            lines: Arc::default(),
        })
    }

    /// Whether to log a refusal of this kind, and how many were left out since the last one.
    fn say(&self, from: SocketAddr, kind: Refusal) -> Option<u64> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut line = (Some(from.ip().to_canonical()), kind);
        if lines.len() >= LINES_MAX && !lines.contains_key(&line) {
            line.0 = None;
        }
        lines.entry(line).or_default().say()
    }

    /// Whether only those pass who show a certificate with a name of peers; see
    /// [`ServerTls::peer_names`].
    #[must_use]
    pub fn admits_peers_alone(&self) -> bool {
        self.admits_peers_alone
    }

    /// One handshake; `None` if it failed, which the other side has been notified.
    pub(crate) async fn shake(&self, stream: TcpStream, from: SocketAddr) -> Option<Socket> {
        stream.set_nodelay(true).ok()?;
        let mut first = [0; FIRST_BYTES];
        let bytes = stream
            .peek(&mut first)
            .await
            .ok()
            .filter(|bytes| *bytes > 0)?;
        if self.admits_plain && begins_http2(&first[..bytes]) {
            if let Some(unsaid) = self.say(from, Refusal::AdmittedPlain) {
                tracing::info!(%from, unsaid, "admitted without TLS");
            }
            return Some(Socket::Plain(stream));
        }
        if !begins_tls(&first[..bytes]) {
            if let Some(unsaid) = self.say(from, Refusal::Plain) {
                tracing::info!(%from, unsaid, "rejected: it came without TLS");
            }
            turned_away::plain(stream, &first[..bytes]).await;
            return None;
        }
        let acceptor = TlsAcceptor::from(self.config.current());
        match acceptor.accept(stream).into_fallible().await {
            Ok(stream) => Some(Socket::Tls(Box::new(stream))),
            Err((error, stream)) => {
                if let Some(unsaid) = self.say(from, explain::kind(&error)) {
                    tracing::info!(%from, why = explain::to_server(&error), unsaid, "rejected");
                }
                turned_away::linger(stream).await;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringfence_testkit::certificates::Authority;

    use super::*;
    use crate::pem::Pem;

    #[test]
    fn refusals_are_logged_by_address_and_reason_and_no_flood_of_addresses_is_one_of_lines() {
        let signed = Authority::new("ours").sign(&["127.0.0.1"]);
        let text = |text: &str| Pem::Text(text.as_bytes().into());
        let acceptor = Acceptor::new(ServerTls {
            certificate: text(&signed.certificate),
            key: text(&signed.key),
            client_ca: None,
            demand_client_certificate: false,
            peer_names: Vec::new(),
            admit_plain: false,
        });
        let acceptor = acceptor.unwrap();
        let from = |n: u32| SocketAddr::from((IpAddr::from(n.to_be_bytes()), 1));
        assert_eq!(acceptor.say(from(1), Refusal::Plain), Some(0));
        assert_eq!(acceptor.say(from(1), Refusal::Plain), None);
        assert_eq!(acceptor.say(from(2), Refusal::Plain), Some(0));
        assert_eq!(acceptor.say(from(1), Refusal::NoPeer), Some(0));
        let said = (10..100_000).filter_map(|n| acceptor.say(from(n), Refusal::Plain));
        assert!(said.count() <= LINES_MAX);
        assert!(acceptor.lines.lock().unwrap().len() <= LINES_MAX + 5);
    }
}
