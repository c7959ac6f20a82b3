//! Watches: the present state if asked for, then every event, then at least every second the
//! position reached.
//!
//! A watch of a slow reader waits with it. When the ring of events has moved past it, it is told
//! `compacted` and begins anew with the present state.

mod floors;
mod leases;

use ringfence_core::{ClusterId, Event, StateMachine};
use ringfence_proto::wire::WirePosition;
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::{EventFeed, Position};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::Context;
use crate::limits::{
    EVENTS_PER_MESSAGE_MAX, WATCH_MESSAGES_MAX, WATCH_PRESENT_MAX, WATCH_PRESENT_STALL_MAX,
    WATCH_QUIET_MAX, WATCHERS_MAX,
};
use crate::status::{RETRY_AFTER, limit};

pub(super) use floors::floors;
pub(super) use leases::leases;

/// What a kind of watch tells.
trait View: Send + Sync + 'static {
    /// One thing told.
    type Item: Send;
    /// Some of them, as one message.
    type Message: Send + 'static;

    /// The state, from which the events go on.
    fn present(&mut self, machine: &StateMachine) -> Vec<Self::Item>;

    /// What an event means to this watch, if anything.
    fn item(&mut self, at: v1::Position, event: Event) -> Option<Self::Item>;

    /// The message of these items; `told` says where that leaves the reader.
    fn message(&self, items: Vec<Self::Item>, told: Told) -> Self::Message;
}

/// Where a message leaves the reader.
struct Told {
    /// Up to here everything is told; `None` within the present state.
    position: Option<v1::Position>,
    /// The message begins a present state because events in between are gone.
    compacted: bool,
}

/// One watch under way.
struct Watch<V: View> {
    context: Context,
    cluster: ClusterId,
    view: V,
    feed: EventFeed,
    out: mpsc::Sender<Result<V::Message, Status>>,
    _place: OwnedSemaphorePermit,
}

/// The watch is over; its reader has gone, or was told.
struct Over;

/// Begins a watch behind `from`, or with the present state.
fn begin<V: View>(
    context: &Context,
    view: V,
    from: Option<Position>,
) -> Result<ReceiverStream<Result<V::Message, Status>>, Refusal> {
    let (cluster, _) = context.cluster()?;
    let place = context.watchers.clone().try_acquire_owned().map_err(|_| {
        limit(
            "watchers_per_node",
            WATCHERS_MAX,
            "watch at another node, or with fewer watches",
        )
    })?;
    let (out, messages) = mpsc::channel(WATCH_MESSAGES_MAX);
    let feed = context.node.events();
    let watch = Watch {
        context: context.clone(),
        cluster,
        view,
        feed,
        out,
        _place: place,
    };
    tokio::spawn(async move {
        let Over = watch.run(from).await;
    });
    Ok(ReceiverStream::new(messages))
}

impl<V: View> Watch<V> {
    async fn run(mut self, from: Option<Position>) -> Over {
        let stopped_of = self.context.clone();
        let out = self.out.clone();
        let over = tokio::select! {
            over = self.follow(from) => over,
            () = out.closed() => Over,
            () = stopped_of.stopped() => {
                let why = "this node is stopping; go on at another one from the last position";
                // A reader that does not read is not told; it sees the connection end.
                let _told = out.try_send(Err(Refusal::unavailable(why, None, RETRY_AFTER).into())).is_ok();
                Over
            }
        };
        over
    }

