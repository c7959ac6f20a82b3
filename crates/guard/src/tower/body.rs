//! The body of a response: the service's own, or a refusal.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response that has passed a [`FenceService`](super::FenceService): that of the
    /// service behind it, or the text of a refusal.
    #[derive(Debug)]
    pub struct FenceBody<B> {
        #[pin]
        inner: Option<B>,
        // Without `inner` only.
        refusal: Option<Bytes>,
    }
}

impl<B> FenceBody<B> {
    pub(super) fn of_service(body: B) -> Self {
        Self {
            inner: Some(body),
            refusal: None,
        }
    }

    pub(super) fn refusal(text: impl Into<Bytes>) -> Self {
        let text = text.into();
        Self {
            inner: None,
            refusal: (!text.is_empty()).then_some(text),
        }
    }
}

/// An empty one.
impl<B> Default for FenceBody<B> {
    fn default() -> Self {
        Self::refusal(Bytes::new())
    }
}

impl<B: Body<Data = Bytes>> Body for FenceBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        match this.inner.as_pin_mut() {
            Some(inner) => inner.poll_frame(cx),
            None => Poll::Ready(this.refusal.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Some(inner) => inner.is_end_stream(),
            None => self.refusal.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Some(inner) => inner.size_hint(),
            None => SizeHint::with_exact(self.refusal.as_ref().map_or(0, |text| text.len() as u64)),
        }
    }
}
