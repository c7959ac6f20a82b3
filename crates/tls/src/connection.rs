//! An accepted connection within the limits of its port.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::beginning::Beginning;
use crate::limits::PortLimits;
use crate::places::{CutOff, Place};

use crate::socket::Socket;

/// A connection that a [`Port`](crate::Port) accepted, after its handshake. It holds its place at
/// the port until it is dropped. A read or write fails with [`io::ErrorKind::TimedOut`] when a
/// limit of the port is passed, and with [`io::ErrorKind::ConnectionAborted`] when the connection
/// has to make room for another.
pub struct Connection {
    socket: Socket,
    place: Place,
    /// `None` once it has been cut off.
    cut_off: Option<CutOff>,
    /// Resolves when it has to break.
    end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    silence: Silence,
    stalled: Option<Pin<Box<Sleep>>>,
    write_stall_max: Duration,
}

/// How long the other side may send nothing.
enum Silence {
    /// It has yet to begin.
    First {
        beginning: Beginning,
        until: Pin<Box<Sleep>>,
        then: Option<Duration>,
    },
    /// It may be silent for so long between two reads.
    Between {
        max: Duration,
        until: Pin<Box<Sleep>>,
    },
    /// For as long as it likes: its protocol has probes of its own.
    Any,
}

impl Connection {
    pub(crate) fn new(socket: Socket, place: Place, cut_off: CutOff, limits: &PortLimits) -> Self {
        Self {
            socket,
            place,
            cut_off: Some(cut_off),
            end: None,
            silence: Silence::First {
                beginning: Beginning::new(limits.first_bytes, limits.or_short_head),
                until: Box::pin(sleep(limits.first_bytes_max)),
                then: limits.silence_max,
            },
            stalled: None,
            write_stall_max: limits.write_stall_max,
        }
    }

    /// The same connection, which breaks when `end` resolves: reads fail with
    /// [`io::ErrorKind::ConnectionAborted`].
    #[must_use]
    pub fn until(self, end: impl Future<Output = ()> + Send + 'static) -> Self {
        let end: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(end);
        Self {
            end: Some(end),
            ..self
        }
    }

    /// The certificates (DER) that the other side showed in the handshake, where they were verified;
    /// its own first. None without TLS, or if it showed none.
    #[must_use]
    pub fn certificates(&self) -> &[impl AsRef<[u8]> + use<>] {
        self.socket.certificates()
    }

    /// Whether this connection was asked to make room, or has to break.
    fn is_cut_off(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(cut) = self.cut_off.as_mut() else {
            return true;
        };
        let end = self.end.as_mut();
        if Pin::new(cut).poll(cx).is_ready()
            || end.is_some_and(|end| end.as_mut().poll(cx).is_ready())
        {
            self.cut_off = None;
        }
        self.cut_off.is_none()
    }

    fn has_read(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        match &mut self.silence {
            Silence::First {
                beginning, then, ..
            } => {
                if beginning.is_made_by(bytes) {
                    self.place.prove();
                    self.silence = match *then {
                        None => Silence::Any,
                        Some(max) => Silence::Between {
                            max,
                            until: Box::pin(sleep(max)),
                        },
                    };
                }
            }
            Silence::Between { max, until } => until.set(sleep(*max)),
            Silence::Any => {}
        }
    }

    /// Why a read that has nothing may not wait on, if it may not.
    fn silent_too_long(&mut self, cx: &mut Context<'_>) -> Option<io::Error> {
        let until = match &mut self.silence {
            Silence::First { until, .. } | Silence::Between { until, .. } => until,
            Silence::Any => return None,
        };
        until.as_mut().poll(cx).is_ready().then(|| {
            self.place.figures().count_timeout();
            io::Error::new(
                io::ErrorKind::TimedOut,
                "the other side sent nothing in time",
            )
        })
    }

    /// What a write came to; one that has waited for too long is over.
    fn written(
        &mut self,
        cx: &mut Context<'_>,
        wrote: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if wrote.is_ready() {
            self.stalled = None;
            return wrote;
        }
        let max = self.write_stall_max;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(max)));
        if stalled.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.place.figures().count_timeout();
        let why = "the other side took nothing in time";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.socket.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A connection always waits to be read, so this is enough to notice.
        if self.is_cut_off(cx) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let before = buffer.filled().len();
        match Pin::new(&mut self.socket).poll_read(cx, buffer) {
            Poll::Ready(Ok(())) => {
                self.has_read(&buffer.filled()[before..]);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => match self.silent_too_long(cx) {
                Some(error) => Poll::Ready(Err(error)),
                None => Poll::Pending,
            },
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.written(cx, wrote)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        let flushed = flushed.map_ok(|()| 0);
        self.written(cx, flushed).map_ok(|_| ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.socket).poll_shutdown(cx);
        let shut = shut.map_ok(|()| 0);
        self.written(cx, shut).map_ok(|_| ())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.socket).poll_write_vectored(cx, parts);
        self.written(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}
