//! Redis behind a proxy that disturbs each message of a guarded write: at each in turn, and in great
//! number at random.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use ringfence_guard::conformance::{Disturbed, Fault, Held, Hit, HostileStore, Written};
use ringfence_guard::redis::{Changes, RedisError, RedisGuard};
use ringfence_guard::{Fence, FencingToken, LeaseName};
use tokio::sync::Mutex;
use tokio::task::LocalSet;

use crate::postgres::nothing_outside;
use crate::servers::Disk;
use crate::servers::proxy::{Hand, Outside};
use crate::servers::redis::Redis;
use crate::soak::{Came, Chance, Tally, writes};
use crate::{run_to_end, withstands};

struct Part {
    server: Arc<Mutex<Redis>>,
    guard: RedisGuard,
}

fn written(done: Result<(), RedisError>) -> Written {
    match done {
        Ok(()) => Written::Committed,
        Err(RedisError::Refused(refused)) => Written::Refused(refused),
        Err(error @ RedisError::Unknown { .. }) => Written::Unknown(format!("{error:?}")),
        Err(error) => Written::Failed(format!("{error:?}")),
    }
}

async fn outside(server: &Arc<Mutex<Redis>>, hit: Hit) -> Outside {
    match hit {
        // The nearest thing to a cancel request: the script, if it runs, and then the client.
        Hit::Cancelled => {
            let other = server.lock().await.connect().await;
            Arc::new(move || {
                let mut other = other.clone();
                Box::pin(async move {
                    let mut kill = redis::cmd("SCRIPT");
                    let killed = kill.arg("KILL").query_async::<()>(&mut other).await;
                    drop(killed);
                    let mut kill = redis::cmd("CLIENT");
                    let kill = kill.arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]);
                    kill.query_async::<()>(&mut other).await.unwrap();
                })
            })
        }
        Hit::Restart => {
            let server = Arc::clone(server);
            Arc::new(move || {
                let server = Arc::clone(&server);
                Box::pin(async move {
                    let mut server = server.lock().await;
                    tokio::task::block_in_place(|| server.crash());
                })
            })
        }
        _ => nothing_outside(),
    }
}

impl HostileStore for Part {
    fn hits(&self) -> Vec<Hit> {
        Hit::ALL.to_vec()
    }

    async fn write(&self, fence: &Fence, datum: u64, fault: Option<Fault>) -> Disturbed {
        let (mut connection, hand) = self.server.lock().await.connect_through().await;
        if let Some(fault) = fault {
            // The script is not there, so that a write has as many messages as it can have.
            let mut flush = redis::cmd("SCRIPT");
            let flushed = flush.arg("FLUSH").query_async::<()>(&mut connection).await;
            flushed.unwrap();
            hand.arm(fault, outside(&self.server, fault.hit).await);
        }
        let changes = Changes::new()
            .set(self.guard.key("first"), datum.to_string())
            .set(self.guard.key("second"), datum.to_string());
        let done = self.guard.admit(&mut connection, fence, changes).await;
        let reached = hand.disarm();
        drop(connection);
        hand.ended().await;
        Disturbed {
            written: written(done.map(drop)),
            reached,
        }
    }

    async fn look(&self) -> Held {
        let mut connection = self.server.lock().await.connect().await;
        let mut get = redis::cmd("MGET");
        get.arg(self.guard.key("first"))
            .arg(self.guard.key("second"));
        let (first, second) = get.query_async(&mut connection).await.unwrap();
        Held {
            mark: self.guard.mark(&mut connection).await.unwrap(),
            first,
            second,
        }
    }
}

#[test]
fn a_redis_write_that_fails_at_any_message_has_committed_nothing() {
    run_to_end(async {
        let Some(server) = Redis::start(Disk::Memory, &[]) else {
            return;
        };
        let server = Arc::new(Mutex::new(server));
        let parts = async |name: &LeaseName| Part {
            server: Arc::clone(&server),
            guard: RedisGuard::new(name.clone()),
        };
        withstands(parts, Hit::ALL).await;
    });
}

