//! Calls between nodes: the frames of gRPC, over connections of the simulated network instead of
//! HTTP/2.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http_body::{Body as _, Frame};
use ringfence_raft::place::{Dial, Exchange};
use tokio::task::AbortHandle;
use tonic::Status;
use tonic::body::Body;

use super::Net;
use super::connection::{Connection, Side};
use super::pipe::{Inlet, Outlet};
use crate::machine::Machine;

/// How long opening a connection may take; as long as between nodes.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// How many frames go with the head of a call.
const READY_MAX: usize = 3;

/// A part of a call, or of its answer.
enum Part<H> {
    Head(H),
    Frame(Frame<Bytes>),
    /// Nothing follows. A pipe that ends without it was given up.
    End,
}

/// A way from a machine to the listener at an address. It connects when it is first used, and
/// again whenever it has to.
pub(crate) struct Way {
    shared: Arc<Shared>,
}

struct Shared {
    net: Net,
    from: Machine,
    address: String,
    open: tokio::sync::Mutex<Option<Open>>,
}

/// What calls go over, and to whom.
#[derive(Clone)]
struct Open {
    connection: Arc<Connection>,
    /// The listener has it: nodes that had each other's would keep each other for ever.
    answer: Weak<Answerer>,
}

type Answerer = dyn Fn(http::Request<Body>) -> Exchange + Send + Sync;

impl Way {
    pub(crate) fn new(net: Net, from: Machine, address: &str) -> Self {
        Self {
            shared: Arc::new(Shared {
                net,
                from,
                address: address.to_owned(),
                open: tokio::sync::Mutex::default(),
            }),
        }
    }
}

impl Dial for Way {
    fn exchange(&self, request: http::Request<Body>) -> Exchange {
        let shared = self.shared.clone();
        Box::pin(async move {
            let open = shared.connected().await?;
            open.call(request).await
        })
    }
}

impl Shared {
    async fn connected(&self) -> Result<Open, Status> {
        let mut open = self.open.lock().await;
        if let Some(open) = &*open
            && open.connection.whole_at(Side::Caller).is_ok()
        {
            return Ok(open.clone());
        }
        *open = None;
        let Some(listener) = self.net.listener(&self.address) else {
            // No process has ever been there.
            tokio::time::sleep(CONNECT_MAX).await;
            return Err(Status::unavailable("no answer from the address"));
        };
        let to = &listener.machine;
        let callee = listener.process.clone();
        let connected = self.net.connect_to(&self.from, to, callee, CONNECT_MAX);
        let connection = connected
            .await
            .map_err(|broken| Status::unavailable(broken.0))?;
        let answer = Arc::downgrade(&listener.answer);
        Ok(open.insert(Open { connection, answer }).clone())
    }
}

/// Aborts a task when it is dropped.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Open {
    async fn call(&self, request: http::Request<Body>) -> Result<http::Response<Body>, Status> {
        let connection = &self.connection;
        let (outgoing, arriving) = connection.pipe(Side::Caller);
        let (answering, mut answers) = connection.pipe(Side::Callee);
        let answer = self.answer.upgrade();
        let _served = connection.spawn(Side::Callee, async move {
            let mut arriving = arriving;
            let Ok(Some(Part::Head(head))) = arriving.recv().await else {
                return;
            };
            let request = http::Request::from_parts(head, Body::new(Arriving::new(arriving, None)));
            // No process answers for a process that has ended.
            let Some(answer) = answer else { return };
            let Ok(response) = answer(request).await else {
                return;
            };
            let (head, body) = response.into_parts();
            answering.push(Part::<http::response::Parts>::Head(head));
            send_body(body, &answering).await;
        });
        let (head, mut body) = request.into_parts();
        outgoing.push(Part::<http::request::Parts>::Head(head));
        // A single message goes with the head; only a stream needs a task of its own.
        let sent = if send_ready(&mut body, &outgoing).await {
            None
        } else {
            let send = async move { send_body(body, &outgoing).await };
            let sending = connection.spawn(Side::Caller, send);
            // Dropping the answer takes the call back.
            Some(AbortOnDrop(sending.abort_handle()))
        };
        match answers.recv().await {
            Ok(Some(Part::Head(head))) => {
                let body = Body::new(Arriving::new(answers, sent));
                Ok(http::Response::from_parts(head, body))
            }
            Ok(_) => Err(Status::cancelled("the peer gave the call up")),
            Err(broken) => Err(Status::unavailable(broken.0)),
        }
    }
}

/// Sends what of a body is there, as far as it is short; true if that was all.
async fn send_ready<H>(body: &mut Body, to: &Inlet<Part<H>>) -> bool {
    for _ in 0..READY_MAX {
        let next = std::future::poll_fn(|context| {
            Poll::Ready(match Pin::new(&mut *body).poll_frame(context) {
                Poll::Ready(frame) => Some(frame),
                Poll::Pending => None,
            })
        });
        match next.await {
            Some(Some(Ok(frame))) => to.push(Part::Frame(frame)),
            Some(None) => {
                to.push(Part::End);
                return true;
            }
            // The inlet goes with the call, which tells the other end.
            Some(Some(Err(_))) => return true,
            None => return false,
        }
    }
    false
}

async fn send_body<H>(mut body: Body, to: &Inlet<Part<H>>) {
    while let Some(frame) =
        std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
    {
        let Ok(frame) = frame else { return };
        if to.send(Part::Frame(frame)).await.is_err() {
            return;
        }
    }
    to.push(Part::End);
}

type Frames = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Status>> + Send>>;

/// A body as it arrives.
struct Arriving {
    frames: Frames,
    _sending: Option<AbortOnDrop>,
}

impl Arriving {
    fn new<H: Send + 'static>(parts: Outlet<Part<H>>, sending: Option<AbortOnDrop>) -> Self {
        let frames = stream::unfold(Some(parts), |parts| async move {
            let mut parts = parts?;
            match parts.recv().await {
                Ok(Some(Part::Frame(frame))) => Some((Ok(frame), Some(parts))),
                Ok(Some(Part::End | Part::Head(_))) => None,
                Ok(None) => Some((Err(Status::cancelled("the call was given up")), None)),
                Err(broken) => Some((Err(Status::unavailable(broken.0)), None)),
            }
        });
        Self {
            frames: frames.boxed(),
            _sending: sending,
        }
    }
}

impl http_body::Body for Arriving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.frames.as_mut().poll_next(context)
    }
}
