//! Telling a caller that did not come with TLS, in words that it understands.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What is said.
const WHY: &str = "this port speaks TLS: use https:// and name the CA that signed its certificate";
/// How long the other side may take to hear it.
const HEAR_MAX: Duration = Duration::from_secs(1);
/// The most bytes that are read from a client that is not listened to.
const DRAIN_BYTES_MAX: u64 = 64 << 10;

/// The first byte of every TLS connection: a handshake record.
const HANDSHAKE: u8 = 22;
/// The first bytes of HTTP/2 without TLS.
const HTTP2_PREFACE: &[u8] = b"PRI ";
/// The frame in which an HTTP/2 server says its settings, all as usual.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
/// HTTP/2's code for a connection that is not secure enough.
const INADEQUATE_SECURITY: u8 = 12;

/// Whether these first bytes begin a handshake.
pub(crate) fn begins_tls(first: &[u8]) -> bool {
    first.first() == Some(&HANDSHAKE)
}

/// Whether these first bytes, of which there may be one, begin HTTP/2 without TLS.
pub(crate) fn begins_http2(first: &[u8]) -> bool {
    HTTP2_PREFACE.starts_with(first)
}

/// Says that TLS is spoken here, to gRPC and to HTTP/1, and ends the connection.
pub(crate) async fn plain(mut stream: TcpStream, first: &[u8]) {
    let words = match begins_http2(first) {
        true => http2_goodbye(),
        false => format!(
            "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{WHY}\n",
            WHY.len() + 1
        )
        .into_bytes(),
    };
    let said = timeout(HEAR_MAX, stream.write_all(&words)).await;
    if let Ok(Ok(())) = said {
        linger(stream).await;
    }
}

fn http2_goodbye() -> Vec<u8> {
    let length = u8::try_from(8 + WHY.len()).expect("a sentence");
    let mut bytes = SETTINGS.to_vec();
    // GOAWAY on the connection itself: no stream was looked at.
    bytes.extend([0, 0, length, 7, 0, 0, 0, 0, 0]);
    bytes.extend([0, 0, 0, 0, 0, 0, 0, INADEQUATE_SECURITY]);
    bytes.extend(WHY.as_bytes());
    bytes
}

/// Waits until the other side has closed too: closing with bytes unread would reset the connection,
/// and take away what it has not heard yet.
pub(crate) async fn linger(mut stream: TcpStream) {
    let closing = async {
        stream.shutdown().await.ok();
        let mut rest = stream.take(DRAIN_BYTES_MAX);
        let mut buffer = [0; 4096];
        while rest.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {}
    };
    timeout(HEAR_MAX, closing).await.ok();
}
