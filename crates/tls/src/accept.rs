//! The server's side: connections are accepted one by one, handshakes are made side by side.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::error::TlsError;
use crate::explain;
use crate::material::ServerTls;
use crate::socket::Socket;
use crate::turned_away::{self, begins_tls};
use crate::watched::Watched;
use crate::{HTTP1, HTTP2};

/// How long a handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// The most handshakes under way at once; who comes then waits to be accepted.
const HANDSHAKES_MAX: usize = 1_024;
/// Connections that are through and not served yet.
const READY_MAX: usize = 64;
/// A pause after an accept that failed: the process may have too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How many first bytes tell HTTP/2 from anything else.
const FIRST_BYTES: usize = 4;

/// Makes the server's side of handshakes.
#[derive(Clone)]
pub struct Acceptor {
    config: Arc<Watched<ServerConfig>>,
}

impl Acceptor {
    /// Reads the files once, so that what is wrong with them is told at once.
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
        let config = Watched::new(tls.sources(), move || tls.config(protocol))?;
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// The connections of a port that have made their handshake. Dropping them stops listening.
    #[must_use]
    pub fn incoming(self, listener: TcpListener) -> Incoming {
        let (ready, incoming) = mpsc::channel(READY_MAX);
        drop(tokio::spawn(self.accept_all(listener, ready)));
        Incoming(incoming)
    }

    async fn accept_all(self, listener: TcpListener, ready: mpsc::Sender<Socket>) {
        let places = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        loop {
            let place = Arc::clone(&places).acquire_owned().await;
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = ready.closed() => return,
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (acceptor, ready) = (self.clone(), ready.clone());
            tokio::spawn(async move {
                let shaken = timeout(HANDSHAKE_MAX, acceptor.shake(stream, from)).await;
                drop(place);
                if let Ok(Some(socket)) = shaken {
                    // Nobody serves any more.
                    ready.send(socket).await.ok();
                }
            });
        }
    }

    /// One handshake; `None` if it failed, which the other side has been told.
    async fn shake(&self, stream: TcpStream, from: SocketAddr) -> Option<Socket> {
        stream.set_nodelay(true).ok()?;
        let mut first = [0; FIRST_BYTES];
        let bytes = stream
            .peek(&mut first)
            .await
            .ok()
            .filter(|bytes| *bytes > 0)?;
        if !begins_tls(&first[..bytes]) {
            tracing::info!(%from, "turned away: it came without TLS");
            turned_away::plain(stream, &first[..bytes]).await;
            return None;
        }
        let acceptor = TlsAcceptor::from(self.config.current());
        match acceptor.accept(stream).into_fallible().await {
            Ok(stream) => Some(Socket::Tls(Box::new(stream))),
            Err((error, stream)) => {
                tracing::info!(%from, why = explain::to_server(&error), "turned away");
                turned_away::linger(stream).await;
                None
            }
        }
    }
}

/// See [`Acceptor::incoming`].
pub struct Incoming(mpsc::Receiver<Socket>);

impl Stream for Incoming {
    type Item = io::Result<Socket>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|socket| socket.map(Ok))
    }
}
