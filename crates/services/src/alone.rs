//! A cluster of one node in the process of a test, with what its services share.

use std::time::Duration;

use futures_util::future::join_all;
use ringfence_core::{
    AccessChange, Acquire, Acquired, Ask, Called, Caller, ChangeAccess, Command, Granted,
    HolderData, Identity, LEVEL_ACCESS, LeaseName, Millis, Mode, NamePattern, Open, OpenId, Opened,
    Outcome, Principal, PrincipalPattern, Request, RequestNumber, Revoke, Rule, Secret, SessionId,
    Verb,
};
use ringfence_raft::{Hooks, Node, NodeConfig};
use ringfence_testkit::ports::Port;
use tokio::sync::watch;

use super::Context;
use crate::caller::{Identified, Who};
use crate::clients::Pool;

/// How many leases [`Alone::fill`] takes.
pub(super) const LEASES: u64 = 1_000;
/// Requests of the session that are under way together.
const TOGETHER: u64 = 250;
/// How long a step may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Alone {
    pub(super) node: Node,
    pub(super) context: Context,
    _dir: tempfile::TempDir,
    _stop: watch::Sender<bool>,
}

/// The identified caller of this principal.
pub(super) fn proven(principal: &str) -> Identified {
    Identified {
        principal: Principal::parse(principal).unwrap(),
        token: None,
        pod: None,
        process: None,
        expires_unix: None,
    }
}

/// A cluster of one node that serves.
pub(super) async fn alone() -> Alone {
    alone_with(Hooks::default()).await
}

/// The same with some parts of its outside world replaced.
pub(super) async fn alone_with(hooks: Hooks) -> Alone {
    let (dir, port) = (tempfile::tempdir().unwrap(), Port::any());
    let config = NodeConfig {
        peer_listen: port.address(),
        // Rights bind only where strangers cannot act as nodes.
        peer_port_is_local: true,
        initial_cluster: vec![("n1".to_owned(), port.address().to_string())],
        token_floor: Some(0),
        hooks,
        ..NodeConfig::new("n1", dir.path().join("n1"))
    };
    let node = Node::start(config).await.unwrap();
    let mut status = node.watch_status();
    let serving = status.wait_for(|status| status.serving);
    drop(within("a node that serves", serving).await.unwrap());
    let (stop, stopping) = watch::channel(false);
    let context = Context::new(node.clone(), Pool::new(), stopping);
    Alone {
        node,
        context,
        _dir: dir,
        _stop: stop,
    }
}

impl Alone {
    async fn propose(&self, command: Command) -> Outcome {
        self.node.propose(command).await.unwrap().outcome
    }

    /// The session of this number, with a secret of as many ones.
    pub(super) async fn open(&self, number: u8) -> (SessionId, Secret) {
        self.open_as(&Who::default(), number).await
    }

    /// The same of this caller.
    pub(super) async fn open_as(&self, who: &Who, number: u8) -> (SessionId, Secret) {
        let secret = Secret::new([number; 16]);
        let open = Open {
            id: OpenId::new([number; 16]),
            secret,
            seen: None,
            ttl: Millis::from_secs(300),
            identity: Identity::parse("holder").unwrap(),
            acquire: None,
        };
        let opened = self.propose(who.asks(1, Command::Open(open))).await;
        let Outcome::Opened(Opened { session, .. }) = opened else {
            panic!("{opened:?}");
        };
        (session, secret)
    }

    /// A session with a secret of ones that has lost a lease and not acknowledged it.
    pub(super) async fn lose(&self) -> Granted {
        let (session, secret) = self.open(1).await;
        let first = RequestNumber::new(1).unwrap();
        let acquired = self.propose(acquire(session, secret, first, first)).await;
        let Outcome::Acquired(Acquired::Granted(granted)) = acquired else {
            panic!("{acquired:?}");
        };
        let revoke = Revoke {
            name: LeaseName::parse("lease/1").unwrap(),
            token: granted.token,
            now: false,
            reason: String::new(),
            operator: String::new(),
        };
        self.propose(Command::Revoke(revoke)).await;
        assert_eq!(self.node.read(|machine| machine.lost(session).len()), 1);
        granted
    }

    /// Lets rights bind, of which no principal has any.
    pub(super) async fn enforce(&self) {
        let knows_rights = async {
            while self.node.read(|machine| machine.level()) < LEVEL_ACCESS {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within("the level", knows_rights).await;
        self.change(vec![AccessChange::SetMode(Mode::Enforced)])
            .await;
    }

    /// Allows a principal something for these names.
    pub(super) async fn allow(&self, who: &str, verb: Verb, names: &str) {
        let names = verb
            .takes_names()
            .then(|| NamePattern::parse(names).unwrap());
        let principals = PrincipalPattern::parse(who).unwrap();
        self.change(vec![AccessChange::AddRule(Rule {
            principals,
            verb,
            names,
        })])
        .await;
    }

    /// Changes rights.
    pub(super) async fn change(&self, changes: Vec<AccessChange>) {
        let (cluster, based_on) = self
            .node
            .read(|machine| (machine.cluster().unwrap(), machine.access().set_at()));
        let command = Command::ChangeAccess(ChangeAccess {
            cluster,
            based_on,
            changes,
        });
        let caller = Caller {
            principal: Principal::local(),
            token: None,
            node: 1,
        };
        let called = Command::Called(Box::new(Called { caller, command }));
        let changed = self.propose(called).await;
        assert!(
            matches!(changed, Outcome::AccessChanged { .. }),
            "{changed:?}"
        );
    }

    /// A session takes all the leases.
    pub(super) async fn fill(&self) {
        let (session, secret) = self.open(1).await;
        let number = |n| RequestNumber::new(n).unwrap();
        for first in (1..=LEASES).step_by(TOGETHER as usize) {
            let take = (first..first + TOGETHER)
                .map(|n| self.propose(acquire(session, secret, number(n), number(first))));
            for taken in join_all(take).await {
                assert!(
                    matches!(taken, Outcome::Acquired(Acquired::Granted(_))),
                    "{taken:?}"
                );
            }
        }
    }
}

fn acquire(
    session: SessionId,
    secret: Secret,
    number: RequestNumber,
    lowest: RequestNumber,
) -> Command {
    Command::Request(Request {
        session,
        secret,
        number,
        lowest,
        ask: Ask::Acquire(Acquire {
            name: LeaseName::parse(&format!("lease/{number}")).unwrap(),
            wait: None,
            data: HolderData::default(),
            lock_delay: Millis(0),
        }),
    })
}

pub(super) async fn within<T>(what: &str, step: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, step).await;
    done.unwrap_or_else(|_| panic!("no {what} within {PATIENCE:?}"))
}
