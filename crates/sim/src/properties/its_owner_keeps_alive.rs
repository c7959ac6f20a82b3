//! I42: once rights bind, no session is kept alive but by its owner: behind each renewal stands a
//! keep-alive that its own principal has asked for and that was not answered yet.

use std::collections::{BTreeMap, BTreeSet};

use ringfence_core::{Command, Mode, Outcome, Principal};
use ringfence_testkit::model::rights::Rights;

use super::Property;
use crate::observe::{Applied, At, Kept, Observation, Violation};

/// How long, in milliseconds of cluster time, rights have to bind before renewals are judged: what
/// the leader let pass before may be logged behind the change.
const BOUND_FOR: u64 = 3_000;
/// How often a keep-alive without an answer may still be logged: at the leader, and at another one
/// to which it was handed on.
const LATE_MAX: u64 = 2;

/// What one principal asked for one session.
#[derive(Default)]
struct Asked {
    /// Tries without an answer.
    open: BTreeSet<u64>,
    /// How often tries that were given up may still take effect.
    late: u64,
}

#[derive(Default)]
pub(super) struct ItsOwnerKeepsAlive {
    principals: BTreeMap<u32, Principal>,
    /// Who asked with a try, and for which sessions.
    tries: BTreeMap<u64, (Principal, Vec<u64>)>,
    asked: BTreeMap<(u64, Principal), Asked>,
    /// Since when rights bind, in cluster time.
    bound: Option<u64>,
    /// Since when each session has an owner.
    owned: BTreeMap<u64, u64>,
}

impl Property for ItsOwnerKeepsAlive {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::Caller { client, principal } => {
                self.principals.insert(*client, principal.clone());
            }
            Observation::KeepAliveAsked {
                id,
                client,
                sessions,
            } => {
                if let Some(principal) = self.principals.get(client) {
                    for session in sessions {
                        let key = (*session, principal.clone());
                        self.asked.entry(key).or_default().open.insert(*id);
                    }
                    self.tries
                        .insert(*id, (principal.clone(), sessions.clone()));
                }
            }
            Observation::KeptAlive {
                id, session, what, ..
            } => {
                let told = !matches!(what, Kept::NotDone | Kept::Untold);
                self.over(*id, &[*session], told);
            }
            Observation::Abandoned { id } => {
                let sessions = self.tries.get(id).map(|(_, sessions)| sessions.clone());
                self.over(*id, &sessions.unwrap_or_default(), false);
            }
            Observation::ThiefServed { client, answer } => {
                let why = format!("client {client} asked for another's session, and got {answer}");
                return Err(Violation::of("I42", why));
            }
            Observation::Applied(applied) if applied.first => {
                return self.entry(applied).map_err(|why| Violation::of("I42", why));
            }
            _ => {}
        }
        Ok(())
    }
}

impl ItsOwnerKeepsAlive {
    /// No answer is waited for any more: one came, or the stream is gone.
    fn over(&mut self, id: u64, sessions: &[u64], told: bool) {
        let Some((principal, _)) = self.tries.get(&id) else {
            return;
        };
        for session in sessions {
            let key = (*session, principal.clone());
            if let Some(asked) = self.asked.get_mut(&key)
                && asked.open.remove(&id)
                && !told
            {
                asked.late += LATE_MAX;
            }
        }
    }

