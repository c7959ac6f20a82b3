//! A service that says under which fence it was reached, and requests to it.

use std::convert::Infallible;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use ringfence_guard::Fence;
use ringfence_guard::tower::{Door, FenceBody, FenceLayer};
use tower::{Layer, ServiceExt, service_fn};

/// A body of one piece.
pub(crate) struct Text(Option<Bytes>);

impl Body for Text {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|text| Ok(Frame::data(text))))
    }
}

/// What came back, and whether the service behind the layer was reached.
pub(crate) struct Seen {
    pub(crate) response: Response<String>,
    pub(crate) reached: bool,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        Some(self.response.headers().get(name)?.to_str().unwrap())
    }
}

/// Sends a request through the layer.
pub(crate) async fn send<D: Door>(layer: &FenceLayer<D>, request: Request<()>) -> Seen {
    let reached = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reached);
    let service = layer.layer(service_fn(move |request: Request<()>| {
        count.fetch_add(1, Ordering::SeqCst);
        let fence = request.extensions().get::<Fence>();
        let said = fence.map_or("no fence".to_owned(), ToString::to_string);
        ready(Ok::<_, Infallible>(Response::new(Text(Some(said.into())))))
    }));
    let response = service.oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    Seen {
        response: Response::from_parts(parts, read(body)),
        reached: reached.load(Ordering::SeqCst) == 1,
    }
}

fn read(body: FenceBody<Text>) -> String {
    let (exact, mut body) = (body.size_hint().exact(), pin!(body));
    let mut text = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut cx) {
        text.extend_from_slice(&frame.unwrap().into_data().unwrap());
    }
    assert!(exact.is_none_or(|exact| exact == text.len() as u64));
    String::from_utf8(text).unwrap()
}

/// A request to a path with these headers.
pub(crate) fn request(path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::post(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// A request that shows a fence.
pub(crate) fn under(path: &str, fence: &str) -> Request<()> {
    let (lease, token) = fence.split_once('#').unwrap();
    request(
        path,
        &[("ringfence-lease", lease), ("ringfence-token", token)],
    )
}
