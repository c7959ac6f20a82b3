//! I8: a session that gives no sign of life ends within its TTL and 1 s of cluster time as long as
//! the term does not change. I9: it ends within two TTLs and 1 s whatever leaders do. Cluster time
//! is recomputed from the log. And when all clients are gone, no client's session is left.

use super::Property;
use super::track::{Life, Lives};
use crate::observe::{Applied, At, Observation, Phase, Violation};

/// By how much an end may be late, in milliseconds of cluster time.
const LATE_MAX: u64 = 1_000;

pub(super) struct SilentSessionsEnd {
    id: &'static str,
    whatever_leaders_do: bool,
    lives: Lives,
    term: u64,
    quiet: bool,
}

impl SilentSessionsEnd {
    pub(super) fn within_one_ttl() -> Self {
        Self::new("I8", false)
    }

    pub(super) fn within_two_ttls() -> Self {
        Self::new("I9", true)
    }

    fn new(id: &'static str, whatever_leaders_do: bool) -> Self {
        Self {
            id,
            whatever_leaders_do,
            lives: Lives::default(),
            term: 0,
            quiet: false,
        }
    }

    /// When it has to have ended, in cluster time.
    fn end_of(&self, life: &Life) -> Option<u64> {
        if self.whatever_leaders_do {
            return Some(life.seen + 2 * life.ttl + LATE_MAX);
        }
        (life.term == self.term).then_some(life.seen + life.ttl + LATE_MAX)
    }

    fn entry(&mut self, applied: &Applied) -> Result<(), Violation> {
        self.lives.move_time(&applied.entry, &applied.outcome);
        self.term = self.term.max(applied.entry.term);
        // Those who end by this entry have lived up to it.
        self.overdue(|_| true)?;
        let (outcome, events) = (&applied.outcome, &applied.events);
        self.lives.take(&applied.entry, outcome, events);
        Ok(())
    }

    fn overdue(&self, counts: impl Fn(u64) -> bool) -> Result<(), Violation> {
        let now = self.lives.time;
        for (session, life) in &self.lives.living {
            let end = self.end_of(life);
            if let Some(end) = end.filter(|end| *end < now && counts(*session)) {
                let why = format!("session {session} lives at {now}, {end} was its last: {life:?}");
                return Err(Violation::of(self.id, why));
            }
        }
        Ok(())
    }
}

impl Property for SilentSessionsEnd {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::Applied(applied) if applied.first => return self.entry(applied),
            Observation::Phase(Phase::Quiet) => self.quiet = true,
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, _: At) -> Result<(), Violation> {
        let left = self.lives.living.first_key_value();
        match left.filter(|_| self.quiet) {
            Some((session, life)) => {
                let why = format!("session {session} outlived the quiet period: {life:?}");
                Err(Violation::of(self.id, why))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ringfence_core::SessionEnd;

    use super::super::scene::{Scene, broken, session_ended_event};
    use super::*;

    fn scene(property: SilentSessionsEnd) -> Scene<SilentSessionsEnd> {
        let mut scene = Scene::of(property);
        scene.term_start().unwrap();
        scene.open(1, 2_000).unwrap();
        scene
    }

    #[test]
    fn a_session_that_outlives_its_ttl_by_more_than_a_second_is_noticed() {
        let mut scene = scene(SilentSessionsEnd::within_one_ttl());
        scene.wait(3_000).tick(Vec::new()).unwrap();
        broken(scene.wait(1).tick(Vec::new()), "I8");
    }

    #[test]
    fn an_end_that_comes_late_is_noticed_as_well() {
        let mut scene = scene(SilentSessionsEnd::within_one_ttl());
        let end = session_ended_event(1, SessionEnd::Expired);
        broken(scene.wait(3_001).tick(vec![end]), "I8");
    }

    #[test]
    fn a_fresh_ttl_in_every_term_is_noticed() {
        let mut scene = scene(SilentSessionsEnd::within_two_ttls());
        for _ in 0..3 {
            scene.wait(1_600).term_start().unwrap();
            scene.tick(Vec::new()).unwrap();
        }
        broken(scene.wait(300).tick(Vec::new()), "I9");
    }

    #[test]
    fn whoever_is_kept_alive_may_live() {
        for property in [
            SilentSessionsEnd::within_one_ttl(),
            SilentSessionsEnd::within_two_ttls(),
        ] {
            let mut scene = scene(property);
            for _ in 0..10 {
                scene.wait(1_500).renew(1).unwrap();
            }
        }
    }

    #[test]
    fn who_is_left_when_all_clients_are_gone_is_noticed() {
        let mut scene = scene(SilentSessionsEnd::within_one_ttl());
        scene.end().unwrap();
        scene.phase(Phase::Quiet).unwrap();
        broken(scene.end(), "I8");
    }
}
