//! The replies of a multiplexed stream, gathered into as few messages as possible.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use prost::Message;
use ringfence_proto::v1::server_frame::Body;
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::{Entered, Serving};
use tokio::sync::OwnedSemaphorePermit;
use tokio_stream::Stream;
use tonic::Status;

use super::super::outbox::{self, Inbox, Stalled, Ticket};
use super::super::waits::{OwnedWaits, Waits};
use crate::clients::{Account, Held};
use crate::limits::{IN_FLIGHT_PER_STREAM_MAX, REPLY_BYTES_AIM, REPLY_BYTES_EXPECTED};
use crate::spans;

/// Learns which entries a stream's answers come from. The wire does not say it, and a checker of the
/// log needs it; a server has none.
pub trait AnswerObserver: Send + Sync {
    /// Request `id` is about to be answered with the outcome of the entry at `index`; a read with the
    /// state that this entry left.
    fn answered_by(&self, id: u64, index: u64);
}

/// The sending side of a stream's replies.
pub(super) struct Outbox {
    frames: outbox::Outbox<v1::ServerFrame>,
    waits: Arc<Waits>,
    observer: Option<Arc<dyn AnswerObserver>>,
}

/// The right to answer a request that is not known yet.
pub(super) struct Place(Ticket<v1::ServerFrame>);

/// The right and the duty to answer one request.
pub(super) struct Reply {
    id: u64,
    ticket: Ticket<v1::ServerFrame>,
    observer: Option<Arc<dyn AnswerObserver>>,
    /// The span of the request, if it is recorded.
    serving: Option<Serving>,
}

/// The receiving side: what the client reads.
pub struct Outgoing {
    frames: Inbox<v1::ServerFrame>,
    /// The waits of a stream are forgotten with it.
    _waits: OwnedWaits,
    /// Reported behind the message that was being gathered when it came.
    end: Option<Status>,
}

/// Both sides of a new stream on the connection with this account.
pub(super) fn outbox(
    account: Arc<Account>,
    observer: Option<Arc<dyn AnswerObserver>>,
) -> (Outbox, Outgoing) {
    let (frames, inbox) = outbox::outbox(account, IN_FLIGHT_PER_STREAM_MAX);
    let owned = OwnedWaits::default();
    let waits = owned.waits().clone();
    let outbox = Outbox {
        frames,
        waits,
        observer,
    };
    (
        outbox,
        Outgoing {
            frames: inbox,
            _waits: owned,
            end: None,
        },
    )
}

impl Outbox {
    /// A place for a reply, as soon as there is room for it.
    pub(super) async fn place(&self) -> Result<Place, Stalled> {
        let ticket = self.frames.ticket(REPLY_BYTES_EXPECTED).await?;
        Ok(Place(ticket))
    }

    /// A reply to request `id`, as soon as there is room for it.
    pub(super) async fn reply(&self, place: Option<Place>, id: u64) -> Result<Reply, Stalled> {
        let Place(ticket) = match place {
            Some(place) => place,
            None => self.place().await?,
        };
        Ok(self.reply_with(id, ticket))
    }

    /// Makes room for so many bytes more of a reply, of which `counted` are held already.
    pub(super) async fn grow(
        &self,
        reply: &mut Reply,
        counted: Option<Held>,
        bytes: usize,
    ) -> Result<(), Stalled> {
        self.frames.grow(&mut reply.ticket, counted, bytes).await
    }

    /// Room for a message that was read, while it waits for the room of its replies; `None` if the
    /// connection has none.
    pub(super) fn room_for_message(&self, bytes: usize) -> Option<Held> {
        self.frames.room_for_message(bytes)
    }

    /// A reply to a request that may wait for long; `None` if too many do already.
    pub(super) fn late_reply(&self, id: u64) -> Option<Reply> {
        let ticket = self.frames.late_ticket()?;
        Some(self.reply_with(id, ticket))
    }

