//! I44: what an operator changes is listed among the acts, and what changes nothing is not.

use ringfence_core::{
    AccessRecord, Command, EndCause, Event, LEVEL_ACCESS, LEVEL_RESTORE, Mode, PrincipalLimits,
    SessionEnd,
};

use super::{Invariant, Step};
use crate::view::View;

pub(super) struct ActsAreListed;

impl Invariant for ActsAreListed {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        let (before, after) = (&step.before, &step.after);
        let index = step.entry.index;
        let listed = after.acts.iter().any(|act| act.index == index);
        let ended = step.events.iter().any(|event| match event {
            Event::Ended { cause, .. } => matches!(cause, EndCause::Revoked { .. }),
            Event::SessionEnded { cause, .. } => matches!(cause, SessionEnd::Evicted { .. }),
            _ => false,
        });
        let asked = step.entry.command.bare();
        let set = matches!(asked, Command::Configure(_) | Command::ChangeAccess(_))
            && (before.header.settings != after.header.settings || rights(before) != rights(after));
        if (ended || set) && after.header.level >= LEVEL_ACCESS && !listed {
            return Err("an operator has changed something, and no act says so".into());
        }
        // What becomes of a request for another membership is not part of the state.
        let fair = after.header.level >= LEVEL_RESTORE && !matches!(asked, Command::Operate { .. });
        if fair && listed && unchanged(before, after) {
            return Err("an act is listed, and nothing has changed".into());
        }
        Ok(())
    }
}

/// Who may do what, whichever entry said so, or none yet.
fn rights(view: &View) -> ((Mode, PrincipalLimits), Vec<&AccessRecord>) {
    let others = |record: &&AccessRecord| !matches!(record, AccessRecord::Mode { .. });
    let others = view.access.iter().filter(others);
    (view.principal_limits(), others.collect())
}

fn unchanged(before: &View, after: &View) -> bool {
    let timeless = |view: &View| {
        let mut header = view.header.clone();
        (header.index, header.settings_set_at, header.audit_dropped) = (0, 0, 0);
        (header.time, header.wall) = Default::default();
        let gone = (view.ended.clone(), view.objects.clone(), view.gone.clone());
        let used = (view.sessions.clone(), view.leases.clone());
        (header, gone, used)
    };
    rights(before) == rights(after) && timeless(before) == timeless(after)
}
