//! `Leases.Watch`: grants and their ends.

use std::sync::Arc;

use ringfence_core::{Event, Frozen, LeaseName};
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::Position;

use super::{Messages, Resumed, Told, View, begin, page};
use crate::Context;
use crate::caller::Who;
use crate::clients::Account;

/// Leases whose names begin with a prefix.
struct Leases {
    prefix: String,
}

/// Begins a watch of leases.
pub(crate) fn leases(
    context: &Context,
    account: Arc<Account>,
    who: Who,
    request: v1::WatchRequest,
) -> Result<Messages<v1::WatchResponse>, Refusal> {
    let prefix = wire::prefix_from_wire(request.prefix)?;
    let from = request.from.map(|from| place(context, &from)).transpose()?;
    begin(context, account, who, Leases { prefix }, from)
}

/// The place behind which a reader wants to go on, if it is one of this cluster.
fn place(context: &Context, from: &v1::Position) -> Result<Resumed, Refusal> {
    let theirs = wire::position_from_wire(from)?;
    let (ours, _) = context.cluster()?;
    if theirs.cluster != ours {
        return Err(Refusal::cluster_changed(theirs.cluster, ours));
    }
    let at = Position {
        index: theirs.index,
        n: theirs.n,
    };
    Ok(Resumed {
        at,
        term: theirs.term,
    })
}

/// The lease that a watch tells of with this event, if it does.
fn subject(event: &Event) -> Option<&LeaseName> {
    match event {
        Event::Granted(granted) => Some(&granted.name),
        Event::Ended { name, .. } => Some(name),
        Event::WaitEnded { .. }
        | Event::SessionOpened { .. }
        | Event::SessionEnded { .. }
        | Event::Forgotten { .. } => None,
    }
}

impl View for Leases {
    type Item = v1::WatchEvent;
    type Message = v1::WatchResponse;

    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn begin(&mut self, _: &Frozen) {}

    /// All that are held; what is not among them is free. They have no position of their own: a
    /// reader that resumed from within the present state would miss the rest of it.
    fn page(
        &self,
        state: &Frozen,
        after: Option<&LeaseName>,
        room: usize,
    ) -> (Vec<v1::WatchEvent>, Option<LeaseName>) {
        let leases = state.list(&self.prefix, after.map(LeaseName::as_str));
        page(
            leases,
            |lease| lease.name.clone(),
            |lease| {
                lease.holder.as_ref()?;
                let kind = v1::watch_event::Kind::Present(wire::lease_to_wire(&lease));
                Some(v1::WatchEvent {
                    kind: Some(kind),
                    position: None,
                })
            },
            room,
        )
    }

    fn item(&mut self, at: v1::Position, event: Event) -> Option<v1::WatchEvent> {
        let name = subject(&event)?;
        if !name.as_str().starts_with(&self.prefix) {
            return None;
        }
        wire::event_to_wire(&event, at)
    }

    fn message(&self, events: Vec<v1::WatchEvent>, told: Told) -> v1::WatchResponse {
        v1::WatchResponse {
            events,
            position: told.position,
            compacted: told.compacted,
        }
    }
}
