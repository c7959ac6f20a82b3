//! Starts nodes, and waits for what they come to.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringfence_core::{
    Acquire, Acquired, Ask, Command, FencingToken, HolderData, Identity, LeaseName, Millis, Open,
    OpenId, Opened, Outcome, Request, RequestNumber, Revoke, Secret, SessionId, Settings,
};
use ringfence_raft::{
    Backup, MembershipError, Node, NodeConfig, ProposeError, Restore, Role, write_backup,
};
use ringfence_testkit::ports::Port;

use crate::disk::Disk;

/// No single step of a test takes longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The directories and ports of nodes, and those that run.
pub(crate) struct Cluster {
    dir: tempfile::TempDir,
    ports: BTreeMap<String, Arc<Port>>,
    first: Vec<String>,
    pub(crate) nodes: BTreeMap<String, Node>,
    /// Applied to every node's configuration before it is started.
    pub(crate) adjust: fn(&mut NodeConfig),
    /// The disks of nodes whose disk is not just any disk.
    pub(crate) disks: BTreeMap<String, Disk>,
    /// What first members are started to restore.
    pub(crate) restore: Option<Restore>,
}

impl Cluster {
    /// Directories for first members of these names; none is started.
    pub(crate) fn new(first: &[&str]) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            ports: first
                .iter()
                .map(|name| ((*name).to_owned(), Arc::new(Port::any())))
                .collect(),
            first: first.iter().map(|name| (*name).to_owned()).collect(),
            nodes: BTreeMap::new(),
            adjust: |_| {},
            disks: BTreeMap::new(),
            restore: None,
        }
    }

    /// The same to restore this backup; tokens follow the clock.
    pub(crate) fn to_restore(first: &[&str], backup: Arc<Backup>) -> Self {
        let mut cluster = Self::new(first);
        cluster.adjust = |config| config.token_floor = None;
        cluster.restore = Some(Restore {
            backup,
            rules: None,
            mode: None,
            drill: false,
        });
        cluster
    }

    /// Gives a node the port of one of another cluster, which does not run.
    pub(crate) fn share_port(&mut self, name: &str, of: &Self) {
        self.ports.insert(name.to_owned(), of.ports[name].clone());
    }

    /// Ends all nodes without a farewell.
    pub(crate) async fn crash_all(&mut self) {
        for node in std::mem::take(&mut self.nodes).into_values() {
            node.crash().await;
        }
    }

    /// A backup of what a node holds now.
    pub(crate) fn backup(&self, name: &str) -> Arc<Backup> {
        let path = self.dir.path().join(format!("{name}.backup"));
        let file = std::fs::File::create(&path).unwrap();
        write_backup(&self.nodes[name].frozen(), file).unwrap();
        Arc::new(Backup::read(&path).unwrap())
    }

    /// Starts all first members and waits until they serve.
    pub(crate) async fn formed(first: &[&str]) -> Self {
        let mut cluster = Self::new(first);
        cluster.start_all().await;
        cluster
    }

    pub(crate) async fn start_all(&mut self) {
        for name in self.first.clone() {
            self.start(&name).await;
        }
        for name in self.first.clone() {
            self.serving(&name).await;
        }
    }

    pub(crate) fn config(&self, name: &str) -> NodeConfig {
        let address = self.ports[name].address();
        let first = self.first.iter();
        let mut config = NodeConfig {
            peer_listen: address,
            client_advertise: format!("{name}.clients:7420"),
            initial_cluster: first
                .map(|n| (n.clone(), self.ports[n].address().to_string()))
                .collect(),
            wal_segment_bytes: 1 << 20,
            settings: Settings {
                ttl_min: Millis(100),
                ..Settings::STANDARD
            },
            token_floor: Some(0),
            peer_port_is_local: true,
            restore: self.restore.clone(),
            ..NodeConfig::new(name, self.data_dir(name))
        };
        (self.adjust)(&mut config);
        if let Some(disk) = self.disks.get(name) {
            config.hooks.files = Arc::new(disk.clone());
        }
        config
    }

    pub(crate) fn data_dir(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Gives every node a disk that can be made to hang.
    pub(crate) fn with_disks(&mut self) {
        let disks = self.first.iter();
        self.disks = disks.map(|name| (name.clone(), Disk::default())).collect();
    }

    pub(crate) async fn start(&mut self, name: &str) -> Node {
        let node = Node::start(self.config(name)).await.unwrap();
        self.nodes.insert(name.to_owned(), node.clone());
        node
    }

    /// Starts a node that is no first member, and waits until it was taken in.
    pub(crate) async fn join(&mut self, name: &str) -> Node {
        let node = self.start_to_join(name).await;
        self.nodes.insert(name.to_owned(), node.clone());
        eventually("its id", || node.status().node_id.is_some()).await;
        node
    }

    /// The same without the wait; the node is the caller's to end.
    pub(crate) async fn start_to_join(&mut self, name: &str) -> Node {
        self.ports.insert(name.to_owned(), Arc::new(Port::any()));
        let mut config = self.config(name);
        config.join = config
            .initial_cluster
            .drain(..)
            .map(|(_, address)| address)
            .collect();
        Node::start(config).await.unwrap()
    }

    /// Ends a node without a farewell.
    pub(crate) async fn crash(&mut self, name: &str) {
        self.nodes.remove(name).unwrap().crash().await;
    }

    pub(crate) async fn serving(&self, name: &str) {
        let mut status = self.nodes[name].watch_status();
        let served = status.wait_for(|status| status.serving);
        drop(within(name, served).await.unwrap());
    }

    /// The node that leads; waits until there is one.
    pub(crate) async fn leader(&self) -> String {
        within("a leader", async {
            loop {
                let mut nodes = self.nodes.iter();
                let leads = |(_, node): &(&String, &Node)| {
                    let status = node.status();
                    status.role == Role::Leader && status.serving
                };
                if let Some((name, _)) = nodes.find(leads) {
                    return name.clone();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }

    /// A first member that follows.
    pub(crate) async fn a_first_follower(&self) -> String {
        let leader = self.leader().await;
        let mut first = self.first.iter();
        first.find(|name| **name != leader).unwrap().clone()
    }

    pub(crate) async fn a_follower(&self) -> String {
        let leader = self.leader().await;
        self.nodes
            .keys()
            .find(|name| **name != leader)
            .unwrap()
            .clone()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The runtime waits for the threads that are in a file's call, also when a test has failed.
        self.disks.values().for_each(Disk::go_on);
        for node in std::mem::take(&mut self.nodes).into_values() {
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                let _detached = runtime.spawn(async move { node.crash().await });
            }
        }
    }
}

/// Fails a step that takes too long, by name.
pub(crate) async fn within<T>(what: &str, step: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(LIMIT, step).await;
    done.unwrap_or_else(|_| panic!("no {what} within {LIMIT:?}"))
}

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    within(what, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Removes a member, also if the leader loses its term meanwhile.
pub(crate) async fn remove(node: &Node, node_id: u64) {
    within("its removal", async {
        loop {
            match node.remove_member(node_id, None).await {
                Ok(()) => return,
                // A try before this one was.
                Err(MembershipError::Refused { why }) if why.contains("is no member") => return,
                Err(MembershipError::NotDone { .. } | MembershipError::Unknown { .. }) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await;
}

/// A session of a test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) secret: Secret,
}

/// Repeats a command that was not done, as clients do.
pub(crate) async fn propose(node: &Node, command: Command) -> Outcome {
    within("an answer", async {
        loop {
            match node.propose(command.clone()).await {
                Ok(applied) => return applied.outcome,
                Err(ProposeError::Fault { why }) => panic!("{why}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await
}

pub(crate) async fn open(node: &Node, n: u8, ttl: Millis) -> Session {
    let secret = Secret::new([n; 16]);
    let open = Open {
        id: OpenId::new([n; 16]),
        secret,
        seen: None,
        ttl,
        identity: Identity::parse(&format!("client {n}")).unwrap(),
        acquire: None,
    };
    match propose(node, Command::Open(open)).await {
        Outcome::Opened(Opened { session, .. }) => Session {
            id: session,
            secret,
        },
        other => panic!("{other:?}"),
    }
}

pub(crate) fn number(n: u64) -> RequestNumber {
    RequestNumber::new(n).unwrap()
}

pub(crate) fn name(text: &str) -> LeaseName {
    LeaseName::parse(text).unwrap()
}

pub(crate) fn acquire(session: Session, n: u64, lease: &str, wait: Option<Millis>) -> Command {
    request(
        session,
        n,
        Ask::Acquire(Acquire {
            name: name(lease),
            wait,
            data: HolderData::default(),
            lock_delay: Millis(0),
        }),
    )
}

pub(crate) fn request(session: Session, n: u64, ask: Ask) -> Command {
    Command::Request(Request {
        session: session.id,
        secret: session.secret,
        number: number(n),
        lowest: number(1),
        ask,
    })
}

/// An acquire with a kilobyte of data, by a client that waits for no earlier answer.
pub(crate) fn weighty(session: Session, n: u64) -> Command {
    let mut command = acquire(session, n, &format!("lease/{n}"), None);
    if let Command::Request(request) = &mut command {
        request.lowest = request.number;
        if let Ask::Acquire(acquire) = &mut request.ask {
            acquire.data = HolderData::new(&[7; 1_000]).unwrap();
        }
    }
    command
}

/// Acquires a free lease and says with which token.
pub(crate) async fn acquired(node: &Node, session: Session, n: u64, lease: &str) -> u64 {
    match propose(node, acquire(session, n, lease, None)).await {
        Outcome::Acquired(Acquired::Granted(granted)) => granted.token.get(),
        other => panic!("{other:?}"),
    }
}

/// Grants the session so many leases and revokes them; the tokens that it has lost. Its requests have
/// the numbers from 1 on.
pub(crate) async fn lose(node: &Node, session: Session, leases: u64) -> Vec<FencingToken> {
    const AT_ONCE: u64 = 100;
    let mut lost = Vec::new();
    for first in (1..=leases).step_by(AT_ONCE as usize) {
        let some = first..=leases.min(first + AT_ONCE - 1);
        let losing = some.map(|n| async move {
            let lease = format!("lost/{n}");
            let mut command = acquire(session, n, &lease, None);
            if let Command::Request(request) = &mut command {
                request.lowest = number(first);
            }
            let token = match propose(node, command).await {
                Outcome::Acquired(Acquired::Granted(granted)) => granted.token,
                other => panic!("{other:?}"),
            };
            let revoke = Revoke {
                name: name(&lease),
                token,
                now: false,
                reason: String::new(),
                operator: String::new(),
            };
            let revoked = propose(node, Command::Revoke(revoke)).await;
            assert!(!matches!(revoked, Outcome::Rejected(_)), "{revoked:?}");
            token
        });
        lost.extend(futures_util::future::join_all(losing).await);
    }
    lost
}

/// Who holds a lease in a node's own state.
pub(crate) fn holder(node: &Node, lease: &str) -> Option<(SessionId, u64)> {
    let view = node.read(|machine| machine.get(&name(lease)))?;
    view.holder
        .map(|granted| (granted.session, granted.token.get()))
}