    fn reply_with(&self, id: u64, ticket: Ticket<v1::ServerFrame>) -> Reply {
        let observer = self.observer.clone();
        Reply {
            id,
            ticket,
            observer,
            serving: None,
        }
    }

    /// Tells the client something that is no reply.
    pub(super) fn tell(&self, body: Body) {
        self.frames.tell(v1::ServerFrame {
            id: 0,
            body: Some(body),
        });
    }

    /// Ends the stream with an error, behind all replies pushed before.
    pub(super) fn end(&self, status: Status) {
        self.frames.end(status);
    }

    /// The account of the connection.
    pub(super) fn connection(&self) -> &Arc<Account> {
        self.frames.connection()
    }

    /// Rests for so long, and lets the connection have as many fewer keep-alives under way meanwhile.
    pub(super) async fn rest(&self, named: usize, rest: Duration) {
        self.frames.rest(named, rest).await;
    }

    /// Room for a keep-alive of so many sessions and losses to be under way.
    pub(super) async fn keep_alive(&self, named: usize) -> OwnedSemaphorePermit {
        self.frames.keep_alive(named).await
    }

    /// The waits of this stream.
    pub(super) fn waits(&self) -> &Arc<Waits> {
        &self.waits
    }

    /// Resolves when the client does not read any more.
    pub(super) async fn closed(&self) {
        self.frames.closed().await;
    }
}

impl Reply {
    /// The same for a request that traces show.
    pub(super) fn within(mut self, serving: Option<Serving>) -> Self {
        self.serving = serving;
        self
    }

    /// Makes the request the one that this thread works for.
    pub(super) fn enter(&self) -> Option<Entered> {
        self.serving.as_ref().map(Serving::enter)
    }

    /// Answers, with what the log says at `index` if the answer comes from there.
    pub(super) fn send(self, index: Option<u64>, answer: Result<Body, Refusal>) {
        if let (Some(observer), Some(index)) = (&self.observer, index) {
            observer.answered_by(self.id, index);
        }
        spans::answered(self.serving, &answer);
        let body = answer.unwrap_or_else(|refusal| Body::Refusal(refusal.into()));
        let frame = v1::ServerFrame {
            id: self.id,
            body: Some(body),
        };
        let bytes = size_of::<v1::ServerFrame>() + memory(&frame);
        self.ticket.send(frame, bytes);
    }
}

/// What a frame takes in memory beside itself, about.
fn memory(frame: &v1::ServerFrame) -> usize {
    match &frame.body {
        Some(Body::KeepAlive(answer)) => super::super::keep_alive::memory(answer),
        // Texts and bytes are as long as on the wire, and few messages hold many small things.
        _ => frame.encoded_len(),
    }
}

impl Stream for Outgoing {
    type Item = Result<v1::ServerMessage, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        task: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<v1::ServerMessage, Status>>> {
        if let Some(status) = self.end.take() {
            self.frames.close();
            return Poll::Ready(Some(Err(status)));
        }
        let mut next = ready!(self.frames.poll_next(task));
        let mut message = v1::ServerMessage::default();
        let mut bytes = 0;
        loop {
            match next {
                Some(Ok(frame)) => {
                    bytes += frame.encoded_len();
                    message.frames.push(frame);
                }
                Some(Err(status)) if message.frames.is_empty() => {
                    self.frames.close();
                    return Poll::Ready(Some(Err(status)));
                }
                Some(Err(status)) => {
                    self.end = Some(status);
                    break;
                }
                None if message.frames.is_empty() => return Poll::Ready(None),
                None => break,
            }
            if bytes >= REPLY_BYTES_AIM || message.frames.len() >= wire::MESSAGE_FRAMES_MAX {
                break;
            }
            next = match self.frames.try_next() {
                Some(queued) => Some(queued),
                None => break,
            };
        }
        Poll::Ready(Some(Ok(message)))
    }
}
