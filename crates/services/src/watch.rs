//! Watches: the present state if asked for, then every event, then at least every second the
//! position reached.
//!
//! Each message takes room of its connection's account from before it is made until the client takes
//! it. A watch of a slow reader waits with it. When the ring of events has moved past it, it
//! receives `compacted` and begins again with the present state.

mod floors;
mod leases;
mod messages;
mod presents;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;

use ringfence_core::{Access, ClusterId, Event, Frozen, LeaseName, Mode, Scope};
use ringfence_planted::{Bug, planted};
use ringfence_proto::wire::WirePosition;
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::{EventFeed, Known, Position};
use tokio::sync::mpsc;
use tokio::time::error::Elapsed;
use tokio::time::{MissedTickBehavior, timeout};
use tonic::Status;

use super::{Context, hinted};
use crate::caller::Who;
use crate::clients::{Account, Held};
use crate::limits::{
    EVENTS_PER_MESSAGE_MAX, WATCH_EVENT_BYTES_EXPECTED, WATCH_MESSAGE_BYTES_EXPECTED,
    WATCH_MESSAGES_MAX, WATCH_QUIET_MAX,
};
use crate::places::Place;
use crate::rights::{expired, judged};
use crate::status::{RETRY_AFTER, not_read};

pub(super) use floors::floors;
pub(super) use leases::leases;
use messages::{Charged, Messages};
pub(super) use presents::Presents;

/// What a kind of watch tells.
trait View: Send + Sync + 'static {
    /// One report.
    type Item: Send;
    /// Some of them, as one message.
    type Message: prost::Message + 'static;

    /// All that it tells of begins with this.
    fn prefix(&self) -> &str;

    /// A present state is about to be reported out of this one.
    fn begin(&mut self, state: &Frozen);

    /// At most `room` items of a state, those behind the name `after`; and the
    /// name to go on behind, if there is more to look at.
    fn page(
        &self,
        state: &Frozen,
        after: Option<&LeaseName>,
        room: usize,
    ) -> (Vec<Self::Item>, Option<LeaseName>);

    /// What an event means to this watch, if anything.
    fn item(&mut self, at: v1::Position, event: Event) -> Option<Self::Item>;

    /// The message of these items; `told` says where that leaves the reader.
    fn message(&self, items: Vec<Self::Item>, told: Told) -> Self::Message;
}

/// Where a message leaves the reader.
struct Told {
    /// Up to here everything is reported; `None` within the present state.
    position: Option<v1::Position>,
    /// Within the present state: where that stands.
    within: Option<v1::Position>,
    /// The message begins a present state because events in between are gone.
    compacted: bool,
}

/// How far a message goes.
#[derive(Clone, Copy)]
enum Reached {
    /// Everything up to here is reported with it.
    All(Position),
    /// A part of the state that stands here.
    Within(Position),
}

/// One watch under way.
struct Watch<V: View> {
    context: Context,
    cluster: ClusterId,
    view: V,
    feed: EventFeed,
    out: mpsc::Sender<Result<Charged<V::Message>, Status>>,
    account: Arc<Account>,
    who: Who,
    /// The change of rights that `who` was last judged behind.
    judged_at: Option<u64>,
    _place: Place,
}

/// How many names of a state are looked at for one page.
const NAMES_PER_PAGE_MAX: usize = 1_024;

/// The watch is over; its reader has gone, or was notified.
struct Over;

/// From where a reader goes on.
#[derive(Debug, Clone, Copy)]
struct Resumed {
    at: Position,
    /// The term of the entry there, if the reader knows it.
    term: Option<u64>,
}

/// Begins a watch behind `from`, or with the present state.
fn begin<V: View>(
    context: &Context,
    account: Arc<Account>,
    who: Who,
    view: V,
    from: Option<Resumed>,
) -> Result<Messages<V::Message>, Refusal> {
    context.admit(&who)?;
    let (cluster, _) = context.cluster()?;
    let place = context.watch_place(&who)?;
    let (out, messages) = mpsc::channel(WATCH_MESSAGES_MAX);
    let feed = context.node.events();
    let watch = Watch {
        context: context.clone(),
        cluster,
        view,
        feed,
        out,
        account,
        who,
        judged_at: None,
        _place: place,
    };
    ringfence_raft::spawn(async move {
        let Over = watch.run(from).await;
    });
    Ok(Messages::new(messages))
}

