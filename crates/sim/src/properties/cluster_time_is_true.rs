//! I22: within a term cluster time never runs faster than the clocks of nodes may; and while entries
//! follow each other within what a reading may run ahead (a second, and a fifth of the shortest TTL)
//! and nothing is in their way, it runs no slower either.

use std::time::Duration;

use ringfence_core::Command;
use ringfence_testkit::view::View;

use super::{Bounds, Property};
use crate::observe::{Applied, At, Observation, Phase, Violation};

/// What the contract allows beside the clocks' error.
const SLACK: Duration = Duration::from_millis(50);
/// A reading may run ahead of applied time by this, and by this part of the shortest TTL of a living
/// session. Entries further apart let cluster time stand still.
const LEAD_MAX: Duration = Duration::from_secs(1);
const LEAD_PART: u32 = 5;
/// Behind the last fault it may take this long until nothing is in the way any more.
const CALM_AFTER: Duration = Duration::from_secs(5);

pub(super) struct ClusterTimeIsTrue {
    bounds: Bounds,
    term: u64,
    /// The first application of the term's first entry, and cluster time then.
    opened: Option<(At, u64)>,
    time: u64,
    calm_from: Option<At>,
    /// Where the present stretch of calm entries begins, and its last entry so far.
    calm: Option<(At, u64)>,
    last: At,
    /// How far a reading may run ahead of the last entry.
    lead: Duration,
}

impl ClusterTimeIsTrue {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            term: 0,
            opened: None,
            time: 0,
            calm_from: None,
            calm: None,
            last: At::ZERO,
            lead: LEAD_MAX,
        }
    }

    fn entry(&mut self, at: At, applied: &Applied) -> Result<(), Violation> {
        let entry = &applied.entry;
        if matches!(entry.command, Command::TermStart { .. }) && entry.term > self.term {
            self.term = entry.term;
            self.opened = Some((at, self.time));
            self.calm = None;
        } else if entry.term == self.term {
            self.time = self.time.max(entry.time.0);
            self.not_faster(at)?;
            self.not_slower(at)?;
        }
        self.last = at;
        if let Some(after) = &applied.after {
            self.lead = lead(after);
        }
        Ok(())
    }

    fn not_faster(&self, at: At) -> Result<(), Violation> {
        let Some((since, start)) = self.opened else {
            return Ok(());
        };
        let shown = Duration::from_millis(self.time.saturating_sub(start));
        let most = self.bounds.most_shown(at.saturating_sub(since)) + SLACK;
        if shown <= most {
            return Ok(());
        }
        let why = format!(
            "cluster time ran {shown:?} within {:?}",
            at.saturating_sub(since)
        );
        Err(Violation::of("I22", why))
    }

    fn not_slower(&mut self, at: At) -> Result<(), Violation> {
        let calm = self.calm_from.is_some_and(|from| at >= from);
        // The reading runs ahead until the entry that it stamped is applied.
        let close = at.saturating_sub(self.last) + self.bounds.round_trip <= self.lead;
        let Some((since, start)) = self.calm.filter(|_| calm && close) else {
            self.calm = calm.then_some((at, self.time));
            return Ok(());
        };
        let shown = Duration::from_millis(self.time.saturating_sub(start));
        // The entry was stamped at most a round trip before.
        let passed = at
            .saturating_sub(since)
            .saturating_sub(self.bounds.round_trip);
        let least = self.bounds.least_shown(passed).saturating_sub(SLACK);
        if shown >= least {
            return Ok(());
        }
        let why = format!("cluster time ran {shown:?} within {passed:?}, with all well");
        Err(Violation::of("I22", why))
    }
}

fn lead(view: &View) -> Duration {
    let bounded = view.sessions.iter().filter(|session| session.pod.is_none());
    let shortest = bounded.map(|session| session.ttl.0).min();
    let part = shortest.map(|ttl| Duration::from_millis(ttl) / LEAD_PART);
    part.unwrap_or(LEAD_MAX).min(LEAD_MAX)
}

impl Property for ClusterTimeIsTrue {
    fn see(&mut self, at: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::Applied(applied) if applied.first => return self.entry(at, applied),
            Observation::Phase(Phase::Liveness) => self.calm_from = Some(at + CALM_AFTER),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{BOUNDS, Scene, broken};
    use super::*;

    fn scene() -> Scene<ClusterTimeIsTrue> {
        let mut scene = Scene::of(ClusterTimeIsTrue::new(BOUNDS));
        scene.tick(Vec::new()).unwrap();
        scene.time = 0;
        scene.term_start().unwrap();
        scene.tick(Vec::new()).unwrap();
        scene
    }

    #[test]
    fn time_that_runs_too_fast_is_noticed() {
        let mut scene = scene();
        scene.wait(10_000).tick(Vec::new()).unwrap();
        scene.time += 140;
        scene.tick(Vec::new()).unwrap();
        scene.time += 20;
        broken(scene.tick(Vec::new()), "I22");
    }

    #[test]
    fn time_that_stands_still_while_all_is_well_is_noticed() {
        let mut scene = scene();
        scene.phase(Phase::Liveness).unwrap();
        for _ in 0..12 {
            scene.wait(500).tick(Vec::new()).unwrap();
        }
        scene.at += Duration::from_millis(500);
        broken(scene.tick(Vec::new()), "I22");
    }

    #[test]
    fn time_may_stand_still_behind_a_gap() {
        let mut scene = scene();
        scene.phase(Phase::Liveness).unwrap();
        for _ in 0..12 {
            scene.wait(500).tick(Vec::new()).unwrap();
        }
        scene.at += Duration::from_secs(3_600);
        scene.tick(Vec::new()).unwrap();
    }
}
