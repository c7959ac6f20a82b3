//! The body of a request on its way to the service.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::watch;

/// Notes when it was handed over as a whole. Trailers are not passed on: they would be judged by none.
pub(crate) struct Upload {
    body: Incoming,
    /// How many bytes are missing, if the caller has said so.
    missing: Option<u64>,
    whole: watch::Sender<bool>,
}

/// Whether a body was handed over as a whole.
#[derive(Clone)]
pub(crate) struct Whole(watch::Receiver<bool>);

impl Whole {
    pub(crate) fn is_whole(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it was. Returns false if it never will be, because the body was dropped.
    pub(crate) async fn wait(&mut self) -> bool {
        self.0.wait_for(|is_whole| *is_whole).await.is_ok()
    }
}

impl Upload {
    pub(crate) fn new(body: Incoming) -> (Self, Whole) {
        let missing = body.size_hint().exact();
        let is_empty = body.is_end_stream() || missing == Some(0);
        let (whole, waiting) = watch::channel(is_empty);
        let upload = Self {
            body,
            missing,
            whole,
        };
        (upload, Whole(waiting))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // What sends it asks no further where it knows that there is no more.
        if self.body.is_end_stream() {
            self.whole.send_replace(true);
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    let length = data.len() as u64;
                    self.missing = self.missing.map(|missing| missing.saturating_sub(length));
                    if self.missing == Some(0) || self.body.is_end_stream() {
                        self.whole.send_replace(true);
                    }
                    Poll::Ready(Some(Ok(Frame::data(data))))
                }
                // Trailers, which are the last frame.
                Err(_) => {
                    self.whole.send_replace(true);
                    Poll::Ready(None)
                }
            },
            None => {
                self.whole.send_replace(true);
                Poll::Ready(None)
            }
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
