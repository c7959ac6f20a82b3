//! Connections to the service. Each has one request at a time, so to sever it is to sever that request.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper::ext::on_informational;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::Upstream;
use crate::clock::now;
use crate::failure::with_sources;
use crate::severable::Severable;
use crate::upload::Upload;

/// How long a connection to the service may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a connection may be without a request. Services close theirs after five seconds and more: one
/// that is closed at the moment of a request would make the outcome of that unknown.
const IDLE_MAX: Duration = Duration::from_secs(3);
/// How many may be without a request.
const IDLE_COUNT_MAX: usize = 128;
/// How many bytes of the head of an answer, and of what is read ahead.
const BUFFER_BYTES_MAX: usize = 128 << 10;

/// How many answers `1xx` may come before the answer. A service that sends them without end has none.
const INFORMATIONAL_MAX: usize = 16;

/// The connections without a request.
pub(crate) struct Pool {
    address: String,
    idle: Mutex<Vec<(Instant, Connection)>>,
}

/// A connection to the service. Dropped, it is severed.
pub(crate) struct Connection {
    sender: http1::SendRequest<Upload>,
    serving: Option<JoinHandle<Result<(), hyper::Error>>>,
    /// Set, nothing more of it is read.
    is_severed: Arc<AtomicBool>,
    /// Whether it has had a request before.
    pub(crate) is_used: bool,
}

impl Pool {
    pub(crate) fn new(upstream: &Upstream) -> Self {
        Self {
            address: upstream.address(),
            idle: Mutex::default(),
        }
    }

    /// One that is open, as far as is known.
    pub(crate) async fn take(&self) -> io::Result<Connection> {
        let now = now();
        let found = {
            let mut idle = self.idle.lock();
            idle.retain(|(since, connection)| {
                now < *since + IDLE_MAX && connection.sender.is_ready()
            });
            idle.pop()
        };
        match found {
            Some((_, connection)) => Ok(connection),
            None => self.connect().await,
        }
    }

    /// A new one.
    pub(crate) async fn connect(&self) -> io::Result<Connection> {
        let connecting = timeout(CONNECT_MAX, TcpStream::connect(&self.address));
        let stream = connecting.await??;
        stream.set_nodelay(true)?;
        // What was not sent when a connection is severed, or this process killed, is not sent any more.
        stream.set_zero_linger()?;
        let is_severed = Arc::new(AtomicBool::new(false));
        let made = http1::Builder::new()
            .max_buf_size(BUFFER_BYTES_MAX)
            .handshake(TokioIo::new(Severable {
                stream,
                is_severed: Arc::clone(&is_severed),
            }))
            .await;
        let (sender, serving) = made.map_err(io::Error::other)?;
        Ok(Connection {
            sender,
            serving: Some(tokio::spawn(serving)),
            is_severed,
            is_used: false,
        })
    }

    /// Takes back one whose request is over.
    pub(crate) fn give(&self, mut connection: Connection) {
        connection.is_used = true;
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_COUNT_MAX {
            idle.push((now(), connection));
        }
    }

    /// Closes those that have had no request for long.
    pub(crate) fn tidy(&self) {
        let now = now();
        let mut idle = self.idle.lock();
        idle.retain(|(since, _)| now < *since + IDLE_MAX);
    }
}

impl Connection {
    /// Sends a request. The error has it again if nothing of it was sent.
    pub(crate) fn send(
        &mut self,
        mut request: Request<Upload>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Upload>>>> + use<>
    {
        let (is_severed, count) = (Arc::clone(&self.is_severed), AtomicUsize::new(0));
        on_informational(&mut request, move |_| {
            if count.fetch_add(1, Ordering::Relaxed) >= INFORMATIONAL_MAX {
                is_severed.store(true, Ordering::Relaxed);
            }
        });
        self.sender.try_send_request(request)
    }

    /// Waits, behind the end of an answer, until all that was handed over is written; true if it can have
    /// another request.
    pub(crate) async fn flushed(&mut self) -> Result<bool, String> {
        match self.sender.ready().await {
            Ok(()) => Ok(true),
            Err(_) => self.closed().await.map(|()| false),
        }
    }

    /// Waits until it has ended.
    pub(crate) async fn closed(&mut self) -> Result<(), String> {
        let Some(serving) = &mut self.serving else {
            return Err("it was severed".to_owned());
        };
        let ended = serving.await;
        self.serving = None;
        match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(with_sources(&error)),
            Err(error) => Err(with_sources(&error)),
        }
    }

    /// Severs it, and returns once nothing more goes to the service.
    pub(crate) async fn sever(mut self) {
        self.is_severed.store(true, Ordering::Relaxed);
        if let Some(serving) = self.serving.take() {
            serving.abort();
            serving.await.ok();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}
