//! What the other side of a handshake said first: whether it speaks TLS at all.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The head of a frame of HTTP/2, in bytes.
const FRAME_HEAD: usize = 9;
/// The kind of the frame that an HTTP/2 server begins with.
const SETTINGS: u8 = 4;

/// A TCP connection that notes what it reads first.
pub(crate) struct FirstBytes {
    stream: TcpStream,
    first: [u8; FRAME_HEAD],
    heard: usize,
}

impl FirstBytes {
    pub(crate) fn of(stream: TcpStream) -> Self {
        Self {
            stream,
            first: [0; FRAME_HEAD],
            heard: 0,
        }
    }

    /// Whether a handshake that failed so proves that the other side speaks no TLS: it began
    /// HTTP/2 on its own, or ended the connection and had said nothing. A server that speaks TLS
    /// says an alert before it ends a handshake, and that proves nothing.
    pub(crate) fn prove_plain(&self, error: &io::Error) -> bool {
        match self.heard {
            0 => is_end(error),
            heard => begins_settings(&self.first[..heard]),
        }
    }
}

/// Whether the other side ended the connection.
fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

/// Whether these bytes begin the settings of an HTTP/2 server, of at most 255 bytes. No record of
/// TLS begins with a zero.
fn begins_settings(heard: &[u8]) -> bool {
    let expected = [
        Some(0),
        Some(0),
        None,
        Some(SETTINGS),
        Some(0),
        Some(0),
        Some(0),
        Some(0),
        Some(0),
    ];
    let mut pairs = heard.iter().zip(expected);
    pairs.all(|(heard, expected)| expected.is_none_or(|expected| *heard == expected))
}

impl AsyncRead for FirstBytes {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if self.heard < FRAME_HEAD {
            let this = &mut *self;
            let new = &buffer.filled()[before..];
            let room = &mut this.first[this.heard..];
            let noted = room.len().min(new.len());
            room[..noted].copy_from_slice(&new[..noted]);
            this.heard += noted;
        }
        read
    }
}

impl AsyncWrite for FirstBytes {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_http2_are_no_record_of_tls() {
        let settings = [0, 0, 24, 4, 0, 0, 0, 0, 0];
        (1..=9).for_each(|heard| assert!(begins_settings(&settings[..heard]), "{heard}"));
        // An alert, a handshake, a page of HTTP/1.
        for other in [&[21, 3, 3, 0, 2], &[22, 3, 3, 0, 80], b"HTTP/"] {
            assert!(!begins_settings(other), "{other:?}");
        }
        assert!(!begins_settings(&[0, 0, 24, 6, 0, 0, 0, 0, 0]));
    }
}
