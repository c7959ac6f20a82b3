//! Hostile writes to MariaDB in great number: statements that time out, kill requests at any moment,
//! and messages that fail or whose connection is reset.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use ringfence_guard::conformance::{Fault, Hit, Written};
use ringfence_guard::mysql::{Connection, MysqlError, MysqlGuard};
use ringfence_guard::{Fence, FencingToken, LeaseName};
use tokio::task::LocalSet;

use crate::mysql::{nothing_outside, written};
use crate::run_to_end;
use crate::servers::Disk;
use crate::servers::mysql::Mysql;
use crate::servers::proxy::Hand;
use crate::soak::{Came, Chance, Tally, writes};

const DATABASE: &str = "soak";

/// Connections at a time, each with a lease of its own.
const WORKERS: u64 = 12;

/// Writes of a worker between two looks at what stands in the store.
const ROUND: usize = 200;

/// Of so many disturbed messages one is a reset, since each needs a new connection.
const RESETS: u64 = 20;

/// The server's number of the error for a transaction that it has rolled back for another one.
const DEADLOCK: u16 = 1213;

/// The longest pause between two kill requests, in microseconds: as long as a write takes.
const KILL_PAUSE: u64 = 2_000;

/// What disturbs a worker's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `max_statement_time` of a millisecond.
    Timeouts,
    /// Another connection that kills what the worker does, at any moment.
    Kills,
    /// A proxy that makes one message of each write fail or resets the connection at it.
    Messages,
}

const KINDS: [Kind; 3] = [Kind::Timeouts, Kind::Kills, Kind::Messages];

struct Worker {
    server: Arc<Mysql>,
    kind: Kind,
    guard: MysqlGuard,
    chance: Chance,
    connection: Option<(Connection, Hand)>,
    /// The connection to kill queries of; 0 while there is none.
    id: Arc<AtomicU32>,
    /// The mark.
    token: u64,
    next: u64,
}

/// A write that was made: whether it was stale, and what came of it.
struct Made {
    stale: bool,
    came: Came,
}

impl Worker {
    /// The connection; a new one if it was closed.
    async fn connected(&mut self) -> (Connection, Hand) {
        if let Some((connection, hand)) = self.connection.take() {
            if !connection.is_closed() {
                return (connection, hand);
            }
            self.id.store(0, Ordering::SeqCst);
            drop(connection);
            hand.ended().await;
        }
        let (mut conn, hand) = self.server.connect_through(DATABASE).await;
        match self.kind {
            Kind::Timeouts => {
                let limit = "SET max_statement_time = 0.001";
                conn.query_drop(limit).await.unwrap();
            }
            Kind::Kills => self.id.store(conn.id(), Ordering::SeqCst),
            Kind::Messages => {}
        }
        (Connection::new(conn), hand)
    }

    fn fence(&self, token: u64) -> Fence {
        let token = FencingToken::new(token).unwrap();
        Fence::new(self.guard.name().clone(), token)
    }

    /// Advances the mark until that has succeeded.
    async fn fence_off(&mut self, token: u64) {
        let fence = self.fence(token);
        loop {
            let (mut connection, hand) = self.connected().await;
            let advanced = self.guard.advance(&mut connection, &fence).await;
            self.connection = Some((connection, hand));
            match advanced {
                Ok(_) => break,
                Err(error) => assert!(error.refused().is_none(), "{error}"),
            }
        }
        self.token = token;
    }

    /// One hostile write of two rows, each by a statement of its own.
    async fn write(&mut self) -> Made {
        let stale = self.chance.below(2) == 0;
        let new = !stale && self.chance.below(20) == 0;
        let shown = match (stale, new) {
            (true, _) => self.token - 1,
            (_, true) => self.token + 1,
            _ => self.token,
        };
        if new && self.chance.below(2) == 0 {
            self.fence_off(shown).await;
        }
        let (mut connection, hand) = self.connected().await;
        if self.kind == Kind::Messages {
            let hit = match self.chance.below(RESETS) {
                0 => Hit::ResetBefore,
                1 => Hit::ResetInside,
                2 => Hit::ResetBehind,
                _ => Hit::TimesOut,
            };
            let step = u32::try_from(self.chance.below(5)).unwrap();
            hand.arm(Fault { hit, step }, nothing_outside());
        }
        let (id, name) = (self.next, self.guard.name().clone());
        self.next += 1;
        // Half of them overlook the error of the first statement.
        let overlooks = self.chance.below(2) == 0;
        let effect = async |conn: &mut Conn| {
            let insert = |half| format!("INSERT INTO written VALUES ('{name}', {id}, {half})");
            let first = conn.query_drop(insert(0)).await;
            if !overlooks {
                first?;
                conn.query_drop(insert(1)).await?;
                return Ok::<_, MysqlError>(());
            }
            conn.query_drop(insert(1)).await?;
            Ok(first?)
        };
        let fence = self.fence(shown);
        let came = match written(self.guard.write(&mut connection, &fence, effect).await) {
            Written::Committed => Came::Committed,
            Written::Refused(_) => Came::Refused,
            Written::Failed(_) => Came::Failed,
            Written::Unknown(_) => Came::Unknown,
        };
        hand.disarm();
        self.connection = Some((connection, hand));
        if new && came == Came::Committed {
            self.token = shown;
        }
        if new && came == Came::Unknown {
            // Whether the mark was raised is not known: so it is raised now.
            self.fence_off(shown).await;
        }
        Made { stale, came }
    }

