//! The way back to the client: replies are pushed from wherever they come about, and one stream
//! drains them into as few messages as possible.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, ready};

use prost::Message;
use ringfence_proto::v1::server_frame::Body;
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::WaiterKey;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::Stream;
use tonic::Status;

use crate::limits::{IN_FLIGHT_PER_STREAM_MAX, REPLY_BYTES_AIM, WAITS_PER_STREAM_MAX};

#[expect(clippy::large_enum_variant, reason = "the large one is the common one")]
/// What stands in the queue of replies. Its length is bounded by the places: who has none cannot
/// push.
enum Queued {
    Frame {
        frame: v1::ServerFrame,
        _place: Option<OwnedSemaphorePermit>,
    },
    End(Status),
}

/// The sending side of a stream's replies.
#[derive(Clone)]
pub(super) struct Outbox {
    queue: UnboundedSender<Queued>,
    in_flight: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    waits: Arc<Waits>,
}

/// The right and the duty to answer one request.
pub(super) struct Reply {
    id: u64,
    place: OwnedSemaphorePermit,
    queue: UnboundedSender<Queued>,
}

/// The receiving side: what the client reads.
pub(crate) struct Outgoing {
    queue: UnboundedReceiver<Queued>,
    waits: Arc<Waits>,
    /// Told behind the message that was being gathered when it came.
    end: Option<Status>,
}

/// Both sides of a new stream.
pub(super) fn outbox() -> (Outbox, Outgoing) {
    let (sender, queue) = unbounded_channel();
    let waits = Arc::new(Waits::default());
    let outbox = Outbox {
        queue: sender,
        in_flight: Arc::new(Semaphore::new(IN_FLIGHT_PER_STREAM_MAX)),
        waiting: Arc::new(Semaphore::new(WAITS_PER_STREAM_MAX)),
        waits: waits.clone(),
    };
    (
        outbox,
        Outgoing {
            queue,
            waits,
            end: None,
        },
    )
}

impl Outbox {
    /// A reply to request `id`, as soon as fewer than the limit are under way.
    pub(super) async fn reply(&self, id: u64) -> Reply {
        let place = match self.in_flight.clone().try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                let place = self.in_flight.clone().acquire_owned().await;
                place.expect("nobody closes this semaphore")
            }
        };
        Reply {
            id,
            place,
            queue: self.queue.clone(),
        }
    }

    /// A reply to a request that may wait for long; `None` if too many do already.
    pub(super) fn late_reply(&self, id: u64) -> Option<Reply> {
        let place = self.waiting.clone().try_acquire_owned().ok()?;
        Some(Reply {
            id,
            place,
            queue: self.queue.clone(),
        })
    }

    /// Tells the client something that is no reply.
    pub(super) fn tell(&self, body: Body) {
        let frame = v1::ServerFrame {
            id: 0,
            body: Some(body),
        };
        self.push(Queued::Frame {
            frame,
            _place: None,
        });
    }

    /// Ends the stream with an error, behind all replies pushed before.
    pub(super) fn end(&self, status: Status) {
        self.push(Queued::End(status));
    }

    /// The waits of this stream.
    pub(super) fn waits(&self) -> &Arc<Waits> {
        &self.waits
    }

    /// Resolves when the client does not read any more.
    pub(super) async fn closed(&self) {
        self.queue.closed().await;
    }

    fn push(&self, queued: Queued) {
        // An error means that the client is gone; then nobody needs this.
        drop(self.queue.send(queued));
    }
}

impl Reply {
    /// Answers.
    pub(super) fn send(self, answer: Result<Body, Refusal>) {
        let body = answer.unwrap_or_else(|refusal| Body::Refusal(refusal.into()));
        let frame = v1::ServerFrame {
            id: self.id,
            body: Some(body),
        };
        // An error means that the client is gone; then nobody needs this.
        drop(self.queue.send(Queued::Frame {
            frame,
            _place: Some(self.place),
        }));
    }
}

impl Stream for Outgoing {
    type Item = Result<v1::ServerMessage, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        task: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<v1::ServerMessage, Status>>> {
        if let Some(status) = self.end.take() {
            self.queue.close();
            return Poll::Ready(Some(Err(status)));
        }
        let mut next = ready!(self.queue.poll_recv(task));
        let mut message = v1::ServerMessage::default();
        let mut bytes = 0;
        loop {
            match next {
                Some(Queued::Frame { frame, _place }) => {
                    bytes += frame.encoded_len();
                    message.frames.push(frame);
                }
                Some(Queued::End(status)) if message.frames.is_empty() => {
                    self.queue.close();
                    return Poll::Ready(Some(Err(status)));
                }
                Some(Queued::End(status)) => {
                    self.end = Some(status);
                    break;
                }
                None if message.frames.is_empty() => return Poll::Ready(None),
                None => break,
            }
            if bytes >= REPLY_BYTES_AIM || message.frames.len() >= wire::MESSAGE_FRAMES_MAX {
                break;
            }
            next = match self.queue.try_recv() {
                Ok(queued) => Some(queued),
                Err(_) => break,
            };
        }
        Poll::Ready(Some(Ok(message)))
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.waits.forget_all();
    }
}

/// The waits of one stream, so that they are forgotten with it. The places in the queues remain:
/// a broken stream ends nothing.
#[derive(Default)]
pub(super) struct Waits {
    inner: Mutex<WaitTable>,
}

#[derive(Default)]
struct WaitTable {
    next: u64,
    /// `None` between the drawing of a number and the registration.
    keys: HashMap<u64, Option<WaiterKey>>,
}

impl Waits {
    /// Draws a number for a wait that will be registered.
    pub(super) fn begin(&self) -> u64 {
        let mut table = self.lock();
        table.next += 1;
        let number = table.next;
        table.keys.insert(number, None);
        number
    }

    /// Keeps the registration of a wait, unless the wait or the stream has ended meanwhile.
    pub(super) fn keep(&self, number: u64, key: WaiterKey) {
        let mut table = self.lock();
        let unwanted = match table.keys.get_mut(&number) {
            Some(slot) => slot.replace(key),
            None => Some(key),
        };
        // Dropped outside the lock: it may run the wait's closure, which comes back here.
        drop(table);
        drop(unwanted);
    }

    /// The wait has ended.
    pub(super) fn forget(&self, number: u64) {
        let key = self.lock().keys.remove(&number);
        drop(key);
    }

    /// All waits that were begun end here.
    pub(super) fn forget_all(&self) {
        let mut table = self.lock();
        let keys = std::mem::take(&mut table.keys);
        drop(table);
        drop(keys);
    }

    fn lock(&self) -> MutexGuard<'_, WaitTable> {
        // Nothing panics while it holds the lock, so that the table is whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
