//! A connection of a caller: which protocol it speaks, and how long it may take for what.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout};

use crate::Limits;
use crate::clock::now;
use crate::crowd::{Activity, Count};

/// The first bytes of a connection of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long the end of a connection may take that is asked to end.
const CLOSE_MAX: Duration = Duration::from_secs(1);
/// Bytes of bodies that a stream of HTTP/2, and a connection, may have sent ahead.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// Bytes of an answer that wait for the caller of a stream of HTTP/2.
const SEND_BYTES_MAX: usize = 64 << 10;

/// What a connection may take.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) limits: Limits,
    /// No request takes longer. A connection with one that began before, and none since, is closed.
    pub(crate) longest: Duration,
}

/// Serves a connection until it ends or has to.
pub(crate) async fn serve<A, F, B>(
    mut stream: TcpStream,
    terms: Terms,
    activity: Activity,
    mut stopping: watch::Receiver<bool>,
    answer: A,
) where
    A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let limits = terms.limits;
    let begun = tokio::select! {
        begun = timeout(limits.head_within, begin(&mut stream)) => begun,
        _ = stopping.wait_for(|stops| *stops) => return,
    };
    let Ok(Ok((is_http2, first))) = begun else {
        return;
    };
    let counting = activity.clone();
    let service = service_fn(move |request| {
        let counted = counting.begin();
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await.map(|body| Counted { body, counted })) }
    });
    let io = TokioIo::new(Begun { first, stream });
    if is_http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BYTES_MAX)
            .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX));
        watch_over(
            builder.serve_connection(io, service),
            terms,
            activity,
            stopping,
        )
        .await;
    } else {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_within)
            .max_buf_size(limits.head_bytes);
        watch_over(
            builder.serve_connection(io, service),
            terms,
            activity,
            stopping,
        )
        .await;
    }
}

/// Reads until it is clear whether this is HTTP/2.
async fn begin(stream: &mut TcpStream) -> io::Result<(bool, BytesMut)> {
    let mut first = BytesMut::with_capacity(PREFACE.len());
    loop {
        if first.len() >= PREFACE.len() || !PREFACE.starts_with(&first) {
            return Ok((first.starts_with(PREFACE), first));
        }
        if stream.read_buf(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Ends a connection that has no request, or the same ones, for too long.
async fn watch_over<C: GracefulConnection>(
    connection: C,
    terms: Terms,
    activity: Activity,
    mut stopping: watch::Receiver<bool>,
) {
    let mut connection = pin!(connection);
    let mut is_asked = false;
    let mut end = None;
    loop {
        let look = end.unwrap_or_else(|| activity.due(terms.longest, terms.limits.idle));
        tokio::select! {
            _ = connection.as_mut() => return,
            () = sleep_until(look) => {
                if end.is_some() || activity.due(terms.longest, terms.limits.idle) <= now() {
                    if end.is_some() || activity.is_busy() {
                        return;
                    }
                    connection.as_mut().graceful_shutdown();
                    end = Some(now() + CLOSE_MAX);
                }
            }
            _ = stopping.wait_for(|stops| *stops), if !is_asked => {
                is_asked = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

pin_project! {
    /// The body of an answer, while which its request counts.
    struct Counted<B> {
        #[pin]
        body: B,
        counted: Count,
    }
}

impl<B: Body> Body for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream whose first bytes were read before.
struct Begun {
    first: BytesMut,
    stream: TcpStream,
}

impl AsyncRead for Begun {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, to);
        }
        let count = self.first.len().min(to.remaining());
        to.put_slice(&self.first[..count]);
        self.first.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Begun {
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

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}
