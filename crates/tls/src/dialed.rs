//! A connection that this side has made.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::explain;
use crate::first_bytes::FirstBytes;
use crate::refusals::Refusals;

/// A connection that a [`Connector`](crate::Connector) has made.
pub struct Dialed {
    stream: Stream,
    /// `None` as well once something was read: the other side has let this one in.
    waits_for: Option<(Arc<Refusals>, Arc<str>)>,
    heard: Option<Arc<OnceLock<String>>>,
}

/// With TLS, or without where the other side speaks none.
pub(crate) enum Stream {
    Tls(Box<TlsStream<FirstBytes>>),
    Plain(TcpStream),
}

impl Dialed {
    pub(crate) fn new(
        stream: Stream,
        refusals: Option<Arc<Refusals>>,
        to: Arc<str>,
        heard: Option<Arc<OnceLock<String>>>,
    ) -> Self {
        Self {
            stream,
            waits_for: refusals.map(|refusals| (refusals, to)),
            heard,
        }
    }

    /// Whether it has TLS.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }

    fn has_read(&mut self, bytes: usize) {
        if bytes > 0
            && let Some((refusals, to)) = self.waits_for.take()
        {
            refusals.admitted(&to);
        }
    }

    /// A server of TLS 1.3 refuses a certificate when the handshake is over for this side.
    fn failed(&mut self, error: io::Error) -> io::Error {
        let Some(explained) = explain::explained(&error) else {
            return error;
        };
        if let Some((refusals, to)) = &self.waits_for {
            refusals.refused(to, &explained.to_string());
        }
        if let Some(heard) = &self.heard
            && let Some(refusal) = explain::certificate_refused(&explained)
        {
            // The first one says it.
            drop(heard.set(refusal));
        }
        explained
    }
}

impl AsyncRead for Dialed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = match &mut self.stream {
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
        };
        match read {
            Poll::Ready(Ok(())) => {
                self.has_read(buffer.filled().len() - before);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.failed(error))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for Dialed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Tls(stream) => stream.is_write_vectored(),
            Stream::Plain(stream) => stream.is_write_vectored(),
        }
    }
}
