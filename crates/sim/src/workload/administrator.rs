//! Administrators: they change who may do what, at random, and settings now and then. What they ask
//! for goes to a node as one call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringfence_core::{
    Access, AccessChange, Called, Caller, ChangeAccess, ClusterId, ClusterToken, Command,
    Configure, Millis, Mode, NamePattern, Outcome, Principal, PrincipalLimits, PrincipalPattern,
    Rule, Settings, Verb,
};
use tokio::time::sleep;

use crate::callers::Credential;
use crate::machine::Machine;
use crate::random::Random;
use crate::workload::Pace;
use crate::workload::elector::ACCOUNTS;
use crate::world::World;

/// How long rights stay as they are.
const PAUSE: (Duration, Duration) = (Duration::from_millis(150), Duration::from_millis(1_800));
/// How long an administrator waits before it tries again what failed.
const AGAIN: Duration = Duration::from_millis(100);
/// How long the first rules may take: every member has to announce that it knows rights.
const FIRST_MAX: Duration = Duration::from_secs(60);
/// The principal of operators.
const OPERATOR: &str = "cert:cn:operator";
/// For which leases rules are.
const NAMES: [&str; 6] = ["*", "*", "a/*", "b/*", "a/0", "b/1"];

/// How rights go on in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// The mode changes as often as anything else.
    Rolling,
    /// Rights bind from the first session to the end of the run.
    Bound,
}

/// What a run has of rights.
#[derive(Clone, Debug)]
pub struct Rights {
    /// What clients show; several may show the same.
    pub callers: Vec<Credential>,
    /// How rights go on.
    pub course: Course,
}

impl Rights {
    /// What the client with this number shows.
    #[must_use]
    pub fn of_client(&self, number: u32) -> Option<Credential> {
        let at = usize::try_from(number).unwrap_or_default();
        self.callers.get(at % self.callers.len().max(1)).cloned()
    }
}

/// Changes rights.
#[derive(Clone)]
pub struct Administrator {
    world: World,
    machine: Machine,
    rights: Rights,
    /// Set once callers can be named in the log.
    begun: Arc<AtomicBool>,
}

/// What a change is based on.
struct Known {
    cluster: ClusterId,
    access: Access,
    settings: Settings,
    settings_set_at: u64,
}

fn principal(text: &str) -> Principal {
    Principal::parse(text).expect("a principal as it is named")
}

fn rule(who: &Principal, verb: Verb, names: Option<&str>) -> Rule {
    Rule {
        principals: PrincipalPattern::Exact(who.clone()),
        verb,
        names: names.map(|names| NamePattern::parse(names).expect("a pattern as it is named")),
    }
}

impl Administrator {
    /// An administrator on a machine of its own.
    #[must_use]
    pub fn new(world: &World, rights: &Rights) -> Self {
        Self {
            world: world.clone(),
            machine: world.machine("administrator"),
            rights: rights.clone(),
            begun: Arc::default(),
        }
    }

    /// Who an operator is, once callers can be named.
    #[must_use]
    pub fn operator(&self) -> Option<Caller> {
        let begun = self.begun.load(Ordering::Relaxed);
        begun.then(|| called(principal(OPERATOR)))
    }

    /// Makes the first rules, and lets them bind if they are to; says whether that was done.
    pub async fn begin(&self) -> bool {
        let mut random = self.world.random("first rights");
        let operator = principal(OPERATOR);
        let mut changes = vec![
            AccessChange::AddRule(rule(&operator, Verb::Operate, None)),
            AccessChange::AddRule(rule(&operator, Verb::Configure, None)),
            AccessChange::AddRule(rule(&operator, Verb::Revoke, random.pick(&NAMES).copied())),
        ];
        for caller in &self.rights.callers {
            let names = random.pick(&NAMES).copied();
            changes.push(AccessChange::AddRule(rule(
                caller.principal(),
                Verb::Acquire,
                names,
            )));
            if let Credential::ClusterToken(of) = caller {
                changes.push(AccessChange::AddToken(token(of, &mut random)));
            }
        }
        changes.push(AccessChange::AddRule(Rule {
            principals: PrincipalPattern::parse(ACCOUNTS).expect("a pattern as it is named"),
            verb: Verb::Acquire,
            names: Some(NamePattern::parse("k8s/{namespace}/*").expect("as it is named")),
        }));
        if self.rights.course == Course::Bound {
            changes.push(AccessChange::SetMode(Mode::Enforced));
        }
        let until = self.world.now() + FIRST_MAX;
        while self.world.now() < until {
            for node in 0..self.world.nodes().len() {
                let Some(known) = self.look(node).await else {
                    continue;
                };
                // An answer that was lost is no reason to make the same rules once more.
                if known.access.set_at() > 0 || self.change(node, &known, changes.clone()).await {
                    self.begun.store(true, Ordering::Relaxed);
                    return true;
                }
            }
            sleep(AGAIN).await;
        }
        false
    }

    /// Changes rights at random, for ever.
    pub async fn govern(&self, pace: Pace) {
        let mut random = self.world.random("rights");
        loop {
            sleep(pace.of(random.time(PAUSE.0..PAUSE.1))).await;
            let nodes = self.world.nodes().len() as u64;
            let node = usize::try_from(random.within(0..nodes)).unwrap_or_default();
            let Some(known) = self.look(node).await else {
                continue;
            };
            if random.chance(80) {
                self.configure(&mut random, node, &known).await;
                continue;
            }
            let count = 1 + random.within(0..3);
            let mut changes: Vec<AccessChange> = Vec::new();
            for _ in 0..count {
                let next = self.draw(&mut random, &known.access);
                let makes = |change: &AccessChange| matches!(change, AccessChange::AddToken(_));
                if !(makes(&next) && changes.iter().any(makes)) {
                    changes.push(next);
                }
            }
            self.change(node, &known, changes).await;
        }
    }

