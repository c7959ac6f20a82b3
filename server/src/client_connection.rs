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
use tonic::transport::server::Connected;

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
        Pin::new(&mut self.connection).poll_read(cx, buffer)
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for ClientConnection<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
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
