//! The way back to the client of a stream: replies are pushed from wherever they come about, and
//! the stream drains them.
//!
//! A place and the bytes of a reply are taken before its request is submitted, and are given back
//! when the client has taken the reply. The next message is read when there is a place for a reply. So a client that reads nothing is soon not read either.

use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use ringfence_planted::{Bug, planted};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tonic::Status;

use crate::clients::{Account, Held};
use crate::limits::{REPLY_STALL_MAX, WAIT_BYTES};

/// What stands in the queue of replies. Its length is bounded by the places: a reply without one
/// cannot be pushed.
enum Queued<T> {
    Item { item: T, _room: Option<Room> },
    End(Status),
}

/// What a request under way takes, and then its reply.
struct Room {
    _place: OwnedSemaphorePermit,
    of_stream: Held,
    of_connection: Held,
}

/// The sending side of a stream's replies.
pub(super) struct Outbox<T> {
    queue: UnboundedSender<Queued<T>>,
    in_flight: Arc<Semaphore>,
    stream: Arc<Account>,
    connection: Arc<Account>,
    /// How long it can go without any room.
    stall: Duration,
}

/// The right and the duty to answer one request.
pub(super) struct Ticket<T> {
    room: Room,
    queue: UnboundedSender<Queued<T>>,
}

/// The receiving side: what the client reads.
pub(super) struct Inbox<T>(UnboundedReceiver<Queued<T>>);

/// No reply was read for so long that the connection is closed.
#[derive(Debug)]
pub(super) struct Stalled;

/// Both sides of a new stream on a connection with this account, with at most so many requests
/// under way.
pub(super) fn outbox<T>(connection: Arc<Account>, in_flight: usize) -> (Outbox<T>, Inbox<T>) {
    let (sender, queue) = unbounded_channel();
    let outbox = Outbox {
        queue: sender,
        in_flight: Arc::new(Semaphore::new(in_flight)),
        stream: Account::of_stream(),
        connection,
        stall: REPLY_STALL_MAX,
    };
    (outbox, Inbox(queue))
}

impl<T> Outbox<T> {
    /// The right to answer a request whose reply takes about so many bytes, as soon as there is
    /// room. A stream without any for [`REPLY_STALL_MAX`] loses its connection.
    pub(super) async fn ticket(&self, bytes: usize) -> Result<Ticket<T>, Stalled> {
        if let Ok(place) = self.in_flight.clone().try_acquire_owned()
            && let Some(of_stream) = self.stream.try_reserve(bytes)
            && let Some(of_connection) = self.connection.try_reserve(bytes)
        {
            let room = Room {
                _place: place,
                of_stream,
                of_connection,
            };
            return Ok(self.with(room));
        }
        let room = async {
            let place = self.in_flight.clone().acquire_owned().await;
            Room {
                _place: place.expect("nothing closes this semaphore"),
                of_stream: self.stream.reserve(bytes).await,
                of_connection: self.connection.reserve(bytes).await,
            }
        };
        match timeout(self.stall, room).await {
            Ok(room) => Ok(self.with(room)),
            Err(_) => Err(self.stalled()),
        }
    }

    /// Makes room for so many bytes more. `counted` is what the connection holds of them already for
    /// what waits here; from now on it belongs to the ticket, until this is answered.
    pub(super) async fn grow(
        &self,
        ticket: &mut Ticket<T>,
        counted: Option<Held>,
        bytes: usize,
    ) -> Result<(), Stalled> {
        let missing = bytes.saturating_sub(counted.as_ref().map_or(0, Held::bytes));
        if let Some(counted) = counted {
            ticket.room.of_connection.join(counted);
        }
        let room = async {
            let of_stream = self.stream.reserve(bytes).await;
            (of_stream, self.connection.reserve(missing).await)
        };
        let Ok((of_stream, of_connection)) = timeout(self.stall, room).await else {
            return Err(self.stalled());
        };
        ticket.room.of_stream.join(of_stream);
        ticket.room.of_connection.join(of_connection);
        Ok(())
    }

    /// Room for a message that was read, while it waits for the room of its replies; `None` if the
    /// connection has none.
    pub(super) fn room_for_message(&self, bytes: usize) -> Option<Held> {
        self.connection.try_reserve(bytes)
    }

    fn stalled(&self) -> Stalled {
        tracing::info!(
            "connection closed: its replies were not read for {:?}",
            self.stall
        );
        self.connection.close();
        Stalled
    }

    /// The right to answer a request that may wait for long; `None` if too many of the connection
    /// do. It takes nothing of the stream's places.
    pub(super) fn late_ticket(&self) -> Option<Ticket<T>> {
        let room = Room {
            _place: self.connection.wait()?,
            of_stream: self.stream.charge(0),
            of_connection: self.connection.try_reserve(WAIT_BYTES)?,
        };
        Some(self.with(room))
    }

    fn with(&self, room: Room) -> Ticket<T> {
        Ticket {
            room,
            queue: self.queue.clone(),
        }
    }

    /// The account of the connection.
    pub(super) fn connection(&self) -> &Arc<Account> {
        &self.connection
    }

