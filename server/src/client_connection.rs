//! A connection of a client, with its account.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ringfence_services::{Account, Client, Pool};
use ringfence_tls::Connection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tonic::transport::server::Connected;

/// A connection at the client port.
pub(crate) struct ClientConnection {
    connection: Connection,
    client: Client,
    /// `None` once it has to be closed.
    closing: Option<oneshot::Receiver<()>>,
}

impl ClientConnection {
    pub(crate) fn new(connection: Connection, pool: &Arc<Pool>) -> Self {
        let account = Account::new(Arc::clone(pool));
        Self {
            connection,
            closing: Some(account.closing()),
            client: Client::new(account),
        }
    }
}

impl Connected for ClientConnection {
    type ConnectInfo = Client;

    fn connect_info(&self) -> Client {
        self.client.clone()
    }
}

impl AsyncRead for ClientConnection {
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

impl AsyncWrite for ClientConnection {
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
