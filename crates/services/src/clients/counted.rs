//! The body of a request without the frames of gRPC: its bytes count for its caller.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;

use crate::rates::Meter;

/// See the module.
pub(super) struct Counted {
    body: tonic::body::Body,
    meter: Option<Meter>,
}

impl Counted {
    pub(super) fn new(body: tonic::body::Body, meter: Option<Meter>) -> Self {
        Self { body, meter }
    }
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let (Some(meter), Some(Ok(frame))) = (&self.meter, &polled)
            && let Some(bytes) = frame.data_ref()
        {
            meter.passed(bytes.len());
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
