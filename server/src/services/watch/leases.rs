//! `Leases.Watch`: grants and their ends.

use ringfence_core::{Event, LeaseName, StateMachine};
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::Position;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{Told, View, begin};
use crate::services::Context;

/// Leases whose names begin with a prefix.
struct Leases {
    prefix: String,
}

/// Begins a watch of leases.
pub(in crate::services) fn leases(
    context: &Context,
    request: v1::WatchRequest,
) -> Result<ReceiverStream<Result<v1::WatchResponse, Status>>, Refusal> {
    let prefix = wire::prefix_from_wire(request.prefix)?;
    let from = request.from.map(|from| place(context, &from)).transpose()?;
    begin(context, Leases { prefix }, from)
}

/// The place behind which a reader wants to go on, if it is one of this cluster.
fn place(context: &Context, from: &v1::Position) -> Result<Position, Refusal> {
    let theirs = wire::position_from_wire(from)?;
    let (ours, _) = context.cluster()?;
    if theirs.cluster != ours {
        return Err(Refusal::cluster_changed(theirs.cluster, ours));
    }
    Ok(Position {
        index: theirs.index,
        n: theirs.n,
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

    fn count(&self, machine: &StateMachine) -> usize {
        machine.held(&self.prefix)
    }

    /// All that are held; what is not among them is free. They have no position of their own:
    /// who goes on from within the present state would miss the rest of it.
    fn present(&mut self, machine: &StateMachine) -> Vec<v1::WatchEvent> {
        let held = machine
            .list(&self.prefix, None)
            .filter(|lease| lease.holder.is_some());
        let told = held.map(|lease| {
            let kind = v1::watch_event::Kind::Present(wire::lease_to_wire(&lease));
            v1::WatchEvent {
                kind: Some(kind),
                position: None,
            }
        });
        told.collect()
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