/// Connections at a time, each with a lease of its own.
const WORKERS: u64 = 16;

/// Of so many writes one meets a reset, since each needs a new connection.
const RESETS: u64 = 20;

struct Worker {
    server: Arc<Redis>,
    guard: RedisGuard,
    chance: Chance,
    connection: Option<(MultiplexedConnection, Hand)>,
    calm: MultiplexedConnection,
    token: u64,
}

impl Worker {
    /// One hostile write, and a look at what stands in the store then.
    async fn write(&mut self, id: u64, tally: &mut Tally) {
        if self.connection.is_none() {
            self.connection = Some(self.server.connect_through().await);
        }
        let (mut connection, hand) = self.connection.take().unwrap();
        let stale = self.chance.below(2) == 0;
        let new = !stale && self.chance.below(20) == 0;
        let shown = match (stale, new) {
            (true, _) => self.token - 1,
            (_, true) => self.token + 1,
            _ => self.token,
        };
        let hit = match self.chance.below(RESETS) {
            0 => Hit::ResetBefore,
            1 => Hit::ResetInside,
            2 => Hit::ResetBehind,
            _ => Hit::TimesOut,
        };
        let disturbed = self.chance.below(2) == 0;
        if disturbed {
            hand.arm(Fault { hit, step: 0 }, nothing_outside());
        }
        let token = FencingToken::new(shown).unwrap();
        let fence = Fence::new(self.guard.name().clone(), token);
        let changes = Changes::new()
            .set(self.guard.key("first"), id.to_string())
            .set(self.guard.key("second"), id.to_string());
        let done = self.guard.admit(&mut connection, &fence, changes).await;
        let came = match written(done.map(drop)) {
            Written::Committed => Came::Committed,
            Written::Refused(_) => Came::Refused,
            Written::Failed(_) => Came::Failed,
            Written::Unknown(_) => Came::Unknown,
        };
        hand.disarm();
        if came == Came::Unknown {
            drop(connection);
            hand.ended().await;
        } else {
            self.connection = Some((connection, hand));
        }
        let mut get = redis::cmd("MGET");
        get.arg(self.guard.key("first"))
            .arg(self.guard.key("second"));
        let halves: Vec<Option<u64>> = get.query_async(&mut self.calm).await.unwrap();
        let found = halves.iter().filter(|half| **half == Some(id)).count();
        tally.judge(stale, came, found, 2);
        self.token = self
            .guard
            .mark(&mut self.calm)
            .await
            .unwrap()
            .unwrap()
            .get();
    }
}

#[test]
fn hostile_redis_writes_commit_nothing_stale_and_nothing_torn() {
    run_to_end(async {
        let Some(server) = Redis::start(Disk::Memory, &["--appendfsync", "no"]) else {
            return;
        };
        let server = Arc::new(server);
        let workers = LocalSet::new();
        let mut tasks = Vec::new();
        for number in 0..WORKERS {
            let name = LeaseName::parse(&format!("soak/{number}")).unwrap();
            let mut worker = Worker {
                server: Arc::clone(&server),
                guard: RedisGuard::new(name),
                chance: Chance(number),
                connection: None,
                calm: server.connect().await,
                token: 2,
            };
            let floor = FencingToken::new(2).unwrap();
            let raised = worker.guard.advance_to(&mut worker.calm, floor).await;
            raised.unwrap();
            tasks.push(workers.spawn_local(async move {
                let mut tally = Tally::default();
                for id in 0..writes().div_ceil(WORKERS) {
                    worker.write(id, &mut tally).await;
                }
                tally
            }));
        }
        workers.await;
        let mut sum = Tally::default();
        for task in tasks {
            sum.add(&task.await.unwrap());
        }
        sum.settle("Redis");
    });
}