    /// One change: most of them give back what others have taken away.
    fn draw(&self, random: &mut Random, access: &Access) -> AccessChange {
        let callers = &self.rights.callers;
        let who = random.pick(callers).map(Credential::principal).cloned();
        let who = who.unwrap_or_else(Principal::anonymous);
        let names = random.pick(&NAMES).copied();
        match random.within(0..100) {
            0..=29 => AccessChange::AddRule(rule(&who, Verb::Acquire, names)),
            30..=49 => {
                let of_clients = |rule: &&Rule| {
                    let exact = matches!(rule.principals, PrincipalPattern::Exact(_));
                    rule.verb == Verb::Acquire && exact
                };
                let rules: Vec<&Rule> = access.rules().filter(of_clients).collect();
                match random.pick(&rules) {
                    Some(rule) => AccessChange::RemoveRule((*rule).clone()),
                    None => AccessChange::AddRule(rule(&who, Verb::Acquire, Some("*"))),
                }
            }
            50..=62 => {
                let bans: Vec<&Principal> = access.bans().collect();
                match random.pick(&bans) {
                    Some(banned) => AccessChange::Unban((*banned).clone()),
                    None => AccessChange::Ban(who),
                }
            }
            63..=70 => {
                let of = callers.iter().find_map(|caller| match caller {
                    Credential::ClusterToken(of) => Some(of),
                    Credential::Proven(_) => None,
                });
                match of {
                    None => AccessChange::AddRule(rule(&who, Verb::Observe, names)),
                    Some(of) if access.tokens().next().is_some() && random.chance(500) => {
                        AccessChange::RemoveTokens(of.clone())
                    }
                    Some(of) => AccessChange::AddToken(token(of, random)),
                }
            }
            71..=76 => AccessChange::SetLimits(match random.chance(500) {
                true => PrincipalLimits::STANDARD,
                false => PrincipalLimits {
                    sessions: 1 + random.within(0..8),
                    leases: 1 + random.within(0..4),
                },
            }),
            77..=80 => {
                let mut revoking = access.rules().filter(|known| known.verb == Verb::Revoke);
                match revoking.next().filter(|_| random.chance(600)) {
                    Some(known) => AccessChange::RemoveRule(known.clone()),
                    None => AccessChange::AddRule(rule(&principal(OPERATOR), Verb::Revoke, names)),
                }
            }
            81..=84 => AccessChange::AddRule(rule(&who, Verb::Observe, names)),
            _ => match self.rights.course {
                Course::Bound => AccessChange::AddRule(rule(&who, Verb::Acquire, Some("*"))),
                Course::Rolling => {
                    let modes = [Mode::Off, Mode::Permissive, Mode::Enforced, Mode::Enforced];
                    AccessChange::SetMode(random.pick(&modes).copied().unwrap_or_default())
                }
            },
        }
    }

    /// Sets another setting, as the operator may, or as a client that may not.
    async fn configure(&self, random: &mut Random, node: usize, known: &Known) {
        let mut settings = known.settings;
        // One that no session of a run comes near: what changes is who may.
        let (standard, minutes) = (Settings::STANDARD.ttl_max, 5 + random.within(0..10));
        settings.ttl_max = standard.max(Millis::from_secs(60 * minutes));
        let configure = Command::Configure(Configure {
            based_on: known.settings_set_at,
            settings,
        });
        let stranger = self.rights.callers.first().map(Credential::principal);
        let by = match (random.chance(300), stranger) {
            (true, Some(stranger)) => stranger.clone(),
            _ => principal(OPERATOR),
        };
        self.ask(node, by, configure).await;
    }

    async fn change(&self, node: usize, known: &Known, changes: Vec<AccessChange>) -> bool {
        let change = Command::ChangeAccess(ChangeAccess {
            cluster: known.cluster,
            based_on: known.access.set_at(),
            changes,
        });
        let changed = self.ask(node, Principal::local(), change).await;
        matches!(changed, Some(Outcome::AccessChanged { .. }))
    }

    async fn look(&self, node: usize) -> Option<Known> {
        let looked = self.world.call(&self.machine, node, |node| async move {
            node.read(|machine| {
                Some(Known {
                    cluster: machine.cluster()?,
                    access: machine.access().clone(),
                    settings: *machine.settings(),
                    settings_set_at: machine.settings_set_at(),
                })
            })
        });
        looked.await.ok().flatten()
    }

    async fn ask(&self, node: usize, by: Principal, command: Command) -> Option<Outcome> {
        let caller = called(by);
        let command = Command::Called(Box::new(Called { caller, command }));
        let asked = self.world.call(&self.machine, node, move |node| {
            let command = command.clone();
            async move { node.propose(command).await }
        });
        Some(asked.await.ok()?.ok()?.outcome)
    }
}

fn called(principal: Principal) -> Caller {
    Caller {
        principal,
        token: None,
        node: 1,
    }
}

fn token(of: &Principal, random: &mut Random) -> ClusterToken {
    let mut digest = [0; 32];
    for part in digest.chunks_mut(8) {
        part.copy_from_slice(&random.next().to_le_bytes());
    }
    ClusterToken {
        principal: of.clone(),
        digest,
        expires: None,
    }
}