impl<V: View> Watch<V> {
    async fn run(mut self, from: Option<Resumed>) -> Over {
        let stopped_of = self.context.clone();
        let out = self.out.clone();
        let over = tokio::select! {
            over = self.follow(from) => match over {
                Err(over) => over,
            },
            () = out.closed() => Over,
            () = stopped_of.stopped() => {
                let why = "this node is stopping; go on at another one from the last position";
                // A reader that does not read is not notified; it sees the connection end.
                let refusal = Refusal::unavailable(why, None, RETRY_AFTER);
                let refusal = hinted(&stopped_of.node, refusal);
                let _told = out.try_send(Err(refusal.into())).is_ok();
                Over
            }
        };
        over
    }

    async fn follow(&mut self, from: Option<Resumed>) -> Result<Infallible, Over> {
        let begun = match from {
            Some(from) => self.resume(from).await,
            None => self.begin_with_the_present().await,
        };
        let mut at = begun?;
        let mut quiet = tokio::time::interval(WATCH_QUIET_MAX);
        quiet.set_missed_tick_behavior(MissedTickBehavior::Delay);
        quiet.reset();
        let mut overdue = false;
        loop {
            let told = {
                // Given back before anything is waited for.
                let room = self.room().await;
                let most = events_in(&room);
                match self.feed.since(at, most) {
                    Ok(batch) => {
                        // The rights are at least as new as the events.
                        self.still_allowed().await?;
                        let full = batch.events.len() == most;
                        let items = self.items(batch.events);
                        at = at.max(batch.upto);
                        let tell = !items.is_empty() || overdue;
                        if tell {
                            self.send(room, items, Reached::All(at), false).await?;
                        }
                        if full {
                            continue;
                        }
                        tell
                    }
                    Err(_) => {
                        at = self.tell_present(room, true).await?;
                        true
                    }
                }
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

    /// Ends the watch if its caller may not go on: rights have changed, or its credential is over.
    async fn still_allowed(&mut self) -> Result<(), Over> {
        let access = self.context.node.read(|machine| machine.access().clone());
        if access.mode() == Mode::Enforced && self.who.has_expired() {
            return Err(self.deny(expired()).await);
        }
        if self.judged_at == Some(access.set_at())
            || (self.judged_at.is_some() && planted(Bug::WatchRightKept))
        {
            return Ok(());
        }
        self.judge(&access).await
    }

    /// Ends the watch unless its caller may have it under these rights.
    async fn judge(&mut self, access: &Access) -> Result<(), Over> {
        let scope = Scope::Prefix(self.view.prefix());
        let judge = |access: &Access| access.judge_read(self.who.principal(), scope);
        let judged = judged(access, self.context.caller(&self.who).as_ref(), judge);
        match self.context.heed(judged) {
            Ok(()) => {
                self.judged_at = Some(access.set_at());
                Ok(())
            }
            Err(refusal) => Err(self.deny(refusal).await),
        }
    }

    async fn deny(&self, refusal: Refusal) -> Over {
        self.context.metrics.denied(&refusal, true);
        self.out.send(Err(refusal.into())).await.ok();
        Over
    }

    fn items(&mut self, events: Vec<(Position, Event)>) -> Vec<V::Item> {
        let mut items = Vec::new();
        for (at, event) in events {
            let at = self.to_wire(at);
            items.extend(self.view.item(at, event));
        }
        items
    }

    /// Goes on behind a position, if the log has it.
    async fn resume(&mut self, from: Resumed) -> Result<Position, Over> {
        let Resumed { at, term } = from;
        let refusal = match self.context.node.known(at, term).await {
            Ok(Known::Yes) => return self.still_allowed().await.map(|()| at),
            Ok(Known::No { newest }) => Refusal::position_unknown(at.index, newest),
            Err(error) => hinted(&self.context.node, not_read(error)),
        };
        self.out.send(Err(refusal.into())).await.ok();
        Err(Over)
    }

    /// Nothing acknowledged before the watch began may be missing from what it begins with.
    async fn begin_with_the_present(&mut self) -> Result<Position, Over> {
        if let Err(refusal) = self.context.ready_to_read(None).await {
            let refusal = hinted(&self.context.node, refusal);
            self.out.send(Err(refusal.into())).await.ok();
            return Err(Over);
        }
        let room = self.room().await;
        self.tell_present(room, false).await
    }

    /// Tells the state at one index, in as many messages as it takes.
    async fn tell_present(&mut self, room: Held, compacted: bool) -> Result<Position, Over> {
        let state = self.context.node.frozen();
        self.judge(state.access()).await?;
        let at = Position::end_of(state.index());
        self.view.begin(&state);
        let (items, more) = self.view.page(&state, None, events_in(&room));
        // Waiting for a reader, it would keep in memory what changes meanwhile.
        drop(state);
        if more.is_none() {
            // No more memory than any message takes, so this waits for no slow reader.
            return self
                .send(room, items, Reached::All(at), compacted)
                .await
                .map(|()| at);
        }
        drop((items, room));
        let state = self.context.presents.state(&self.context.node).await;
        // Shared with others, and newer than the one before.
        self.judge(state.access()).await?;
        let at = Position::end_of(state.index());
        let leases = usize::try_from(state.summary().leases).unwrap_or(usize::MAX);
        let pace = self.context.presents.pace(leases);
        let telling = self.tell(&state, compacted, pace.stall);
        match timeout(pace.whole, telling).await {
            Ok(Ok(told)) => told.map(|()| at),
            Ok(Err(_)) | Err(_) => {
                drop(state);
                Err(self.give_up(pace.missed(leases)).await)
            }
        }
    }

    /// Tells a state page by page, the last page with the position; an error of time if a message
    /// waits for longer than `stall`.
    async fn tell(
        &mut self,
        state: &Frozen,
        mut compacted: bool,
        stall: Duration,
    ) -> Result<Result<(), Over>, Elapsed> {
        let at = Position::end_of(state.index());
        self.view.begin(state);
        let (mut items, mut after) = (Vec::new(), None);
        let mut held = timeout(stall, self.room()).await?;
        loop {
            let most = events_in(&held);
            let left = most - items.len();
            let (found, more) = self.view.page(state, after.as_ref(), left);
            items.extend(found);
            after = more;
            if after.is_some() && items.len() < most {
                // Names that no session holds may be many; others get their turn between pages.
                tokio::task::yield_now().await;
                continue;
            }
            if let Err(over) = self.still_allowed().await {
                return Ok(Err(over));
            }
            let reached = match after {
                None => Reached::All(at),
                Some(_) => Reached::Within(at),
            };
            let told = std::mem::take(&mut items);
            let sent = timeout(stall, self.send(held, told, reached, compacted)).await?;
            if after.is_none() || sent.is_err() {
                return Ok(sent);
            }
            compacted = false;
            held = timeout(stall, self.room()).await?;
        }
    }

    /// Queues an error so that a stalled reader restarts its watch.
    async fn give_up(&self, why: String) -> Over {
        let refusal = Refusal::unavailable(why, None, RETRY_AFTER);
        let refusal = hinted(&self.context.node, refusal);
        self.out.send(Err(refusal.into())).await.ok();
        Over
    }

    /// Room for a message that is about to be made, of one event at least.
    async fn room(&self) -> Held {
        self.account
            .reserve_some(WATCH_MESSAGE_BYTES_EXPECTED, WATCH_EVENT_BYTES_EXPECTED)
            .await
    }

    /// Sends a message in the room that was made for it, of which it keeps as much as it needs.
    async fn send(
        &mut self,
        mut room: Held,
        items: Vec<V::Item>,
        reached: Reached,
        compacted: bool,
    ) -> Result<(), Over> {
        let (position, within) = match reached {
            Reached::All(at) => (Some(self.to_wire(at)), None),
            Reached::Within(at) => (None, Some(self.to_wire(at))),
        };
        let beside = items.len() * size_of::<V::Item>();
        let message = self.view.message(
            items,
            Told {
                position,
                within,
                compacted,
            },
        );
        room.resize(message.encoded_len() + beside);
        let charged = Charged::new(message, room);
        self.out.send(Ok(charged)).await.map_err(|_| Over)
    }

    fn to_wire(&self, at: Position) -> v1::Position {
        wire::position_to_wire(WirePosition {
            cluster: self.cluster,
            index: at.index,
            n: at.n,
            term: self.feed.term_of(at.index),
        })
    }
}

/// How many events or leases a message in this room has at most.
fn events_in(room: &Held) -> usize {
    (room.bytes() / WATCH_EVENT_BYTES_EXPECTED).clamp(1, EVENTS_PER_MESSAGE_MAX)
}

/// At most `room` items of at most [`NAMES_PER_PAGE_MAX`] names, and the name to go on behind if there may be
/// more.
fn page<N, T>(
    names: impl Iterator<Item = N>,
    name: impl Fn(&N) -> LeaseName,
    item: impl Fn(N) -> Option<T>,
    room: usize,
) -> (Vec<T>, Option<LeaseName>) {
    let mut items = Vec::new();
    let mut last = None;
    for (looked, found) in names.enumerate() {
        if items.len() == room || looked == NAMES_PER_PAGE_MAX {
            return (items, last);
        }
        last = Some(name(&found));
        items.extend(item(found));
    }
    (items, None)
}
