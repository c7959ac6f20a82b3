//! `Leases.WatchFloors`: the greatest token ever granted per name, for guards that want to refuse
//! a stale holder before the new one's first write.

use std::sync::Arc;

use ringfence_core::{Event, FencingToken, Frozen, LeaseName};
use ringfence_proto::{Refusal, v1, wire};

use super::{Messages, Told, View, begin, page};
use crate::Context;
use crate::caller::Who;
use crate::clients::Account;

/// Floors of names that begin with a prefix.
struct Floors {
    prefix: String,
    /// The greatest floor that was ever forgotten with an idle name, whatever its prefix.
    forgotten: u64,
}

/// Begins a watch of floors.
pub(crate) fn floors(
    context: &Context,
    account: Arc<Account>,
    who: Who,
    request: v1::WatchFloorsRequest,
) -> Result<Messages<v1::WatchFloorsResponse>, Refusal> {
    let prefix = wire::prefix_from_wire(request.prefix)?;
    begin(
        context,
        account,
        who,
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

    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn begin(&mut self, state: &Frozen) {
        self.forgotten = state.summary().forgotten.map_or(0, FencingToken::get);
    }

    fn page(
        &self,
        state: &Frozen,
        after: Option<&LeaseName>,
        room: usize,
    ) -> (Vec<Self::Item>, Option<LeaseName>) {
        let floors = state.floors(&self.prefix, after.map(LeaseName::as_str));
        page(floors, |(name, _)| name.clone(), Some, room)
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
            // Each message says of which cluster it is, also before the state is complete.
            position: told.position.or(told.within),
        }
    }
}
