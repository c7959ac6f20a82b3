//! I34: a leader whose disk hangs hands leadership over if the others can do without it: it does not
//! go on to have entries committed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Property;
use crate::observe::{At, Observation, Violation};

/// How long a leader may lead on: it gives up after 3 s without progress, and what it has offered to a
/// node that cannot take it is offered to another one.
const GIVES_WAY_WITHIN: Duration = Duration::from_secs(8);
/// How long it may go on to commit behind that: as long as nothing was committed there was no
/// client to give way to, and what it had offered just before to a node out of reach is waited for.
const COMMITS_FOR: Duration = Duration::from_secs(6);
/// Leaders write at least every half second while there are sessions.
const GAP: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct HungLeadersGiveWay {
    /// Since when disks hang.
    hang: BTreeMap<usize, At>,
    /// The newest term and its leader.
    leads: (u64, usize),
    /// The first and the newest of the entries of this term that came too late, without a gap.
    late: Option<(At, At)>,
}

impl Property for HungLeadersGiveWay {
    fn see(&mut self, at: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::DiskHangs { node } => {
                self.hang.insert(*node, at);
            }
            Observation::DiskGoesOn { node } => {
                self.hang.remove(node);
            }
            Observation::Ended { node, .. } => {
                // A node that starts again has another process, and other patience.
                if let Some(since) = self.hang.get_mut(node) {
                    *since = at;
                }
            }
            Observation::Leads { node, term } if *term > self.leads.0 => {
                self.leads = (*term, *node);
                self.late = None;
            }
            Observation::Applied(applied) if applied.first => {
                let (term, leader) = self.leads;
                let Some(since) = self.hang.get(&leader) else {
                    return Ok(());
                };
                if applied.entry.term != term || at <= *since + GIVES_WAY_WITHIN {
                    return Ok(());
                }
                let going_on = self.late.filter(|(_, newest)| at <= *newest + GAP);
                let first = going_on.map_or(at, |(first, _)| first);
                self.late = Some((first, at));
                if at > first + COMMITS_FOR {
                    return Err(Violation::of(
                        "I34",
                        format!(
                            "n{leader} leads on in term {term}, and its disk hangs since {since:?}"
                        ),
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn outlives_a_rollback(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Scene, broken};
    use super::*;

    fn scene() -> Scene<HungLeadersGiveWay> {
        let mut scene = Scene::of(HungLeadersGiveWay::default());
        scene.see(Observation::Leads { node: 1, term: 1 }).unwrap();
        scene.see(Observation::DiskHangs { node: 1 }).unwrap();
        scene.wait(6_000).tick(Vec::new()).unwrap();
        scene
    }

    #[test]
    fn a_leader_that_leads_on_with_a_disk_that_hangs_is_noticed() {
        let mut scene = scene();
        scene.wait(6_000);
        for _ in 0..12 {
            scene.wait(500).tick(Vec::new()).unwrap();
        }
        scene.wait(500).tick(Vec::new()).unwrap();
        broken(scene.wait(500).tick(Vec::new()), "I34");
    }

    #[test]
    fn one_that_gives_way_or_recovers_or_commits_nothing_may_be_there() {
        let mut gives_way = scene();
        gives_way.wait(6_000).tick(Vec::new()).unwrap();
        let next = Observation::Leads { node: 2, term: 2 };
        gives_way.see(next).unwrap();
        gives_way.term = 2;
        gives_way.wait(9_000).tick(Vec::new()).unwrap();
        let mut recovers = scene();
        recovers.see(Observation::DiskGoesOn { node: 1 }).unwrap();
        recovers.wait(9_000).tick(Vec::new()).unwrap();
        let mut silent = scene();
        silent.wait(60_000).tick(Vec::new()).unwrap();
        for _ in 0..9 {
            silent.wait(1_500).tick(Vec::new()).unwrap();
        }
    }
}
