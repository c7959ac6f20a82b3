//! Operators: they end grants and sessions, and look whether the service is there. What they ask for
//! goes to a node as one call.

use std::time::Duration;

use ringfence_check::history::{Invoked, Op, Outcome, Returned};
use ringfence_core::{
    Called, Caller, Command, Evict, FencingToken, LeaseName, Outcome as Said, Rejection, Revoke,
    SessionId,
};
use ringfence_proto::Refusal;
use tokio::time::sleep;

use crate::client::refused;
use crate::machine::Machine;
use crate::observe::{Observation, Recorder};
use crate::random::Random;
use crate::workload::Pace;
use crate::workload::administrator::Administrator;
use crate::world::{Lost, World};

/// The number of the operator among clients.
const OPERATOR: u32 = 1_000;
/// How long the operator does nothing.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(6));
/// How often the service is probed.
const PROBE: Duration = Duration::from_millis(50);
/// A lease that no client ever asks for.
const PROBED: &str = "probe";

/// A client with the right to interfere.
#[derive(Clone)]
pub struct Operator {
    world: World,
    machine: Machine,
    recorder: Recorder,
    administrator: Option<Administrator>,
}

impl Operator {
    /// An operator on a machine of its own.
    #[must_use]
    pub fn new(world: &World, recorder: &Recorder) -> Self {
        Self {
            world: world.clone(),
            machine: world.machine("operator"),
            recorder: recorder.clone(),
            administrator: None,
        }
    }

    /// The same with a principal, once this administrator has begun.
    #[must_use]
    pub fn under(self, administrator: Option<&Administrator>) -> Self {
        let administrator = administrator.cloned();
        Self {
            administrator,
            ..self
        }
    }

    /// Its principal, if the log can name one.
    #[must_use]
    pub fn caller(&self) -> Option<Caller> {
        self.administrator.as_ref()?.operator()
    }

    /// Revokes and evicts at random, forever.
    pub async fn interfere(&self, leases: Vec<LeaseName>, revoke_now: bool, pace: Pace) {
        let mut random = self.world.random("operator");
        loop {
            sleep(pace.of(random.time(PAUSE.0..PAUSE.1))).await;
            let nodes = self.world.nodes().len() as u64;
            let node = usize::try_from(random.within(0..nodes)).unwrap_or_default();
            let Some(lease) = random.pick(&leases).cloned() else {
                return;
            };
            let Some((token, session)) = self.holder(node, lease.clone()).await else {
                continue;
            };
            self.end(&mut random, node, (lease, token, session), revoke_now)
                .await;
        }
    }

    async fn end(
        &self,
        random: &mut Random,
        node: usize,
        grant: (LeaseName, FencingToken, SessionId),
        revoke_now: bool,
    ) {
        let (name, token, session) = grant;
        if random.chance(150) {
            let op = Op::Evict {
                session: session.get(),
            };
            let evict = Evict {
                session,
                reason: "at random".to_owned(),
                operator: "sim".to_owned(),
            };
            self.ask(node, op, Command::Evict(evict)).await;
            return;
        }
        let now = revoke_now && random.chance(200);
        self.ask(node, revoke_op(&name, token, now), revoke(name, token, now))
            .await;
    }

    /// Asks until the service is there, every so often at each node.
    pub async fn probe(&self) {
        loop {
            for node in 0..self.world.nodes().len() {
                let asker = self.clone();
                let _detached = tokio::spawn(async move { asker.write(node).await });
            }
            sleep(PROBE).await;
        }
    }

    /// Has an entry written at a node that changes nothing.
    pub async fn write(&self, node: usize) {
        let name = LeaseName::parse(PROBED).expect("a lease name");
        let token = FencingToken::new(1).expect("not 0");
        let op = revoke_op(&name, token, false);
        self.ask(node, op, revoke(name, token, false)).await;
    }

    /// Who holds a lease, as a node knows it.
    async fn holder(&self, node: usize, lease: LeaseName) -> Option<(FencingToken, SessionId)> {
        let held = self.world.call(&self.machine, node, move |node| {
            let lease = lease.clone();
            async move {
                let view = node.read(|machine| machine.get(&lease))?;
                let grant = view.holder?;
                Some((grant.token, grant.session))
            }
        });
        held.await.ok().flatten()
    }

    async fn ask(&self, node: usize, op: Op, command: Command) {
        let command = match self.caller() {
            Some(caller) => Command::Called(Box::new(Called { caller, command })),
            None => command,
        };
        let id = self.recorder.next_try();
        self.recorder.see(Observation::Asked(Invoked {
            id,
            t: self.recorder.nanos(),
            client: OPERATOR,
            session: None,
            request: None,
            op: op.clone(),
        }));
        let asked = self.world.call(&self.machine, node, move |node| {
            let command = command.clone();
            async move { node.propose(command).await }
        });
        let asked = asked.await;
        let index = match &asked {
            Ok(Ok(applied)) => Some(applied.index),
            _ => None,
        };
        let outcome = match asked {
            Ok(Ok(applied)) => outcome_of(&op, applied.outcome),
            // The call may have arrived twice, and the other time it may have been done.
            Ok(Err(error)) => Outcome::Unknown {
                error: error.to_string(),
            },
            Err(Lost::NotThere) => Outcome::Unknown {
                error: "no node is there".to_owned(),
            },
            Err(Lost::Unknown) => Outcome::Unknown {
                error: "the node ended".to_owned(),
            },
        };
        self.recorder.see(Observation::Answered(Returned {
            id,
            t: self.recorder.nanos(),
            outcome,
            index,
        }));
    }
}

fn revoke(name: LeaseName, token: FencingToken, now: bool) -> Command {
    Command::Revoke(Revoke {
        name,
        token,
        now,
        reason: "at random".to_owned(),
        operator: "sim".to_owned(),
    })
}

fn revoke_op(name: &LeaseName, token: FencingToken, now: bool) -> Op {
    Op::Revoke {
        lease: name.to_string(),
        token: token.get(),
        now,
    }
}

fn outcome_of(op: &Op, outcome: Said) -> Outcome {
    match outcome {
        Said::Rejected(Rejection::NotReady) => Outcome::Unknown {
            error: "not ready".to_owned(),
        },
        Said::Rejected(rejection) => refused(op, Refusal::from_rejection(&rejection)),
        Said::Closed { .. } => Outcome::Closed,
        _ => Outcome::Done,
    }
}
