//! A pause of the whole cluster, with the real state machine and simulated clocks: no session of any
//! TTL ends at the wake, whenever the pause begins.

use std::collections::VecDeque;
use std::time::Duration;

use ringfence_core::{
    ClusterId, ClusterTime, Command, Entry, Form, Identity, Millis, Open, OpenId, Renew, Secret,
    SessionId, Settings, StateMachine, WallTime,
};

use super::Reading;

/// From the stamp of an entry to its application, in milliseconds.
const COMMIT: u64 = 5;
const PAUSE: u64 = 6_000;

/// A leader, its log, and the clients of two sessions. Times are true milliseconds.
struct Cluster {
    now: u64,
    machine: StateMachine,
    reading: Reading,
    index: u64,
    /// Stamped entries, and when each is applied.
    log: VecDeque<(u64, Entry)>,
    ticked: u64,
    /// Keep-alives that wait for their entry, and when the first of them came.
    gathered: Vec<SessionId>,
    gather_since: u64,
    clients: Vec<Client>,
}

struct Client {
    session: SessionId,
    ttl: u64,
    /// When it sends next.
    next: u64,
}

impl Cluster {
    fn new(ttls: &[u64]) -> Self {
        let mut cluster = Self {
            now: 0,
            machine: StateMachine::new(),
            reading: Reading::start(ClusterTime(0), Duration::ZERO),
            index: 0,
            log: VecDeque::new(),
            ticked: 0,
            gathered: Vec::new(),
            gather_since: 0,
            clients: Vec::new(),
        };
        cluster.write(Command::TermStart { unix_seconds: None });
        cluster.write(Command::Form(Form {
            cluster: ClusterId::new([1; 16]),
            token_floor: Some(0),
            settings: Settings {
                ttl_min: Millis(100),
                ..Settings::STANDARD
            },
            mode: ringfence_core::Mode::Off,
            quiet_time: Millis(0),
            restored: None,
        }));
        for (at, &ttl) in (1..).zip(ttls) {
            cluster.write(Command::Open(Open {
                id: OpenId::new([at; 16]),
                secret: Secret::new([at; 16]),
                seen: None,
                ttl: Millis(ttl),
                identity: Identity::parse("paused").unwrap(),
                acquire: None,
            }));
            cluster.clients.push(Client {
                session: SessionId::new(at.into()).unwrap(),
                ttl,
                next: 0,
            });
        }
        cluster
    }

    /// What the leader reads now.
    fn time(&mut self) -> ClusterTime {
        let (applied, lead) = (self.machine.time(), self.machine.lead());
        self.reading
            .read(applied, lead, Duration::from_millis(self.now))
    }

    fn write(&mut self, command: Command) {
        self.index += 1;
        let entry = Entry {
            index: self.index,
            term: 1,
            time: self.time(),
            wall: WallTime(0),
            command,
        };
        self.log.push_back((self.now + COMMIT, entry));
    }

    /// What the nodes and the clients do at this millisecond.
    fn work(&mut self) {
        while let Some((at, _)) = self.log.front()
            && *at <= self.now
            && let Some((_, entry)) = self.log.pop_front()
        {
            self.machine.apply(&entry, &mut Vec::new());
        }
        for at in 0..self.clients.len() {
            self.send(at);
        }
        let shortest = self.clients.iter().map(|client| client.ttl).min().unwrap();
        if !self.gathered.is_empty() && self.now >= self.gather_since + (shortest / 20).min(50) {
            let mut sessions = std::mem::take(&mut self.gathered);
            sessions.sort_unstable();
            sessions.dedup();
            self.write(Command::Renew(Renew {
                sessions,
                acknowledged: Vec::new(),
            }));
        }
        let step = 500.min(self.machine.lead().0 / 2);
        if self.now >= self.ticked + step {
            self.ticked = self.now;
            self.write(Command::Tick);
        }
    }

    /// Every third of its TTL, and as late as its jitter lets it.
    fn send(&mut self, at: usize) {
        let (now, client) = (self.now, &mut self.clients[at]);
        if now < client.next {
            return;
        }
        client.next = now + client.ttl / 3 + client.ttl / 20;
        if self.gathered.is_empty() {
            self.gather_since = now;
        }
        self.gathered.push(client.session);
    }

    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.work();
            self.now += 1;
        }
    }
}

/// The sessions that end because all nodes pause `before` milliseconds after the start.
fn ended_by_a_pause(ttls: &[u64], before: u64) -> Vec<u64> {
    let mut cluster = Cluster::new(ttls);
    cluster.run(before);
    // Nothing is applied, while the clock runs on; the clients have sent what they had to.
    cluster.now += PAUSE;
    for (at, _) in cluster.log.iter_mut() {
        *at += PAUSE;
    }
    let longest = ttls.iter().max().unwrap();
    cluster.run(2 * longest);
    let alive = |client: &&Client| cluster.machine.session(client.session).is_none();
    let ended = cluster.clients.iter().filter(alive);
    ended.map(|client| client.ttl).collect()
}

#[test]
fn no_session_of_any_ttl_ends_when_a_paused_cluster_wakes() {
    for ttls in [
        [100, 300],
        [250, 2_000],
        [1_000, 5_000],
        [1_000, 1_500],
        [2_000, 9_000],
        [4_000, 4_000],
    ] {
        let shortest = ttls[0];
        for phase in 0..20 {
            let before = 3 * shortest + phase * shortest / 20;
            let ended = ended_by_a_pause(&ttls, before);
            assert!(ended.is_empty(), "{ended:?} of {ttls:?} after {before} ms");
        }
    }
}