    /// The mark, and the ids of the rows that stand in the store, which are removed.
    async fn taken(&self) -> Result<(Option<u64>, Vec<u64>), mysql_async::Error> {
        let mut calm = self.server.connect(DATABASE).await;
        let name = self.guard.name().as_str().to_owned();
        // A commit whose answer was lost may still be under way: it holds the mark's lock.
        calm.query_drop("START TRANSACTION").await?;
        let lock = "SELECT mark FROM ringfence_marks WHERE name = ? FOR UPDATE";
        let mark = calm.exec_first(lock, (&name,)).await?;
        let ids = calm
            .exec("SELECT id FROM written WHERE name = ?", (&name,))
            .await?;
        calm.exec_drop("DELETE FROM written WHERE name = ?", (&name,))
            .await?;
        calm.query_drop("COMMIT").await?;
        Ok((mark, ids))
    }

    /// Makes `count` writes, and looks at what stands in the store then.
    async fn round(&mut self, count: usize, tally: &mut Tally) {
        let first = self.next;
        let mut made = Vec::with_capacity(count);
        for _ in 0..count {
            made.push(self.write().await);
        }
        // What has not reached the server by now never will.
        self.id.store(0, Ordering::SeqCst);
        if let Some((connection, hand)) = self.connection.take() {
            drop(connection);
            hand.ended().await;
        }
        let ids = loop {
            match self.taken().await {
                Ok((mark, ids)) => {
                    assert_eq!(mark, Some(self.token));
                    break ids;
                }
                // The others' rows lie beside these.
                Err(mysql_async::Error::Server(error)) if error.code == DEADLOCK => {}
                Err(error) => panic!("{error}"),
            }
        };
        let mut halves = vec![0_usize; count];
        for id in ids {
            halves[usize::try_from(id - first).unwrap()] += 1;
        }
        for (write, found) in made.iter().zip(halves) {
            tally.judge(write.stale, write.came, found, 2);
        }
    }
}

/// Kills what the worker does, at any moment.
async fn kill(server: Arc<Mysql>, id: Arc<AtomicU32>, seed: u64, over: Arc<AtomicBool>) {
    let mut conn = server.connect(DATABASE).await;
    let mut chance = Chance(seed);
    while !over.load(Ordering::SeqCst) {
        let pause = Duration::from_micros(chance.below(KILL_PAUSE));
        tokio::time::sleep(pause).await;
        let id = id.load(Ordering::SeqCst);
        if id != 0 {
            // The connection may have ended meanwhile.
            conn.query_drop(format!("KILL QUERY {id}")).await.ok();
        }
    }
}

#[test]
fn hostile_mysql_writes_commit_nothing_stale_and_nothing_torn() {
    run_to_end(async {
        let Some(server) = Mysql::start(Disk::Memory) else {
            return;
        };
        let server = Arc::new(server);
        let mut conn = server.connect("mysql").await;
        let create = format!("CREATE DATABASE {DATABASE}");
        conn.query_drop(create).await.unwrap();
        let mut conn = server.connect(DATABASE).await;
        MysqlGuard::install(&mut conn).await.unwrap();
        let table = "CREATE TABLE written (name VARCHAR(255), id BIGINT, half INT, INDEX (name))";
        conn.query_drop(table).await.unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let workers = LocalSet::new();
        let mut tasks = Vec::new();
        for number in 0..WORKERS {
            let kind = KINDS[usize::try_from(number % 3).unwrap()];
            let name = LeaseName::parse(&format!("soak/{number}")).unwrap();
            let mut worker = Worker {
                server: Arc::clone(&server),
                kind,
                guard: MysqlGuard::new(name),
                chance: Chance(number),
                connection: None,
                id: Arc::default(),
                token: 2,
                next: 0,
            };
            if kind == Kind::Kills {
                let (server, id) = (Arc::clone(&server), Arc::clone(&worker.id));
                tokio::spawn(kill(server, id, number, Arc::clone(&over)));
            }
            let mut left = usize::try_from(writes().div_ceil(WORKERS)).unwrap();
            tasks.push(workers.spawn_local(async move {
                worker.fence_off(2).await;
                let mut tally = Tally::default();
                while left > 0 {
                    let count = left.min(ROUND);
                    worker.round(count, &mut tally).await;
                    left -= count;
                }
                (kind, tally)
            }));
        }
        let mut sum = Tally::default();
        let mut kinds = [Tally::default(); 3];
        workers.await;
        for task in tasks {
            let (kind, tally) = task.await.unwrap();
            kinds[kind as usize].add(&tally);
            sum.add(&tally);
        }
        over.store(true, Ordering::SeqCst);
        for (kind, tally) in KINDS.iter().zip(kinds) {
            println!("{kind:?}: {tally}");
        }
        sum.settle("MariaDB");
    });
}
