//! The guard in Redis against the conformance suite.

use std::cell::RefCell;
use std::rc::Rc;

use redis::aio::MultiplexedConnection;
use ringfence_guard::conformance::{AsyncConnection, AsyncStore, Rule, Step, Stop};
use ringfence_guard::redis::{Changes, RedisError, RedisGuard};
use ringfence_guard::{Ceiling, Fence, FencingToken, LeaseName};

use crate::servers::Disk;
use crate::servers::redis::Redis;
use crate::{fails, passes, run_to_end, withstands_a_crowd};

/// How a holder goes about it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Guard,
    /// Wrong: the mark is looked at, and set with the data later.
    CheckedBeforehand,
}

/// One server for all the stores of a run, each with a lease and a key of its own.
struct Whole {
    server: RefCell<Redis>,
    way: Way,
}

impl Whole {
    fn start(way: Way) -> Option<Rc<Self>> {
        let server = RefCell::new(Redis::start(Disk::Memory, &[])?);
        Some(Rc::new(Self { server, way }))
    }

    fn part(self: &Rc<Self>, name: &LeaseName) -> Part {
        Part {
            guard: RedisGuard::new(name.clone()),
            whole: Rc::clone(self),
        }
    }
}

struct Part {
    guard: RedisGuard,
    whole: Rc<Whole>,
}

#[expect(
    clippy::await_holding_refcell_ref,
    reason = "the server is replaced only when no other test uses it"
)]
impl AsyncStore for Part {
    type Connection = Holder;
    type Backup = Vec<u8>;

    async fn connect(&self) -> Holder {
        Holder {
            connection: self.whole.server.borrow().connect().await,
            guard: self.guard.clone(),
            way: self.whole.way,
            fence: None,
            written: None,
        }
    }

    async fn reopen(&mut self) {
        self.whole.server.borrow_mut().crash();
    }

    async fn backup(&self) -> Vec<u8> {
        self.whole.server.borrow().snapshot().await
    }

    async fn restore(&mut self, backup: Vec<u8>) {
        self.whole.server.borrow_mut().load(&backup).await;
    }

    async fn advance_to(&mut self, floor: FencingToken) {
        let mut connection = self.whole.server.borrow().connect().await;
        self.guard.advance_to(&mut connection, floor).await.unwrap();
    }
}

/// Writes wait for the commit, which is one script. The check before is advice.
struct Holder {
    connection: MultiplexedConnection,
    guard: RedisGuard,
    way: Way,
    fence: Option<Fence>,
    written: Option<Option<u64>>,
}

fn stop(error: RedisError) -> Stop {
    match error {
        RedisError::Refused(refused) => Stop::Refused(refused),
        other => Stop::Broken(format!("{other:?}")),
    }
}

impl Holder {
    fn key(&self) -> String {
        self.guard.key("datum")
    }

    /// Sets mark and datum without a look at the mark.
    async fn overwrite(&mut self, fence: &Fence) -> Step {
        let mut both = redis::pipe();
        both.atomic();
        both.set(self.guard.mark_key(), format!("{:019}", fence.token.get()));
        match self.written.take() {
            Some(Some(value)) => both.set(self.key(), value),
            Some(None) => both.del(self.key()),
            None => &mut both,
        };
        let done = both.query_async::<()>(&mut self.connection).await;
        done.map_err(RedisError::from).map_err(stop)
    }
}

impl AsyncConnection for Holder {
    async fn admit(&mut self, fence: Option<&str>) -> Step {
        let fence = Fence::receive(self.guard.name(), fence)?;
        let mark = self.guard.mark(&mut self.connection).await.map_err(stop)?;
        fence.judge(self.guard.name(), mark)?;
        Ceiling::Clock.judge(&fence, mark)?;
        self.fence = Some(fence);
        Ok(())
    }

    async fn advance(&mut self, fence: &str) -> Step {
        let fence = Fence::receive(self.guard.name(), Some(fence))?;
        let advanced = self.guard.advance(&mut self.connection, &fence).await;
        advanced.map(drop).map_err(stop)
    }

    async fn read(&mut self) -> Step<Option<u64>> {
        if let Some(written) = self.written {
            return Ok(written);
        }
        let mut get = redis::cmd("GET");
        let get = get.arg(self.key()).query_async(&mut self.connection).await;
        get.map_err(RedisError::from).map_err(stop)
    }

    async fn write(&mut self, datum: Option<u64>) -> Step {
        self.written = Some(datum);
        Ok(())
    }

    async fn commit(&mut self) -> Step {
        let Some(fence) = self.fence.take() else {
            return Ok(());
        };
        if self.way == Way::CheckedBeforehand {
            return self.overwrite(&fence).await;
        }
        let changes = match self.written.take() {
            Some(Some(value)) => Changes::new().set(self.key(), value.to_string()),
            Some(None) => Changes::new().delete(self.key()),
            None => Changes::new(),
        };
        let admitted = self.guard.admit(&mut self.connection, &fence, changes);
        admitted.await.map(drop).map_err(stop)
    }

    async fn abort(&mut self) {
        self.fence = None;
        self.written = None;
    }
}

#[test]
fn the_guard_in_redis_passes_the_suite() {
    run_to_end(async {
        if let Some(whole) = Whole::start(Way::Guard) {
            passes(async |name: &LeaseName| whole.part(name)).await;
        }
    });
}

#[test]
fn a_crowd_of_writers_in_redis_loses_nothing() {
    run_to_end(async {
        if let Some(whole) = Whole::start(Way::Guard) {
            withstands_a_crowd(async |name: &LeaseName| whole.part(name)).await;
        }
    });
}

#[test]
fn a_check_outside_of_the_script_is_found() {
    run_to_end(async {
        if let Some(whole) = Whole::start(Way::CheckedBeforehand) {
            let violation = fails(async |name: &LeaseName| whole.part(name)).await;
            assert!(
                matches!(violation.rule, Rule::TokensDecreased { .. }),
                "{violation}"
            );
        }
    });
}