    async fn follow(&mut self, from: Option<Position>) -> Over {
        let mut at = match from {
            Some(from) => from,
            None => match self.begin_with_the_present().await {
                Ok(at) => at,
                Err(over) => return over,
            },
        };
        let mut quiet = tokio::time::interval(WATCH_QUIET_MAX);
        quiet.set_missed_tick_behavior(MissedTickBehavior::Delay);
        quiet.reset();
        let mut overdue = false;
        loop {
            let told = match self.feed.since(at, EVENTS_PER_MESSAGE_MAX) {
                Ok(batch) => {
                    let full = batch.events.len() == EVENTS_PER_MESSAGE_MAX;
                    let items = self.items(batch.events);
                    // A position in the future stays where it is until this node gets there.
                    at = at.max(batch.upto);
                    let tell = !items.is_empty() || overdue;
                    if tell && self.send(items, Some(at), false).await.is_err() {
                        return Over;
                    }
                    if full {
                        continue;
                    }
                    tell
                }
                Err(_) => match self.tell_present(true).await {
                    Ok(present) => {
                        at = present;
                        true
                    }
                    Err(over) => return over,
                },
            };
            if told {
                quiet.reset();
            }
            overdue = tokio::select! {
                () = self.feed.changed() => false,
                _ = quiet.tick() => true,
            };
        }
    }

    fn items(&mut self, events: Vec<(Position, Event)>) -> Vec<V::Item> {
        let mut items = Vec::new();
        for (at, event) in events {
            let at = to_wire(self.cluster, at);
            items.extend(self.view.item(at, event));
        }
        items
    }

    /// Nothing acknowledged before the watch began may be missing from what it begins with.
    async fn begin_with_the_present(&mut self) -> Result<Position, Over> {
        if let Err(refusal) = self.context.ready_to_read(None).await {
            drop(self.out.send(Err(refusal.into())).await);
            return Err(Over);
        }
        self.tell_present(false).await
    }

    /// Tells the state at one index, in as many messages as it takes.
    async fn tell_present(&mut self, compacted: bool) -> Result<Position, Over> {
        let mut places = self.places().await;
        let view = &mut self.view;
        let (items, index) = self
            .context
            .node
            .read(|machine| (view.present(machine), machine.index()));
        // What the prefix leaves out needs no place.
        let surplus = places.num_permits().saturating_sub(items.len());
        drop(places.split(surplus));
        let at = Position::end_of(index);
        let mut items = items.into_iter();
        let mut compacted = compacted;
        loop {
            let some: Vec<_> = items.by_ref().take(EVENTS_PER_MESSAGE_MAX).collect();
            let last = items.len() == 0;
            let told = self.send(some, last.then_some(at), compacted);
            let Ok(told) = tokio::time::timeout(WATCH_PRESENT_STALL_MAX, told).await else {
                drop((items, places));
                return Err(self.give_up().await);
            };
            told?;
            compacted = false;
            if last {
                return Ok(at);
            }
        }
    }

    /// Places for the present state, as many as it can need at most; waits for them in turn.
    async fn places(&self) -> OwnedSemaphorePermit {
        let leases = self.context.node.read(|machine| machine.summary().leases);
        let wanted = u32::try_from(leases).unwrap_or(u32::MAX);
        let wanted = wanted.min(WATCH_PRESENT_MAX);
        let places = self.context.presents.clone().acquire_many_owned(wanted);
        places.await.expect("nobody closes this semaphore")
    }

    /// Tells a reader that has stopped reading, if it should ever go on, that it has to begin anew.
    async fn give_up(&self) -> Over {
        let why = format!(
            "the present state was not read for {} s; begin the watch anew, and read it at once",
            WATCH_PRESENT_STALL_MAX.as_secs()
        );
        let refusal = Refusal::unavailable(why, None, RETRY_AFTER);
        drop(self.out.send(Err(refusal.into())).await);
        Over
    }

    async fn send(
        &mut self,
        items: Vec<V::Item>,
        position: Option<Position>,
        compacted: bool,
    ) -> Result<(), Over> {
        let position = position.map(|at| to_wire(self.cluster, at));
        let message = self.view.message(
            items,
            Told {
                position,
                compacted,
            },
        );
        self.out.send(Ok(message)).await.map_err(|_| Over)
    }
}

fn to_wire(cluster: ClusterId, at: Position) -> v1::Position {
    wire::position_to_wire(WirePosition {
        cluster,
        index: at.index,
        n: at.n,
    })
}
