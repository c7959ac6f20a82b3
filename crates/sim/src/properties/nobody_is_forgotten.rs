//! I13: no lost wake-up, no orphan grant, no ghost waiter. In the log: who waits is alive, who holds
//! is alive. Among clients: what a living session holds when the service has been well for long is
//! believed in by its client. At the end, when all clients are gone: no session holds, none waits.
//! (That a queue is served in the entry that frees its lease is looked at in `every_entry.rs`, which
//! knows the records of the state.)

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ringfence_core::{Event, Outcome};

use super::Property;
use super::track::InForce;
use crate::observe::{Applied, At, Belief, Observation, Phase, Violation};

#[derive(Default)]
pub(super) struct NobodyIsForgotten {
    held: InForce,
    granted_at: BTreeMap<u64, At>,
    ended: BTreeSet<u64>,
    ttls: BTreeMap<u64, Duration>,
    /// The token of each elector that leads.
    leading: BTreeMap<u32, u64>,
    /// Tokens that are believed in, or were until some moment.
    believed: BTreeMap<u64, Option<At>>,
    /// Who opened a session, as their answers reported.
    well_since: Option<At>,
    quiet: bool,
}

impl Property for NobodyIsForgotten {
    fn see(&mut self, at: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::Applied(applied) if applied.first => {
                return self
                    .entry(at, applied)
                    .map_err(|why| Violation::of("I13", why));
            }
            Observation::BeliefBegan(Belief { token, .. }) => {
                self.believed.insert(*token, None);
            }
            Observation::BeliefEnded { belief, until, .. } => {
                self.believed.insert(belief.token, Some(*until));
            }
            Observation::ElectorHolds { elector, token } => {
                self.leading.insert(*elector, *token);
                self.believed.insert(*token, None);
            }
            Observation::ElectorEnded { elector } => {
                if let Some(token) = self.leading.remove(elector) {
                    self.believed.insert(token, Some(at));
                }
            }
            Observation::Phase(Phase::Liveness) => self.well_since = Some(at),
            Observation::Phase(Phase::Quiet) => {
                self.quiet = true;
                return self.orphan(at).map_err(|why| Violation::of("I13", why));
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, _: At) -> Result<(), Violation> {
        match self.held.0.first_key_value().filter(|_| self.quiet) {
            Some((lease, grant)) => {
                let why = format!("{lease} is held by {grant:?}, and all clients are gone");
                Err(Violation::of("I13", why))
            }
            None => Ok(()),
        }
    }
}

impl NobodyIsForgotten {
    fn entry(&mut self, at: At, applied: &Applied) -> Result<(), String> {
        for event in &applied.events {
            match event {
                Event::Granted(granted) => {
                    if self.ended.contains(&granted.session.get()) {
                        return Err(format!("a ghost was granted a lease: {granted:?}"));
                    }
                    self.granted_at.insert(granted.token.get(), at);
                }
                Event::SessionEnded { session, .. } => drop(self.ended.insert(session.get())),
                _ => {}
            }
        }
        if let Outcome::Opened(opened) = &applied.outcome {
            let ttl = Duration::from_millis(opened.ttl.0);
            self.ttls.insert(opened.session.get(), ttl);
        }
        self.held.take(applied);
        // The session of a term of a Lease object is opened by no entry of its own.
        if let Outcome::Object(written) = &applied.outcome
            && let Some((_, ttl)) = written.held
            && let Some((session, _)) = self.held.of(written.object.name.as_str())
        {
            self.ttls.insert(session, Duration::from_millis(ttl.0));
        }
        let orphan = self
            .held
            .0
            .iter()
            .find(|(_, (session, _))| self.ended.contains(session));
        match orphan {
            Some((lease, grant)) => Err(format!("{lease} is held by the dead: {grant:?}")),
            None => Ok(()),
        }
    }

    /// Looks for grants that no client knows of although all has been well for long enough.
    fn orphan(&self, at: At) -> Result<(), String> {
        let Some(well_since) = self.well_since else {
            return Ok(());
        };
        for (lease, (session, token)) in &self.held.0 {
            let ttl = self.ttls.get(session).copied().unwrap_or_default();
            // Long enough for a dead client's session to end, and for a living one's releases.
            let patience = 2 * ttl + SETTLING;
            let granted = self.granted_at.get(token).copied().unwrap_or_default();
            let alone_since = match self.believed.get(token) {
                Some(None) => continue,
                Some(Some(until)) => *until,
                None => granted,
            };
            let since = alone_since.max(well_since);
            if at.saturating_sub(since) > patience {
                return Err(format!(
                    "{lease} is held by session {session} with token {token}, and no client has \
                     believed in that since {alone_since:?}; all is well since {well_since:?}"
                ));
            }
        }
        Ok(())
    }
}

/// How long a client may take to give back what it does not believe in, when all is well.
const SETTLING: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use ringfence_check::history::BeliefEnd;
    use ringfence_core::SessionEnd;

    use super::super::scene::{Scene, belief, broken, session_ended_event};
    use super::*;

    fn scene() -> Scene<NobodyIsForgotten> {
        let mut scene = Scene::of(NobodyIsForgotten::default());
        scene.open(1, 1_000).unwrap();
        scene.grant("a", 1, 5, 1).unwrap();
        scene
    }

    #[test]
    fn a_grant_whose_session_has_ended_is_noticed() {
        let end = session_ended_event(1, SessionEnd::Expired);
        broken(scene().tick(vec![end]), "I13");
    }

    #[test]
    fn a_grant_to_a_ghost_is_noticed() {
        let mut scene = Scene::of(NobodyIsForgotten::default());
        scene.open(1, 1_000).unwrap();
        scene
            .tick(vec![session_ended_event(1, SessionEnd::Expired)])
            .unwrap();
        broken(scene.grant("a", 1, 5, 1), "I13");
    }

    #[test]
    fn an_orphan_is_noticed_when_all_has_been_well_for_long() {
        let mut scene = scene();
        scene.phase(Phase::Liveness).unwrap();
        broken(scene.wait(7_001).phase(Phase::Quiet), "I13");
    }

    #[test]
    fn what_is_believed_in_is_no_orphan() {
        let mut scene = scene();
        let grant = belief(1, "a", 5);
        scene.believe(&grant).unwrap();
        scene.phase(Phase::Liveness).unwrap();
        scene.wait(60_000).doubt(&grant, BeliefEnd::Closed).unwrap();
        scene.wait(1).phase(Phase::Quiet).unwrap();
    }

    #[test]
    fn what_is_held_when_all_clients_are_gone_is_noticed() {
        let mut scene = scene();
        scene.phase(Phase::Quiet).unwrap();
        broken(scene.end(), "I13");
    }
}
