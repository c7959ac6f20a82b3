//! I4: no two clients believe in one lease at one true time, as long as no clock's rate is wrong by
//! more than the contract allows; and belief ends before the request leaves that gives a grant up.
//! Grants that were revoked with `--now` are not covered.

use std::collections::{BTreeMap, BTreeSet};

use ringfence_check::history::Op;
use ringfence_core::{Command, Outcome};

use super::{Bounds, Property};
use crate::observe::{At, Belief, Observation, Violation};

pub(super) struct Exclusive {
    bounds: Bounds,
    /// Since when who believes, and until when at most, by lease.
    leases: BTreeMap<String, Vec<Interval>>,
    revoked_now: BTreeSet<u64>,
    /// Tokens that were given up, and when the request left.
    given_up: BTreeMap<u64, At>,
    closed: BTreeMap<u64, At>,
}

struct Interval {
    belief: Belief,
    from: At,
    until: Option<At>,
}

/// How many past beliefs in one lease are remembered.
const PAST: usize = 64;

impl Exclusive {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            leases: BTreeMap::new(),
            revoked_now: BTreeSet::new(),
            given_up: BTreeMap::new(),
            closed: BTreeMap::new(),
        }
    }

    fn began(&mut self, at: At, belief: &Belief) {
        let intervals = self.leases.entry(belief.lease.clone()).or_default();
        if intervals.len() >= PAST {
            let past = intervals.iter().position(|past| past.until.is_some());
            past.map(|past| intervals.remove(past));
        }
        intervals.push(Interval {
            belief: belief.clone(),
            from: at,
            until: None,
        });
    }

    fn ended(&mut self, belief: &Belief, until: At) -> Result<(), Violation> {
        let intervals = self.leases.entry(belief.lease.clone()).or_default();
        let own = intervals
            .iter_mut()
            .find(|one| one.belief == *belief && one.until.is_none());
        let Some(own) = own else {
            return Err(Violation::of(
                "I4",
                format!("{belief:?} ended and never began"),
            ));
        };
        // A belief that was over when it began never was one.
        let (from, until) = (own.from, until.max(own.from));
        own.until = Some(until);
        let given_up = self.given_up.get(&belief.token);
        let left = given_up.into_iter().chain(self.closed.get(&belief.session));
        if let Some(left) = left.min().filter(|left| until > **left) {
            let why = format!("{belief:?} lasted until {until:?}, and was given up at {left:?}");
            return Err(Violation::of("I4", why));
        }
        self.overlap(belief, from, Some(until))
    }

    /// Whether another client believed in the lease within this time.
    fn overlap(&self, belief: &Belief, from: At, until: Option<At>) -> Result<(), Violation> {
        if !self.bounds.beliefs_are_exclusive() {
            return Ok(());
        }
        let intervals = self.leases.get(&belief.lease).into_iter().flatten();
        for other in intervals.filter(|other| other.belief.token != belief.token) {
            let older = other.belief.token.min(belief.token);
            let before = other.until.is_some_and(|end| end <= from);
            let behind = until.is_some_and(|end| end <= other.from);
            // Whose end is not reported yet is judged when it is.
            let open = other.until.is_none() && until.is_some();
            if !before && !behind && !open && !self.revoked_now.contains(&older) {
                let why = format!(
                    "{belief:?} from {from:?} to {until:?}, and {:?} from {:?} to {:?}",
                    other.belief, other.from, other.until
                );
                return Err(Violation::of("I4", why));
            }
        }
        Ok(())
    }
}

impl Property for Exclusive {
    fn see(&mut self, at: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::BeliefBegan(belief) => self.began(at, belief),
            Observation::BeliefEnded { belief, until, .. } => return self.ended(belief, *until),
            Observation::Applied(applied) if applied.first => {
                if let (Command::Revoke(revoke), Outcome::Done) =
                    (applied.entry.command.bare(), &applied.outcome)
                    && revoke.now
                {
                    self.revoked_now.insert(revoke.token.get());
                }
            }
            Observation::Asked(asked) => match &asked.op {
                Op::Release { token, .. } => drop(self.given_up.entry(*token).or_insert(at)),
                Op::Close => {
                    let session = asked.session.unwrap_or_default();
                    self.closed.entry(session).or_insert(at);
                }
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, _: At) -> Result<(), Violation> {
        let open = self.leases.values().flatten();
        let open = open.filter(|interval| interval.until.is_none());
        for interval in open {
            self.overlap(&interval.belief, interval.from, None)?;
        }
        Ok(())
    }

    fn outlives_a_restore(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use ringfence_check::history::BeliefEnd;

    use super::super::scene::{BOUNDS, Scene, belief, broken};
    use super::*;

    fn scene() -> Scene<Exclusive> {
        Scene::of(Exclusive::new(BOUNDS))
    }

    #[test]
    fn two_believers_at_one_time_are_noticed_however_late_they_say_so() {
        let (one, other) = (belief(1, "a", 5), belief(2, "a", 6));
        let mut scene = scene();
        scene.believe(&one).unwrap();
        scene.wait(100).believe(&other).unwrap();
        scene.wait(100).doubt(&one, BeliefEnd::Window).unwrap();
        broken(scene.wait(100).doubt(&other, BeliefEnd::Released), "I4");
    }

    #[test]
    fn a_belief_that_ended_before_is_no_overlap_even_if_that_is_told_late() {
        let (one, other) = (belief(1, "a", 5), belief(2, "a", 6));
        let mut scene = scene();
        scene.believe(&one).unwrap();
        let until = scene.wait(100).at;
        scene.wait(100).believe(&other).unwrap();
        let ended = Observation::BeliefEnded {
            belief: one,
            until,
            why: BeliefEnd::Window,
        };
        scene.wait(500).see(ended).unwrap();
        scene.wait(100).doubt(&other, BeliefEnd::Released).unwrap();
        scene.end().unwrap();
    }

    #[test]
    fn two_who_never_stop_believing_are_noticed_at_the_end() {
        let mut scene = scene();
        scene.believe(&belief(1, "a", 5)).unwrap();
        scene.wait(1).believe(&belief(2, "a", 6)).unwrap();
        broken(scene.end(), "I4");
    }

    #[test]
    fn clocks_beyond_the_bound_lift_the_promise() {
        let wild = Bounds {
            client_ppm: 200_000,
            ..BOUNDS
        };
        let mut scene = Scene::of(Exclusive::new(wild));
        scene.believe(&belief(1, "a", 5)).unwrap();
        scene.wait(1).believe(&belief(2, "a", 6)).unwrap();
        scene.end().unwrap();
    }

    #[test]
    fn a_release_that_leaves_before_belief_ends_is_noticed() {
        let one = belief(1, "a", 5);
        let mut scene = scene();
        scene.believe(&one).unwrap();
        let op = Op::Release {
            lease: "a".into(),
            token: 5,
            close: false,
        };
        scene.ask(1, 1, 2, op).unwrap();
        broken(scene.wait(1).doubt(&one, BeliefEnd::Released), "I4");
    }
}
