//! `Leases.WatchFloors`: the greatest token ever granted per name, for guards that want to refuse
//! a stale holder before the new one's first write.

use ringfence_core::{Event, FencingToken, LeaseName, StateMachine};
use ringfence_proto::{Refusal, v1, wire};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{Told, View, begin};
use crate::services::Context;

/// Floors of names that begin with a prefix.
struct Floors {
    prefix: String,
    /// The greatest floor that was ever forgotten with an idle name, whatever its prefix.
    forgotten: u64,
}

/// Begins a watch of floors.
pub(in crate::services) fn floors(
    context: &Context,
    request: v1::WatchFloorsRequest,
) -> Result<ReceiverStream<Result<v1::WatchFloorsResponse, Status>>, Refusal> {
    let prefix = wire::prefix_from_wire(request.prefix)?;
    begin(
        context,
        Floors {
            prefix,
            forgotten: 0,
        },
        None,
    )
}

impl View for Floors {
    type Item = (LeaseName, FencingToken);
    type Message = v1::WatchFloorsResponse;

    fn count(&self, machine: &StateMachine) -> usize {
        machine.floors(&self.prefix).count()
    }

    fn present(&mut self, machine: &StateMachine) -> Vec<Self::Item> {
        self.forgotten = machine.summary().forgotten.map_or(0, FencingToken::get);
        machine.floors(&self.prefix).collect()
    }

    fn item(&mut self, _: v1::Position, event: Event) -> Option<Self::Item> {
        match event {
            Event::Granted(granted) if granted.name.as_str().starts_with(&self.prefix) => {
                Some((granted.name, granted.token))
            }
            Event::Forgotten { floor, .. } => {
                self.forgotten = self.forgotten.max(floor.get());
                None
            }
            Event::Granted(_)
            | Event::Ended { .. }
            | Event::WaitEnded { .. }
            | Event::SessionOpened { .. }
            | Event::SessionEnded { .. } => None,
        }
    }

    fn message(&self, floors: Vec<Self::Item>, told: Told) -> v1::WatchFloorsResponse {
        let floors = floors
            .iter()
            .map(|(name, token)| wire::floor_to_wire(name, *token));
        v1::WatchFloorsResponse {
            forgotten: self.forgotten,
            floors: floors.collect(),
            complete: told.position.is_some(),
            position: told.position,
        }
    }
}
