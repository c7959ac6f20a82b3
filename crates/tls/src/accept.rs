//! The server's side of a handshake.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::error::TlsError;
use crate::explain::{self, Refusal};
use crate::material::ServerTls;
use crate::rarely::Rarely;
use crate::socket::Socket;
use crate::turned_away::{self, begins_tls};
use crate::watched::Watched;
use crate::{HTTP1, HTTP2};

/// How many first bytes tell HTTP/2 from anything else.
const FIRST_BYTES: usize = 4;

/// Makes the server's side of handshakes.
#[derive(Clone)]
pub struct Acceptor {
    config: Arc<Watched<ServerConfig>>,
    admits_peers_alone: bool,
    refusals: Arc<Mutex<BTreeMap<Refusal, Rarely>>>,
}

impl Acceptor {
    /// Reads the files once, so that what is wrong with them is reported at once.
    ///
    /// # Errors
    /// [`TlsError`] names the file, what is wrong with it, and what is expected.
    pub fn new(tls: ServerTls) -> Result<Self, TlsError> {
        Self::of(tls, HTTP2)
    }

    /// The same for a port that speaks HTTP/1.1, as those who call webhooks do.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn http1(tls: ServerTls) -> Result<Self, TlsError> {
        Self::of(tls, HTTP1)
    }

    fn of(tls: ServerTls, protocol: &'static [u8]) -> Result<Self, TlsError> {
        let admits_peers_alone = tls.admits_peers_alone();
        let config = Watched::new(tls.sources(), move || tls.config(protocol))?;
        Ok(Self {
            config: Arc::new(config),
            admits_peers_alone,
            refusals: Arc::default(),
        })
    }

    /// Whether to log a refusal of this kind, and how many were left out since the last one.
    fn say(&self, kind: Refusal) -> Option<u64> {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.entry(kind).or_default().say()
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
        if !begins_tls(&first[..bytes]) {
            if let Some(unsaid) = self.say(Refusal::Plain) {
                tracing::info!(%from, unsaid, "rejected: it came without TLS");
            }
            turned_away::plain(stream, &first[..bytes]).await;
            return None;
        }
        let acceptor = TlsAcceptor::from(self.config.current());
        match acceptor.accept(stream).into_fallible().await {
            Ok(stream) => Some(Socket::Tls(Box::new(stream))),
            Err((error, stream)) => {
                if let Some(unsaid) = self.say(explain::kind(&error)) {
                    tracing::info!(%from, why = explain::to_server(&error), unsaid, "rejected");
                }
                turned_away::linger(stream).await;
                None
            }
        }
    }
}
