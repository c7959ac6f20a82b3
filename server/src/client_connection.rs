//! A connection of a client, with its account and with what it shows of its caller.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ringfence_access::Peer;
use ringfence_services::{Account, Client, ConnectionPrincipals, Pool};
use ringfence_tls::Connection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

use crate::limits::{AHEAD_BYTES_MAX, AHEAD_PATIENCE};

/// What every request on a connection knows of it.
#[derive(Clone)]
pub(crate) struct ConnectionInfo {
    /// Its account.
    pub(crate) client: Client,
    /// What it shows of its caller.
    pub(crate) peer: Arc<Peer>,
    /// Whose connection it is.
    pub(crate) principals: Arc<ConnectionPrincipals>,
}

/// A connection at the client port, or at the admin socket.
pub(crate) struct ClientConnection<C = Connection> {
    connection: C,
    info: ConnectionInfo,
    /// `None` once it has to be closed.
    closing: Option<oneshot::Receiver<()>>,
    ahead: Ahead,
}

/// Bytes that the client has sent behind a request that is not answered yet, on HTTP/1.
///
/// hyper reads nothing while it has such bytes, so it does not notice that the client has gone, and a
/// request may wait for a day. So what comes then is read here, up to a limit.
#[derive(Default)]
struct Ahead {
    bytes: Vec<u8>,
    /// hyper waits for bytes itself.
    is_awaited: bool,
    /// Runs while there is no more room. Behind what is not read, a client's end is not seen: so one that
    /// fills it is closed when this ends.
    full: Option<Pin<Box<Sleep>>>,
}

impl Ahead {
    /// Reads what is there, up to the limit; an error if the client has gone.
    fn fill<C: AsyncRead + Unpin>(&mut self, from: &mut C, cx: &mut Context<'_>) -> io::Result<()> {
        while !self.is_awaited && self.bytes.len() < AHEAD_BYTES_MAX {
            let mut space = [0; 512];
            let mut buffer = ReadBuf::new(&mut space);
            match Pin::new(&mut *from).poll_read(cx, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(read) => read?,
            }
            if buffer.filled().is_empty() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            self.bytes.extend(buffer.filled());
        }
        if self.is_awaited || self.bytes.len() < AHEAD_BYTES_MAX {
            self.full = None;
            return Ok(());
        }
        let full = self
            .full
            .get_or_insert_with(|| Box::pin(sleep(AHEAD_PATIENCE)));
        match full.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }

    /// Hands out what was read.
    fn take(&mut self, into: &mut ReadBuf<'_>) {
        let count = self.bytes.len().min(into.remaining());
        into.put_slice(&self.bytes[..count]);
        self.bytes.drain(..count);
        self.full = None;
    }
}

impl<C> ClientConnection<C> {
    pub(crate) fn new(
        connection: C,
        peer: Peer,
        principals: ConnectionPrincipals,
        pool: &Arc<Pool>,
    ) -> Self {
        let account = Account::new(Arc::clone(pool));
        Self {
            connection,
            closing: Some(account.closing()),
            ahead: Ahead {
                is_awaited: true,
                ..Ahead::default()
            },
            info: ConnectionInfo {
                client: Client::new(account),
                peer: Arc::new(peer),
                principals: Arc::new(principals),
            },
        }
    }
}

impl<C> Connected for ClientConnection<C> {
    type ConnectInfo = ConnectionInfo;

    fn connect_info(&self) -> ConnectionInfo {
        self.info.clone()
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for ClientConnection<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A connection always waits to be read, so this is enough to notice.
        let closing = self.closing.as_mut();
        if closing.is_none_or(|closing| Pin::new(closing).poll(cx).is_ready()) {
            self.closing = None;
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if !self.ahead.bytes.is_empty() {
            self.ahead.take(buffer);
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut self.connection).poll_read(cx, buffer);
        self.ahead.is_awaited = read.is_pending();
        read
    }
}

impl<C: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientConnection<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.ahead.fill(&mut this.connection, cx)?;
        Pin::new(&mut this.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }
}
