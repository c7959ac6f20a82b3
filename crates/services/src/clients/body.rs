//! The body of an answer, counted from when it is made until it is written to the connection.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;

use super::account::{Account, Held};
use super::reserved::Unread;
use crate::limits::REPLY_STALL_MAX;
use crate::rates::Meter;

/// What is so small that the room of the call has it is not watched for being read.
const UNWATCHED_BYTES: usize = crate::limits::BYTES_PER_CALL;

type Polled = Option<Result<Frame<Bytes>, Status>>;

/// An answer's body. While the connection has no room, nothing more is made of it.
pub(super) struct Answer {
    body: tonic::body::Body,
    account: Arc<Account>,
    room: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The beginning of an answer that was encoded when it was made.
    begun: Option<Polled>,
    /// What the call itself takes.
    _call: Held,
    meter: Option<Meter>,
}

/// Bytes on their way, with what they take of the account.
struct OnTheWay {
    bytes: Bytes,
    _held: Held,
    _unread: Option<Unread>,
}

impl AsRef<[u8]> for OnTheWay {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Answer {
    pub(super) fn new(body: tonic::body::Body, call: Held, account: Arc<Account>) -> Self {
        Self {
            body,
            account,
            room: None,
            begun: None,
            _call: call,
            meter: None,
        }
    }

    /// The same, counted for its caller too.
    pub(super) fn metered(mut self, meter: Option<Meter>) -> Self {
        self.meter = meter;
        self
    }

    fn passes(&self, polled: &Polled) {
        if let (Some(meter), Some(Ok(frame))) = (&self.meter, polled)
            && let Some(bytes) = frame.data_ref()
        {
            meter.passed(bytes.len());
        }
    }

    /// Encodes the one message of an answer in the room that was made for it. In Rust it may take
    /// many times what it takes on the wire, and a client that opens no window lets it wait.
    pub(super) async fn encode(&mut self, mut room: Held) {
        let body = &mut self.body;
        let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut *body).poll_frame(cx))).await;
        let Poll::Ready(frame) = polled else { return };
        let counted = frame.map(|frame| {
            frame.map(|frame| {
                frame.map_data(|bytes| {
                    room.resize(bytes.len());
                    let is_large = bytes.len() > UNWATCHED_BYTES;
                    let unread = is_large.then(|| Unread::watched(&self.account, REPLY_STALL_MAX));
                    on_the_way(bytes, room, unread)
                })
            })
        });
        self.begun = Some(counted);
    }
}

fn on_the_way(bytes: Bytes, held: Held, unread: Option<Unread>) -> Bytes {
    Bytes::from_owner(OnTheWay {
        bytes,
        _held: held,
        _unread: unread,
    })
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Polled> {
        if let Some(begun) = self.begun.take() {
            self.passes(&begun);
            return Poll::Ready(begun);
        }
        if !self.account.has_room() {
            let mut room = match self.room.take() {
                Some(room) => room,
                None => Box::pin(Arc::clone(&self.account).room()),
            };
            if room.as_mut().poll(cx).is_pending() {
                self.room = Some(room);
                return Poll::Pending;
            }
        }
        self.room = None;
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let counted = frame.map(|frame| {
            frame.map(|frame| {
                frame.map_data(|bytes| {
                    let held = self.account.charge(bytes.len());
                    on_the_way(bytes, held, None)
                })
            })
        });
        self.passes(&counted);
        Poll::Ready(counted)
    }

    fn is_end_stream(&self) -> bool {
        self.begun.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.begun {
            Some(_) => SizeHint::default(),
            None => self.body.size_hint(),
        }
    }
}
