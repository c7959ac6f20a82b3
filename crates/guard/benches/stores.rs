//! What a guarded write costs over the same store's plain write: pairs of both, one after the
//! other, in the same run, so that a slow moment of the machine hits either alike.
//!
//! `cargo bench -p ringfence-guard --bench stores`; a word of the first column after `--` picks one.
//! Under `cargo test` it only shows that it runs. Disks are synced as in service; the directories are
//! made where `TMPDIR` says.
#![allow(clippy::unwrap_used)]

#[path = "../tests/servers/mod.rs"]
mod servers;

use std::cell::Cell;
use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutPayload};
use redis::aio::MultiplexedConnection;
use ringfence_guard::mysql::{Connection as MysqlConnection, MysqlError, MysqlGuard};
use ringfence_guard::postgres::{PostgresError, PostgresGuard};
use ringfence_guard::redis::{Changes, RedisGuard};
use ringfence_guard::s3::{Change, S3Error, S3Guard};
use ringfence_guard::sled::{Changes as SledChanges, Db, SledStore};
use ringfence_guard::sqlite::{SqliteError, SqliteGuard};
use ringfence_guard::{Fence, Guard};
use rusqlite::Connection;
use servers::Disk;
use servers::mysql::Mysql;
use servers::postgres::Postgres;
use servers::redis::Redis;
use servers::s3::S3;
use tokio::sync::Mutex;
use tokio_postgres::Client;

/// Writes per measure in memory, where one is too quick for the clock.
const BATCH: u32 = 10_000;

struct Bench {
    /// Whether `cargo bench` runs this, and not `cargo test`.
    measured: bool,
    wanted: Vec<String>,
}

impl Bench {
    fn of_arguments() -> Self {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        Self {
            measured: arguments.iter().any(|argument| argument == "--bench"),
            wanted: arguments
                .into_iter()
                .filter(|argument| !argument.starts_with('-'))
                .collect(),
        }
    }

    fn wants(&self, store: &str) -> bool {
        self.wanted.is_empty()
            || self
                .wanted
                .iter()
                .any(|wanted| store.contains(wanted.as_str()))
    }

    fn pairs(&self, measured: usize) -> usize {
        if self.measured { measured } else { 2 }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures this machine's time"
)]
async fn time(work: impl Future<Output = ()>) -> Duration {
    let start = std::time::Instant::now();
    work.await;
    start.elapsed()
}

/// The medians of plain and guarded writes.
struct Pair {
    plain: Duration,
    guarded: Duration,
}

