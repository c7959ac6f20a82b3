//! Watches: the present state if asked for, then every event, then at least every second the
//! position reached.
//!
//! A watch of a slow reader waits with it. When the ring of events has moved past it, it is told
//! `compacted` and begins anew with the present state.

mod floors;
mod leases;
mod presents;

use std::time::Duration;

use ringfence_core::{ClusterId, Event, StateMachine};
use ringfence_proto::wire::WirePosition;
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::{EventFeed, Position};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::error::Elapsed;
use tokio::time::{MissedTickBehavior, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::Context;
use crate::limits::{EVENTS_PER_MESSAGE_MAX, WATCH_MESSAGES_MAX, WATCH_QUIET_MAX, WATCHERS_MAX};
use crate::status::{RETRY_AFTER, limit};

pub(super) use floors::floors;
pub(super) use leases::leases;
pub(super) use presents::Presents;

/// What a kind of watch tells.
trait View: Send + Sync + 'static {
    /// One thing told.
    type Item: Send;
    /// Some of them, as one message.
    type Message: Send + 'static;

    /// How many items the state has for this watch; cheaper than to make them.
    fn count(&self, machine: &StateMachine) -> usize;

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
        let (items, index, places) = self.present().await;
        let at = Position::end_of(index);
        let leases = items.len();
        let pace = self.context.presents.pace(leases);
        let telling = self.tell(items, at, compacted, pace.stall);
        match timeout(pace.whole, telling).await {
            Ok(Ok(told)) => told.map(|()| at),
            Ok(Err(_)) | Err(_) => {
                drop(places);
                Err(self.give_up(pace.missed(leases)).await)
            }
        }
    }

    /// Tells these items, the last of them with the position; an error of time if a message waits
    /// for longer than `stall`.
    async fn tell(
        &mut self,
        items: Vec<V::Item>,
        at: Position,
        mut compacted: bool,
        stall: Duration,
    ) -> Result<Result<(), Over>, Elapsed> {
        let mut items = items.into_iter();
        loop {
            let some: Vec<_> = items.by_ref().take(EVENTS_PER_MESSAGE_MAX).collect();
            let last = items.len() == 0;
            let sent = timeout(stall, self.send(some, last.then_some(at), compacted)).await?;
            if last || sent.is_err() {
                return Ok(sent);
            }
            compacted = false;
        }
    }

    /// The state at one index, and places for what it takes. What fits one message needs none: it
    /// takes no more memory than any message of a watch, and so waits for no slow reader.
    async fn present(&mut self) -> (Vec<V::Item>, u64, Option<OwnedSemaphorePermit>) {
        let mut places: Option<OwnedSemaphorePermit> = None;
        let mut room = EVENTS_PER_MESSAGE_MAX;
        loop {
            let view = &mut self.view;
            let present = self.context.node.read(|machine| {
                let count = view.count(machine);
                match count <= room {
                    true => Ok((view.present(machine), machine.index())),
                    false => Err(count),
                }
            });
            match present {
                Ok((items, index)) => {
                    // It may have become less meanwhile.
                    if let Some(places) = &mut places {
                        let surplus = places.num_permits().saturating_sub(items.len());
                        drop(places.split(surplus));
                    }
                    return (items, index, places);
                }
                // It may become more while this waits; asked for twice as much each time, that
                // comes to an end.
                Err(count) => {
                    drop(places.take());
                    let wanted = count.max(room.saturating_mul(2));
                    let (some, enough) = self.context.presents.places(wanted).await;
                    (places, room) = (Some(some), enough);
                }
            }
        }
    }

    /// Tells a reader that has stopped reading, if it should ever go on, that it has to begin anew.
    async fn give_up(&self, why: String) -> Over {
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