    fn entry(&mut self, applied: &Applied) -> Result<(), String> {
        let Some(after) = &applied.after else {
            return Ok(());
        };
        let now = after.time().0;
        let enforced = Rights::of(&after.access).mode == Mode::Enforced;
        self.bound = enforced.then(|| self.bound.unwrap_or(now));
        for session in after.sessions.iter().filter(|one| one.owner.is_some()) {
            self.owned.entry(session.id.get()).or_insert(now);
        }
        let (Command::Renew(renew), Outcome::Renewed(renewed)) =
            (&applied.entry.command, &applied.outcome)
        else {
            return Ok(());
        };
        let settled = |since: Option<u64>| since.is_some_and(|since| since + BOUND_FOR < now);
        if !settled(self.bound) {
            return Ok(());
        }
        for id in renew
            .sessions
            .iter()
            .filter(|id| !renewed.ended.contains(id))
        {
            let owner = after.session(*id).and_then(|session| session.owner.clone());
            let Some(owner) = owner.filter(|_| settled(self.owned.get(&id.get()).copied())) else {
                continue;
            };
            let asked = self.asked.entry((id.get(), owner.clone())).or_default();
            if asked.open.is_empty() {
                let why = format!("session {id} of {owner} is renewed, and {owner} did not ask");
                asked.late = asked.late.checked_sub(1).ok_or(why)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ringfence_core::{
        AccessRecord, ClusterTime, PrincipalLimits, Renew, Renewed, StateMachine,
    };
    use ringfence_testkit::view::View;

    use super::super::scene::{Scene, broken, session};
    use super::*;

    const TTL: u64 = 1_000;

    fn principal(text: &str) -> Principal {
        Principal::parse(text).unwrap()
    }

    /// A session of `cert:cn:a`, which client 1 is; client 2 is another. Rights bind for long.
    fn scene() -> Scene<ItsOwnerKeepsAlive> {
        let mut scene = Scene::of(ItsOwnerKeepsAlive::default());
        for (client, who) in [(1, "cert:cn:a"), (2, "cert:cn:b")] {
            let principal = principal(who);
            scene
                .see(Observation::Caller { client, principal })
                .unwrap();
        }
        renewed(&mut scene).unwrap();
        scene.wait(BOUND_FOR + TTL);
        scene
    }

    fn asks(scene: &mut Scene<ItsOwnerKeepsAlive>, id: u64, client: u32) {
        let sessions = vec![1];
        let seen = Observation::KeepAliveAsked {
            id,
            client,
            sessions,
        };
        scene.see(seen).unwrap();
    }

    fn renewed(scene: &mut Scene<ItsOwnerKeepsAlive>) -> Result<(), Violation> {
        let machine = StateMachine::new();
        let mut after = View::of(&machine);
        after.header.time = ClusterTime(scene.time);
        after.access = vec![AccessRecord::Mode {
            mode: Mode::Enforced,
            limits: PrincipalLimits::STANDARD,
            set_at: 1,
        }];
        after.sessions = vec![ringfence_core::snapshot::SessionRecord {
            owner: Some(principal("cert:cn:a")),
            ..super::super::scene::session_record(1, TTL)
        }];
        let renew = Renew {
            sessions: vec![session(1)],
            acknowledged: Vec::new(),
        };
        scene.index += 1;
        let outcome = Outcome::Renewed(Renewed::default());
        let mut applied = scene.applied(0, Command::Renew(renew), outcome, Vec::new());
        applied.after = Some(Arc::new(after));
        scene.see(Observation::Applied(Arc::new(applied)))
    }

    #[test]
    fn a_renewal_that_only_a_stranger_asked_for_is_noticed() {
        let mut scene = scene();
        asks(&mut scene, 1, 2);
        broken(renewed(&mut scene), "I42");
    }

    #[test]
    fn a_renewal_that_its_owner_asked_for_is_its_right() {
        let mut scene = scene();
        asks(&mut scene, 1, 1);
        renewed(&mut scene).unwrap();
        let what = Kept::Alive;
        let (id, client, session) = (1, 1, 1);
        let kept = Observation::KeptAlive {
            id,
            client,
            session,
            what,
        };
        scene.see(kept).unwrap();
        broken(renewed(&mut scene), "I42");
    }

    #[test]
    fn what_was_given_up_may_come_late_but_not_for_ever() {
        let mut scene = scene();
        asks(&mut scene, 1, 1);
        scene.see(Observation::Abandoned { id: 1 }).unwrap();
        for _ in 0..LATE_MAX {
            renewed(&mut scene).unwrap();
        }
        broken(renewed(&mut scene), "I42");
    }

    #[test]
    fn a_thief_that_is_served_is_noticed() {
        let (client, answer) = (2, "Released".to_owned());
        broken(
            scene().see(Observation::ThiefServed { client, answer }),
            "I42",
        );
    }
}