/// Measures pairs, taking turns in who comes first.
async fn measure(
    pairs: usize,
    mut plain: impl AsyncFnMut(),
    mut guarded: impl AsyncFnMut(),
) -> Pair {
    // What is compiled, cached or allocated once is not what a write costs.
    for _ in 0..pairs / 10 + 1 {
        plain().await;
        guarded().await;
    }
    let (mut plains, mut guardeds) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        if pair % 2 == 0 {
            plains.push(time(plain()).await);
            guardeds.push(time(guarded()).await);
        } else {
            guardeds.push(time(guarded()).await);
            plains.push(time(plain()).await);
        }
    }
    Pair {
        plain: median(plains),
        guarded: median(guardeds),
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn tell(what: &str, pair: &Pair) {
    let [plain, guarded] = [pair.plain, pair.guarded].map(|time| time.as_secs_f64() * 1e6);
    let ratio = guarded / plain;
    println!("{what:<34} {plain:>10.1} us {guarded:>10.1} us {ratio:>8.3}x");
}

fn fence() -> Fence {
    "payments/ledger/primary#42".parse().unwrap()
}

async fn memory(bench: &Bench) {
    let fence = fence();
    let guard = Guard::new(fence.name.clone());
    let cell = Cell::new(0_u64);
    let write = || cell.set(black_box(cell.get() + 1));
    let pair = measure(
        bench.pairs(500),
        async || (0..BATCH).for_each(|_| write()),
        async || (0..BATCH).for_each(|_| guard.with(black_box(&fence), write).unwrap()),
    )
    .await;
    let [plain, guarded] =
        [pair.plain, pair.guarded].map(|time| time.as_secs_f64() * 1e9 / f64::from(BATCH));
    let more = guarded - plain;
    println!(
        "{:<34} {plain:>10.1} ns {guarded:>10.1} ns  +{more:>5.1} ns",
        "memory, with"
    );
}

async fn sled(bench: &Bench) {
    let plain_directory = tempfile::tempdir().unwrap();
    let guarded_directory = tempfile::tempdir().unwrap();
    let plain: Db = sled::Config::new()
        .path(plain_directory.path())
        .open()
        .unwrap();
    let store = SledStore::open(guarded_directory.path()).unwrap();
    let fence = fence();
    let guard = store.guard(fence.name.clone());
    let count = Cell::new(0_u64);
    let next = || {
        count.set(count.get() + 1);
        count.get().to_be_bytes()
    };
    let pair = measure(
        bench.pairs(1_000),
        async || {
            plain.insert("balance", next()).unwrap();
            plain.flush().unwrap();
        },
        async || {
            let changes = SledChanges::new().insert("balance", next());
            guard.admit(&fence, changes).unwrap();
        },
    )
    .await;
    tell("sled, flushed", &pair);
}

const TABLE: &str = "CREATE TABLE balance (amount BIGINT NOT NULL); INSERT INTO balance VALUES (0)";
const ADD: &str = "UPDATE balance SET amount = amount + 1";

async fn sqlite(bench: &Bench) {
    for journal in ["WAL", "DELETE"] {
        let open = |directory: &tempfile::TempDir| {
            let database = Connection::open(directory.path().join("bank.db")).unwrap();
            database
                .pragma_update(None, "journal_mode", journal)
                .unwrap();
            database.execute_batch(TABLE).unwrap();
            database
        };
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [mut plain, mut guarded] = [open(&directories[0]), open(&directories[1])];
        SqliteGuard::install(&guarded).unwrap();
        let fence = fence();
        let guard = SqliteGuard::new(fence.name.clone());
        let immediate = rusqlite::TransactionBehavior::Immediate;
        let pair = measure(
            bench.pairs(1_000),
            async || {
                let transaction = plain.transaction_with_behavior(immediate).unwrap();
                transaction
                    .prepare_cached(ADD)
                    .unwrap()
                    .execute([])
                    .unwrap();
                transaction.commit().unwrap();
            },
            async || {
                guard
                    .write(&mut guarded, &fence, |transaction| {
                        transaction.prepare_cached(ADD)?.execute([])?;
                        Ok::<_, SqliteError>(())
                    })
                    .unwrap();
            },
        )
        .await;
        tell(&format!("sqlite, {journal}, synchronous FULL"), &pair);
    }
}

async fn postgres(bench: &Bench) {
    let Some(server) = Postgres::start(Disk::Real) else {
        return;
    };
    // One connection for both: each has a server process of its own, and which processor that runs
    // on would weigh more than what it does.
    let client = server.connect("postgres").await;
    PostgresGuard::install(&client).await.unwrap();
    client.batch_execute(TABLE).await.unwrap();
    let add = client.prepare(ADD).await.unwrap();
    let fence = fence();
    let guard = PostgresGuard::new(fence.name.clone());
    let client = Mutex::new(client);
    for (what, synced, guard) in [
        ("synchronous_commit on", "on", guard.clone()),
        ("synchronous_commit off", "off", guard.clone()),
        ("the same, nothing prepared", "off", guard.pooled()),
    ] {
        let set = format!("SET synchronous_commit = {synced}");
        client.lock().await.batch_execute(&set).await.unwrap();
        let plain_write = async || {
            let mut client = client.lock().await;
            let transaction = client.transaction().await.unwrap();
            transaction.execute(&add, &[]).await.unwrap();
            transaction.commit().await.unwrap();
        };
        let guarded_write = async || {
            let write = async |client: &Client| {
                client.execute(&add, &[]).await?;
                Ok::<_, PostgresError>(())
            };
            let mut client = client.lock().await;
            guard.write(&mut client, &fence, write).await.unwrap();
        };
        let pair = measure(bench.pairs(3_000), plain_write, guarded_write).await;
        tell(&format!("postgres, {what}"), &pair);
    }
}

async fn mysql(bench: &Bench) {
    let Some(server) = Mysql::start(Disk::Real) else {
        return;
    };
    let mut conn = server.connect("mysql").await;
    conn.query_drop("CREATE DATABASE bank").await.unwrap();
    // As with PostgreSQL, one connection for both.
    let mut conn = server.connect("bank").await;
    MysqlGuard::install(&mut conn).await.unwrap();
    conn.query_drop(TABLE).await.unwrap();
    let fence = fence();
    let guard = MysqlGuard::new(fence.name.clone());
    let connection = Mutex::new(MysqlConnection::new(conn));
    for flushed in [1, 0] {
        let set = format!("SET GLOBAL innodb_flush_log_at_trx_commit = {flushed}");
        let mut operator = server.connect("bank").await;
        operator.query_drop(set).await.unwrap();
        let plain_write = async || {
            let mut connection = connection.lock().await;
            let conn = connection.get().unwrap();
            conn.query_drop("START TRANSACTION READ WRITE")
                .await
                .unwrap();
            conn.exec_drop(ADD, ()).await.unwrap();
            conn.query_drop("COMMIT").await.unwrap();
        };
        let guarded_write = async || {
            let write = async |conn: &mut Conn| {
                conn.exec_drop(ADD, ()).await?;
                Ok::<_, MysqlError>(())
            };
            let mut connection = connection.lock().await;
            guard.write(&mut connection, &fence, write).await.unwrap();
        };
        let pair = measure(bench.pairs(3_000), plain_write, guarded_write).await;
        tell(&format!("mysql, flush at commit {flushed}"), &pair);
    }
}

async fn redis(bench: &Bench) {
    for policy in ["everysec", "always"] {
        let Some(server) = Redis::start(Disk::Real, &["--appendfsync", policy]) else {
            return;
        };
        let mut plain: MultiplexedConnection = server.connect().await;
        let mut guarded = plain.clone();
        let fence = fence();
        let guard = RedisGuard::new(fence.name.clone());
        let key = guard.key("balance");
        let pair = measure(
            bench.pairs(5_000),
            async || {
                let mut set = ::redis::cmd("SET");
                let set = set.arg(&key).arg("1234567");
                set.query_async::<()>(&mut plain).await.unwrap();
            },
            async || {
                let changes = Changes::new().set(&key, "1234567");
                guard.admit(&mut guarded, &fence, changes).await.unwrap();
            },
        )
        .await;
        tell(&format!("redis, appendfsync {policy}"), &pair);
    }
}

async fn s3(bench: &Bench) {
    let Some(server) = S3::start(Disk::Real) else {
        return;
    };
    let store = server.store();
    let fence = fence();
    let guard = S3Guard::new(&store, fence.name.clone(), "guarded").unwrap();
    let plain = Path::from("plain");
    for (what, bytes) in [("1 KiB", 1 << 10), ("1 MiB", 1 << 20)] {
        let body = Bytes::from(vec![7; bytes]);
        let plain_write = async || {
            let payload = PutPayload::from_bytes(body.clone());
            store.client().put(&plain, payload).await.unwrap();
        };
        let change = || Change::put(body.clone());
        let last = async || {
            guard.admit(&fence, change()).await.unwrap();
        };
        let pair = measure(bench.pairs(1_000), plain_write, last).await;
        tell(&format!("s3, {what}, the last writer"), &pair);
        let read = async || {
            let make = |_| Ok::<_, S3Error>(change());
            guard.write(&fence, make).await.unwrap();
        };
        let pair = measure(bench.pairs(1_000), plain_write, read).await;
        tell(&format!("s3, {what}, read and write"), &pair);
    }
}

fn main() {
    let bench = Bench::of_arguments();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    println!(
        "{:<34} {:>13} {:>13} {:>9}",
        "medians of pairs", "plain", "guarded", "ratio"
    );
    runtime.block_on(async {
        if bench.wants("memory") {
            memory(&bench).await;
        }
        if bench.wants("sled") {
            sled(&bench).await;
        }
        if bench.wants("sqlite") {
            sqlite(&bench).await;
        }
        if bench.wants("postgres") {
            postgres(&bench).await;
        }
        if bench.wants("mysql") {
            mysql(&bench).await;
        }
        if bench.wants("redis") {
            redis(&bench).await;
        }
        if bench.wants("s3") {
            s3(&bench).await;
        }
    });
}
