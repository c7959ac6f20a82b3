//! What the tests ask of a cluster.

use std::sync::Arc;
use std::time::Duration;

use ringfence_core::{
    Acquire, Acquired, Ask, Command, FencingToken, HolderData, Identity, LeaseName, Millis, Open,
    OpenId, Outcome, Rejection, Request, RequestNumber, Secret, SessionId,
};
use ringfence_raft::{Applied, ProposeError};
use ringfence_sim::listener::Deaf;
use ringfence_sim::machine::Machine;
use ringfence_sim::runner::{self, Report};
use ringfence_sim::setup::Setup;
use ringfence_sim::trace::Trace;
use ringfence_sim::world::World;

/// Runs a scenario and keeps its whole trace.
pub(crate) fn run<T, F, R>(seed: u64, setup: Setup, scenario: F) -> Report<T>
where
    F: FnOnce(World) -> R,
    R: Future<Output = T>,
{
    runner::run(seed, setup, Arc::new(Deaf), Trace::new(true), scenario)
}

/// A caller that tries until it has an answer.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) world: World,
    pub(crate) machine: Machine,
    pub(crate) number: u64,
}

impl Caller {
    pub(crate) fn new(world: &World, number: u64) -> Self {
        Self {
            world: world.clone(),
            machine: world.machine(&format!("c{number}")),
            number,
        }
    }

    /// Proposes through any node that takes it, again and again.
    pub(crate) async fn propose(&self, command: Command) -> Applied {
        let mut to = self.number as usize;
        loop {
            to = (to + 1) % self.world.nodes().len();
            let command = command.clone();
            let asked = self.world.call(&self.machine, to, move |node| {
                let command = command.clone();
                async move { node.propose(command).await }
            });
            match tokio::time::timeout(Duration::from_secs(5), asked).await {
                Ok(Ok(Ok(applied))) => return applied,
                Ok(Ok(Err(ProposeError::Fault { .. } | ProposeError::NotDone { .. })) | Err(_))
                | Ok(Ok(Err(ProposeError::Unknown { .. })))
                | Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    pub(crate) async fn open(&self) -> SessionId {
        self.open_as(1).await
    }

    /// Opens its `life`th session.
    async fn open_as(&self, life: u64) -> SessionId {
        let open = Open {
            id: OpenId::new(u128::from(self.number << 32 | life).to_be_bytes()),
            ttl: Millis(10_000),
            identity: Identity::parse("caller").unwrap(),
            secret: self.secret(),
            seen: None,
            acquire: None,
        };
        match self.propose(Command::Open(open)).await.outcome {
            Outcome::Opened(opened) => opened.session,
            other => panic!("{other:?}"),
        }
    }

    /// The token of a lease that is free.
    pub(crate) async fn acquire(
        &self,
        session: SessionId,
        number: u64,
        name: &str,
    ) -> FencingToken {
        let acquire = Acquire {
            name: LeaseName::parse(name).unwrap(),
            wait: None,
            data: HolderData::default(),
            lock_delay: Millis(0),
        };
        let outcome = self.ask(session, number, Ask::Acquire(acquire)).await;
        match outcome {
            Outcome::Acquired(Acquired::Granted(granted)) => granted.token,
            other => panic!("{other:?}"),
        }
    }

    async fn ask(&self, session: SessionId, number: u64, ask: Ask) -> Outcome {
        let number = RequestNumber::new(number).unwrap();
        let request = Request {
            session,
            secret: self.secret(),
            number,
            lowest: number,
            ask,
        };
        self.propose(Command::Request(request)).await.outcome
    }

    fn secret(&self) -> Secret {
        Secret::new(u128::from(self.number).to_be_bytes())
    }

    /// Takes leases and gives them back, a few times a second, and says how often it was granted
    /// one.
    pub(crate) async fn work_until(&self, until: Duration) -> u64 {
        let mut random = self.world.random(self.machine.name());
        let mut granted = 0;
        let mut lives = 0;
        while self.world.now() < until {
            lives += 1;
            let session = self.open_as(lives).await;
            let mut number = 0;
            while self.world.now() < until {
                let pause = Duration::from_millis(random.within(10..400));
                tokio::time::sleep(pause).await;
                let name = LeaseName::parse(&format!("lease-{}", random.within(0..3))).unwrap();
                let acquire = Acquire {
                    name: name.clone(),
                    wait: None,
                    data: HolderData::default(),
                    lock_delay: Millis(0),
                };
                number += 1;
                let outcome = self.ask(session, number, Ask::Acquire(acquire)).await;
                let token = match outcome {
                    Outcome::Acquired(Acquired::Granted(granted)) => granted.token,
                    Outcome::Rejected(Rejection::SessionExpired { .. }) => break,
                    _ => continue,
                };
                granted += 1;
                number += 1;
                let close = false;
                let release = Ask::Release { name, token, close };
                drop(self.ask(session, number, release).await);
            }
        }
        granted
    }
}
