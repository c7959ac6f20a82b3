//! A listening port: every port of a node accepts its connections here, so that all of them have
//! the same limits, timeouts and counters.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::accept::Acceptor;
use crate::connection::Connection;
use crate::limits::{HANDSHAKE_MAX, PortLimits};
use crate::places::{CutOff, Place, Places, PortFigures};
use crate::rarely::Rarely;
use crate::socket::Socket;

/// Connections that have made their handshake and are not served yet.
const READY_MAX: usize = 64;
/// The pause after an accept that failed; it doubles from one failure to the next.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest such pause.
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// A port that listens.
pub struct Port {
    /// For the log, as `client` or `peer`.
    name: &'static str,
    listener: TcpListener,
    tls: Option<Acceptor>,
    limits: PortLimits,
    figures: Arc<PortFigures>,
}

impl Port {
    /// The port of `listener`, with TLS if `tls` is given; it counts in `figures`.
    #[must_use]
    pub fn new(
        name: &'static str,
        listener: TcpListener,
        tls: Option<Acceptor>,
        limits: PortLimits,
        figures: Arc<PortFigures>,
    ) -> Self {
        Self {
            name,
            listener,
            tls,
            limits,
            figures,
        }
    }

    /// Its connections, after their handshakes. Dropping this stops listening.
    #[must_use]
    pub fn incoming(self) -> Incoming {
        let (ready, incoming) = mpsc::channel(READY_MAX);
        drop(tokio::spawn(self.accept_all(ready)));
        Incoming(incoming)
    }

    async fn accept_all(self, ready: mpsc::Sender<Connection>) {
        let Self {
            name,
            listener,
            tls,
            limits,
            figures,
        } = self;
        let places = Places::new(limits.connections, limits.when_full, figures);
        let mut pause = ACCEPT_PAUSE_MIN;
        let (mut failures, mut refusals) = (Rarely::new(), Rarely::new());
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = ready.closed() => return,
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_of_one_connection(&error) => continue,
                Err(error) => {
                    places.figures().count_accept_error();
                    if let Some(unsaid) = failures.say() {
                        tracing::warn!(
                            port = name,
                            %error,
                            unsaid,
                            "connections cannot be accepted; if the process has too many files \
                             open, raise its limit (ulimit -n)"
                        );
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
                    continue;
                }
            };
            pause = ACCEPT_PAUSE_MIN;
            places.figures().count_accepted();
            let Some((place, cut_off)) = places.enter() else {
                if let Some(unsaid) = refusals.say() {
                    tracing::warn!(
                        port = name,
                        %from,
                        connections = limits.connections,
                        unsaid,
                        "connection refused: the port has as many connections as it may"
                    );
                }
                continue;
            };
            let (tls, ready) = (tls.clone(), ready.clone());
            tokio::spawn(async move {
                if let Some(connection) = open(stream, from, place, cut_off, tls, &limits).await {
                    // An error means that nothing serves the port any more.
                    ready.send(connection).await.ok();
                }
            });
        }
    }
}

/// Makes the handshake, if there is one to make.
async fn open(
    stream: TcpStream,
    from: std::net::SocketAddr,
    place: Place,
    mut cut_off: CutOff,
    tls: Option<Acceptor>,
    limits: &PortLimits,
) -> Option<Connection> {
    // Answers are short, and none may wait for the next.
    stream.set_nodelay(true).ok()?;
    let Some(tls) = tls else {
        return Some(Connection::new(
            Socket::Plain(stream),
            place,
            cut_off,
            limits,
        ));
    };
    let shaken = tokio::select! {
        shaken = timeout(HANDSHAKE_MAX, tls.shake(stream, from)) => shaken,
        _ = &mut cut_off => return None,
    };
    match shaken {
        Ok(socket) => Some(Connection::new(socket?, place, cut_off, limits)),
        Err(_) => {
            place.figures().count_timeout();
            None
        }
    }
}

/// Whether an accept failed for the connection it was about, and not for the port.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// See [`Port::incoming`].
pub struct Incoming(mpsc::Receiver<Connection>);

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|connection| connection.map(Ok))
    }
}
