//! Hostile writes to PostgreSQL in great number: statement timeouts, cancel requests and disturbed
//! messages on many connections at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use ringfence_guard::conformance::{Fault, Hit, Written};
use ringfence_guard::postgres::{PostgresError, PostgresGuard};
use ringfence_guard::{Fence, FencingToken, LeaseName};
use tokio::task::LocalSet;
use tokio_postgres::Client;

use crate::postgres::{nothing_outside, written};
use crate::run_to_end;
use crate::servers::Disk;
use crate::servers::postgres::Postgres;
use crate::servers::proxy::Hand;
use crate::soak::{Came, Chance, Tally, writes};

const DATABASE: &str = "postgres";

/// Connections at a time, each with a lease of its own.
const WORKERS: u64 = 24;

/// Writes of a worker between two looks at what stands in the store.
const ROUND: usize = 500;

/// Of so many disturbed messages one is a reset, since each needs a new connection.
const RESETS: u64 = 40;

/// The longest pause between two cancel requests, in microseconds: as long as a write takes.
const CANCEL_PAUSE: u64 = 2_000;

/// What disturbs a worker's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `statement_timeout = 1ms`, beside statements that load the server.
    Timeouts,
    /// Another connection that cancels what the worker does, at any moment.
    Cancels,
    /// A proxy that makes one message of each write fail or resets the connection at it.
    Messages,
}

struct Worker {
    server: Arc<Postgres>,
    kind: Kind,
    guard: PostgresGuard,
    chance: Chance,
    connection: Option<(Client, Hand)>,
    /// The backend to cancel; 0 while there is none.
    pid: Arc<AtomicI32>,
    /// The mark.
    token: u64,
    next: i64,
}

/// A write that was made: its number, whether it was stale, and what came of it.
struct Made {
    id: i64,
    stale: bool,
    came: Came,
}

impl Worker {
    async fn connect(&mut self) {
        if self.connection.is_some() {
            return;
        }
        let (client, hand) = self.server.connect_through(DATABASE).await;
        if self.kind == Kind::Timeouts {
            // What comes before is not meant to fail.
            client
                .batch_execute("SET statement_timeout = '1ms'")
                .await
                .ok();
        }
        let ask = client.query_one("SELECT pg_backend_pid()", &[]).await;
        if self.kind == Kind::Cancels
            && let Ok(row) = ask
        {
            self.pid.store(row.get(0), Ordering::SeqCst);
        }
        self.connection = Some((client, hand));
    }

    /// One hostile write of two rows, each by a statement of its own.
    async fn write(&mut self) -> Made {
        self.connect().await;
        let (mut client, hand) = self.connection.take().unwrap();
        let stale = self.chance.below(2) == 0;
        let new = !stale && self.chance.below(20) == 0;
        let shown = match (stale, new) {
            (true, _) => self.token - 1,
            (_, true) => self.token + 1,
            _ => self.token,
        };
        let fence = self.fence(shown);
        if new && self.chance.below(2) == 0 {
            self.fence_off(&mut client, shown).await;
        }
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
        let (id, name) = (self.next, self.guard.name().as_str());
        self.next += 1;
        let effect = async |client: &Client| {
            for half in 0..2 {
                let insert = format!("INSERT INTO written VALUES ('{name}', {id}, {half})");
                client.batch_execute(&insert).await?;
            }
            Ok::<_, PostgresError>(())
        };
        let came = match written(self.guard.write(&mut client, &fence, effect).await) {
            Written::Committed => Came::Committed,
            Written::Refused(_) => Came::Refused,
            Written::Failed(_) => Came::Failed,
            Written::Unknown(_) => Came::Unknown,
        };
        hand.disarm();
        if new && came == Came::Committed {
            self.token = shown;
        }
        if client.is_closed() {
            self.pid.store(0, Ordering::SeqCst);
            drop(client);
            hand.ended().await;
        } else {
            self.connection = Some((client, hand));
        }
        if new && came == Came::Unknown {
            // Whether the mark was raised is not known: so it is raised now, on a new connection.
            self.connect().await;
            let (mut client, hand) = self.connection.take().unwrap();
            self.fence_off(&mut client, shown).await;
            self.connection = Some((client, hand));
        }
        Made { id, stale, came }
    }