    /// Room for a keep-alive of so many sessions and losses to be under way.
    pub(super) async fn keep_alive(&self, named: usize) -> OwnedSemaphorePermit {
        self.connection.keep_alive(named).await
    }

    /// Rests for so long, and lets the connection have as many fewer keep-alives under way meanwhile.
    pub(super) async fn rest(&self, named: usize, rest: Duration) {
        self.connection.rest(named, rest).await;
    }

    /// Tells the client something that is no reply.
    pub(super) fn tell(&self, item: T) {
        self.push(Queued::Item { item, _room: None });
    }

    /// Ends the stream with an error, behind all replies pushed before.
    pub(super) fn end(&self, status: Status) {
        self.push(Queued::End(status));
    }

    /// Resolves when the client does not read any more.
    pub(super) async fn closed(&self) {
        self.queue.closed().await;
    }

    fn push(&self, queued: Queued<T>) {
        // An error means that the client is gone; then no reader needs this.
        self.queue.send(queued).ok();
    }
}

impl<T> Ticket<T> {
    /// Answers with an item that takes so many bytes in memory.
    pub(super) fn send(self, item: T, bytes: usize) {
        let Self { mut room, queue } = self;
        room.of_stream.resize(bytes);
        room.of_connection.resize(bytes);
        let room = (!planted(Bug::UnreadRepliesUncounted)).then_some(room);
        // An error means that the client is gone; then no reader needs this.
        queue.send(Queued::Item { item, _room: room }).ok();
    }
}

impl<T> Inbox<T> {
    /// The next item, or how the stream ends; its room is free from here on.
    pub(super) fn poll_next(
        &mut self,
        task: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<T, Status>>> {
        self.0
            .poll_recv(task)
            .map(|queued| queued.map(Queued::opened))
    }

    /// The next item, if there is one already.
    pub(super) fn try_next(&mut self) -> Option<Result<T, Status>> {
        self.0.try_recv().ok().map(Queued::opened)
    }

    /// Nothing more is taken.
    pub(super) fn close(&mut self) {
        self.0.close();
    }
}

impl<T> Queued<T> {
    fn opened(self) -> Result<T, Status> {
        match self {
            Self::Item { item, .. } => Ok(item),
            Self::End(status) => Err(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::clients::Pool;
    use crate::limits::{BYTES_PER_CONNECTION_MAX, BYTES_PER_STREAM_MAX, REPLY_BYTES_EXPECTED};

    const SOON: Duration = Duration::from_millis(200);

    fn account() -> (Arc<Pool>, Arc<Account>) {
        let pool = Pool::new();
        (pool.clone(), Account::new(pool))
    }

    /// How many replies of this size a client that reads nothing can make a stream hold.
    async fn unread(outbox: &Outbox<u32>, bytes: usize) -> usize {
        let mut held = 0;
        while let Ok(Ok(ticket)) = timeout(SOON, outbox.ticket(REPLY_BYTES_EXPECTED)).await {
            ticket.send(7, bytes);
            held += bytes;
            assert!(held < 1 << 30, "there is no end to it");
        }
        held
    }

    #[tokio::test]
    async fn what_a_client_does_not_read_has_an_end_in_bytes() {
        let (pool, account) = account();
        let (outbox, mut inbox) = outbox(account, 1_000_000);
        let reply = 100 << 10;

        let held = unread(&outbox, reply).await;
        assert!(held <= BYTES_PER_STREAM_MAX + reply, "{held}");
        assert_eq!(pool.held(), held as u64);

        let read = poll_fn(|task| inbox.poll_next(task)).await;
        assert_eq!(read.unwrap().unwrap(), 7);
        assert!(
            timeout(SOON, outbox.ticket(1)).await.is_ok(),
            "what is read makes room"
        );
    }

    #[tokio::test]
    async fn what_a_client_does_not_read_has_an_end_in_replies() {
        let (outbox, _inbox) = outbox(account().1, 64);
        assert_eq!(unread(&outbox, 1).await, 64);
    }

    #[tokio::test]
    async fn the_streams_of_a_connection_share_what_it_may_hold() {
        let (_, account) = account();
        let mut held = 0;
        let mut streams = Vec::new();
        for _ in 0..8 {
            let (outbox, inbox) = outbox(account.clone(), 1_000_000);
            held += unread(&outbox, 1 << 20).await;
            streams.push(inbox);
        }
        assert!(held <= BYTES_PER_CONNECTION_MAX + (1 << 20), "{held}");
    }

    #[tokio::test]
    async fn a_client_that_left_holds_nothing() {
        let (pool, account) = account();
        let (outbox, inbox) = outbox(account, 64);
        unread(&outbox, 1).await;
        drop(inbox);
        assert_eq!(pool.held(), 0);
        outbox.closed().await;
    }

    #[tokio::test]
    async fn a_stream_without_room_for_too_long_closes_its_connection() {
        let (_, account) = account();
        let closing = account.closing();
        let (mut outbox, _inbox) = outbox(account, 1);
        outbox.stall = SOON;
        outbox.ticket(1).await.unwrap().send(7, 1);
        assert!(outbox.ticket(1).await.is_err());
        closing.await.unwrap();
    }
}
