//! Leases of a real cluster, sealed at real guards.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ringfence_client::{BootClock, Clock as _, HeldLease, Seal, Session};
use ringfence_guard::sqlite::{SqliteError, SqliteGuard, SqliteSeal};
use ringfence_guard::{Fence, Guard, Refused};
use ringfence_proto::v1::RevokeRequest;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_tests::{Cluster, Options};
use rusqlite::Connection;

use crate::support::{LONG, NAME, name, session, within};

/// How many writers each holder has.
const WRITERS: usize = 4;

fn open(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(LONG).unwrap();
    connection
        .pragma_update(None, "journal_mode", "wal")
        .unwrap();
    connection
        .pragma_update(None, "synchronous", "FULL")
        .unwrap();
    connection
}

async fn sealed(session: &Session, database: &Path, memory: &Arc<Guard>) -> HeldLease {
    let sqlite = SqliteSeal::new(SqliteGuard::new(name()), open(database));
    let seal = Seal::at(sqlite).and(Arc::clone(memory)).timeout(LONG);
    let acquire = session.acquire(NAME).wait(LONG).seal(seal).send();
    within("a sealed lease", acquire).await.unwrap()
}

/// Writers of a holder that never listens.
struct Zombies {
    stop: Arc<AtomicBool>,
    admitted: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
    running: Vec<thread::JoinHandle<()>>,
}

impl Zombies {
    /// Each writes its fence into the database as often as it can, refused or not.
    fn start(database: &Path, fence: &Fence) -> Self {
        let (stop, admitted, refused) =
            <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let writer = |_| {
            let (stop, admitted, refused) = (stop.clone(), admitted.clone(), refused.clone());
            let (mut database, fence) = (open(database), fence.clone());
            thread::spawn(move || {
                let guard = SqliteGuard::new(name());
                while !stop.load(Ordering::Relaxed) {
                    let written = guard.write(&mut database, &fence, |transaction| {
                        let token = i64::try_from(fence.token.get()).unwrap();
                        transaction.execute("INSERT INTO written VALUES (?1)", [token])?;
                        Ok::<_, SqliteError>(())
                    });
                    match written {
                        Ok(()) => admitted.fetch_add(1, Ordering::Relaxed),
                        Err(SqliteError::Refused(Refused::StaleToken { .. })) => {
                            refused.fetch_add(1, Ordering::Relaxed)
                        }
                        Err(error) => panic!("{error}"),
                    };
                    // SQLite serves those who wait for its lock in no order.
                    thread::park_timeout(Duration::from_millis(1));
                }
            })
        };
        let running = (0..WRITERS).map(writer).collect();
        Self {
            stop,
            admitted,
            refused,
            running,
        }
    }

    fn until(&self, count: impl Fn(&Self) -> u64, least: u64) {
        let began = BootClock.now();
        while count(self) < least {
            assert!(
                BootClock.now().saturating_since(began) < LONG,
                "writers stand still"
            );
            thread::park_timeout(Duration::from_millis(1));
        }
    }
}

impl Drop for Zombies {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for writer in self.running.drain(..) {
            let ended = writer.join();
            assert!(ended.is_ok() || thread::panicking());
        }
    }
}

/// The tokens in the database, in the order of their commits.
fn written(database: &Path) -> Vec<u64> {
    let database = open(database);
    let mut select = database
        .prepare("SELECT token FROM written ORDER BY rowid")
        .unwrap();
    let rows = select.query_map([], |row| row.get::<_, i64>(0)).unwrap();
    rows.map(|token| u64::try_from(token.unwrap()).unwrap())
        .collect()
}

/// `revoke --now` waits for no holder. With sealing the next one still begins at once, and the old
/// one, which writes as fast as it can, commits nothing behind that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_revoked_now_under_load_goes_to_a_holder_that_no_older_write_disturbs() {
    let cluster = Cluster::start(Options::default()).await;
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("store.db");
    let setup = open(&database);
    SqliteGuard::install(&setup).unwrap();
    setup
        .execute_batch("CREATE TABLE written (token INTEGER NOT NULL)")
        .unwrap();
    let memory = Arc::new(Guard::new(name()));
    let (first, second) = (session(&cluster).await, session(&cluster).await);
    let old = sealed(&first, &database, &memory).await;
    let zombies = Zombies::start(&database, &old.fence());
    zombies.until(|zombies| zombies.admitted.load(Ordering::Relaxed), 20);
    let next = {
        let (second, database, memory) = (second.clone(), database.clone(), memory.clone());
        tokio::spawn(async move {
            let lease = sealed(&second, &database, &memory).await;
            (lease, BootClock.now(), written(&database).len())
        })
    };
    // It waits in the queue.
    tokio::time::sleep(Duration::from_millis(300)).await;

    let revoked = BootClock.now();
    let leader = within("a leader", cluster.wait_for_leader(LONG)).await;
    let revoke = RevokeRequest {
        name: NAME.into(),
        token: old.token().get(),
        now: true,
        ..RevokeRequest::default()
    };
    let mut leases = LeasesClient::new(cluster.caller().channel(leader));
    leases.revoke(revoke).await.unwrap();
    let (new, held, before) = within("the next holder", next).await.unwrap();
    let took = held.saturating_since(revoked);
    println!("held {took:?} after the revoke was asked for");
    assert!(took < first.ttl(), "it waited for the old holder");

    // I26: what the old holder commits is before the next one began.
    zombies.until(|zombies| zombies.refused.load(Ordering::Relaxed), 20);
    drop(zombies);
    assert!(new.is_valid() && new.unsealed().is_empty());
    assert!(memory.with(&old.fence(), || ()).is_err());
    let mut connection = open(&database);
    let guard = SqliteGuard::new(name());
    guard
        .write(&mut connection, &new.fence(), |transaction| {
            let token = i64::try_from(new.token().get()).unwrap();
            transaction.execute("INSERT INTO written VALUES (?1)", [token])?;
            Ok::<_, SqliteError>(())
        })
        .unwrap();
    let all = written(&database);
    assert_eq!(all.len(), before + 1, "a write behind the seal");
    // I1.
    assert!(all.is_sorted());
}