    fn fence(&self, token: u64) -> Fence {
        let token = FencingToken::new(token).unwrap();
        Fence::new(self.guard.name().clone(), token)
    }

    /// Advances the mark until that has succeeded.
    async fn fence_off(&mut self, client: &mut Client, token: u64) {
        let fence = self.fence(token);
        while let Err(error) = self.guard.advance(client, &fence).await {
            assert!(error.refused().is_none(), "{error}");
            assert!(!client.is_closed(), "an undisturbed connection: {error}");
        }
        self.token = token;
    }

    /// Makes `count` writes, and looks at what the store holds then.
    async fn round(&mut self, count: usize, tally: &mut Tally) {
        let mut made = Vec::with_capacity(count);
        for _ in 0..count {
            made.push(self.write().await);
        }
        // What has not reached the server by now never will.
        self.pid.store(0, Ordering::SeqCst);
        if let Some((client, hand)) = self.connection.take() {
            drop(client);
            hand.ended().await;
        }
        let calm = self.server.connect(DATABASE).await;
        let name = self.guard.name().as_str();
        // A commit whose answer was lost may still be under way: it holds the mark's lock.
        let lock = "SELECT mark FROM ringfence.marks WHERE name = $1 FOR UPDATE";
        calm.query(lock, &[&name]).await.unwrap();
        let found = "DELETE FROM written WHERE name = $1 RETURNING id";
        let rows = calm.query(found, &[&name]).await.unwrap();
        let first = made[0].id;
        let mut halves = vec![0_usize; count];
        for row in rows {
            let id: i64 = row.get(0);
            halves[usize::try_from(id - first).unwrap()] += 1;
        }
        for (write, found) in made.iter().zip(halves) {
            tally.judge(write.stale, write.came, found, 2);
        }
        let mark = self.guard.mark(&calm).await.unwrap();
        assert_eq!(mark.map(FencingToken::get), Some(self.token));
    }
}

/// Cancels what the worker does, at any moment.
async fn cancel(server: Arc<Postgres>, pid: Arc<AtomicI32>, seed: u64, over: Arc<AtomicBool>) {
    let client = server.connect(DATABASE).await;
    let cancel = client
        .prepare("SELECT pg_cancel_backend($1)")
        .await
        .unwrap();
    let mut chance = Chance(seed);
    while !over.load(Ordering::SeqCst) {
        let pause = Duration::from_micros(chance.below(CANCEL_PAUSE));
        tokio::time::sleep(pause).await;
        let pid = pid.load(Ordering::SeqCst);
        if pid != 0 {
            client.query(&cancel, &[&pid]).await.unwrap();
        }
    }
}

#[test]
fn hostile_postgres_writes_commit_nothing_stale_and_nothing_torn() {
    run_to_end(async {
        let Some(server) = Postgres::start(Disk::Memory) else {
            return;
        };
        let server = Arc::new(server);
        let mut client = server.connect(DATABASE).await;
        PostgresGuard::install(&client).await.unwrap();
        let table = "CREATE TABLE written (name text, id bigint, half int);
            CREATE INDEX ON written (name)";
        client.batch_execute(table).await.unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let workers = LocalSet::new();
        let mut tasks = Vec::new();
        for number in 0..WORKERS {
            let kind = match number % 3 {
                0 => Kind::Timeouts,
                1 => Kind::Cancels,
                _ => Kind::Messages,
            };
            let name = LeaseName::parse(&format!("soak/{number}")).unwrap();
            let mut worker = Worker {
                server: Arc::clone(&server),
                kind,
                guard: PostgresGuard::new(name),
                chance: Chance(number),
                connection: None,
                pid: Arc::default(),
                token: 2,
                next: 0,
            };
            worker.fence_off(&mut client, 2).await;
            if kind == Kind::Cancels {
                let (server, pid) = (Arc::clone(&server), Arc::clone(&worker.pid));
                tokio::spawn(cancel(server, pid, number, Arc::clone(&over)));
            }
            let mut left = usize::try_from(writes().div_ceil(WORKERS)).unwrap();
            tasks.push(workers.spawn_local(async move {
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
        for (kind, tally) in [Kind::Timeouts, Kind::Cancels, Kind::Messages]
            .iter()
            .zip(kinds)
        {
            println!("{kind:?}: {tally}");
        }
        over.store(true, Ordering::SeqCst);
        sum.settle("PostgreSQL");
    });
}
