//! I12: a queue is served in the order of its places. Who is handed a lease over is taken from
//! wherever it stands; no other session overtakes, none is granted past a queue.

use ringfence_core::snapshot::{LeaseRecord, WaiterRecord};
use ringfence_core::{EndCause, Event, Granted};

use super::{Invariant, Step};

pub(super) struct FirstInFirstOut;

impl Invariant for FirstInFirstOut {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        for lease in &step.before.leases {
            let queue = follow(lease, &step.events)?;
            let after = step.after.lease(&lease.name);
            let after = after.map_or(&[][..], |lease| &lease.queue);
            let kept = after.iter().zip(&queue).all(|(a, b)| a.place == b.place);
            let newer = after.len() == queue.len() || after.len() == queue.len() + 1;
            if !kept || !newer {
                return Err(format!("the queue should be {queue:?} and is {after:?}"));
            }
        }
        for lease in &step.after.leases {
            let places = lease.queue.windows(2);
            for pair in places {
                if pair[0].place >= pair[1].place {
                    return Err(format!("{} has places out of order", lease.name));
                }
            }
        }
        Ok(())
    }
}

/// The queue after these events.
fn follow(lease: &LeaseRecord, events: &[Event]) -> Result<Vec<WaiterRecord>, String> {
    let mut queue = lease.queue.clone();
    let mut handed_over = false;
    for event in events {
        match event {
            Event::Ended { name, cause, .. } if *name == lease.name => {
                handed_over = matches!(cause, EndCause::Transferred { .. });
            }
            Event::WaitEnded {
                name,
                session,
                request,
                ..
            } if *name == lease.name => {
                queue.retain(|waiter| (waiter.session, waiter.request) != (*session, *request));
            }
            Event::Granted(granted) if granted.name == lease.name => {
                serve(&mut queue, granted, handed_over)?;
                handed_over = false;
            }
            _ => {}
        }
    }
    Ok(queue)
}

fn serve(queue: &mut Vec<WaiterRecord>, granted: &Granted, any: bool) -> Result<(), String> {
    let mut places = queue.iter();
    let of_grant = |waiter: &WaiterRecord| {
        (waiter.session, waiter.request) == (granted.session, granted.request)
    };
    match places.position(of_grant) {
        Some(place) if any || place == 0 => {
            queue.remove(place);
            Ok(())
        }
        None if queue.is_empty() && !any => Ok(()),
        place => Err(format!("place {place:?} of {queue:?} got {granted:?}")),
    }
}
