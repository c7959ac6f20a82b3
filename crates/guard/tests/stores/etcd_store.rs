//! The guard in etcd against the conformance suite.

use std::cell::RefCell;
use std::rc::Rc;

use ringfence_guard::conformance::{AsyncConnection, AsyncStore, Rule, Step, Stop};
use ringfence_guard::etcd::{EtcdClient, EtcdError, EtcdGuard, Txn};
use ringfence_guard::{Ceiling, Fence, FencingToken, LeaseName};
use tempfile::TempDir;

use crate::servers::Disk;
use crate::servers::etcd::Etcd;
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
    server: RefCell<Etcd>,
    way: Way,
}

impl Whole {
    fn start(way: Way) -> Option<Rc<Self>> {
        let server = RefCell::new(Etcd::start(Disk::Memory, &[])?);
        Some(Rc::new(Self { server, way }))
    }

    fn part(self: &Rc<Self>, name: &LeaseName) -> Part {
        Part {
            guard: EtcdGuard::new(name.clone()),
            whole: Rc::clone(self),
        }
    }
}

struct Part {
    guard: EtcdGuard,
    whole: Rc<Whole>,
}

impl AsyncStore for Part {
    type Connection = Holder;
    type Backup = TempDir;

    async fn connect(&self) -> Holder {
        Holder {
            client: self.whole.server.borrow().client(),
            guard: self.guard.clone(),
            way: self.whole.way,
            fence: None,
            written: None,
        }
    }

    async fn reopen(&mut self) {
        self.whole.server.borrow_mut().crash();
    }

    async fn backup(&self) -> TempDir {
        self.whole.server.borrow_mut().copy()
    }

    async fn restore(&mut self, backup: TempDir) {
        self.whole.server.borrow_mut().load(&backup);
    }

    async fn advance_to(&mut self, floor: FencingToken) {
        let mut client = self.whole.server.borrow().client();
        self.guard.advance_to(&mut client, floor).await.unwrap();
    }
}

/// Writes wait for the commit, which is one transaction. The check before is advice.
struct Holder {
    client: EtcdClient,
    guard: EtcdGuard,
    way: Way,
    fence: Option<Fence>,
    written: Option<Option<u64>>,
}

fn stop(error: EtcdError) -> Stop {
    match error {
        EtcdError::Refused(refused) => Stop::Refused(refused),
        other => Stop::Broken(format!("{other:?}")),
    }
}

impl Holder {
    fn key(&self) -> String {
        format!("data/{}", self.guard.name())
    }

    /// Sets mark and datum without a look at the mark.
    async fn overwrite(&mut self, fence: &Fence) -> Step {
        let Fence { name, token, .. } = fence;
        let mark = format!("ringfence-mark 1\nlease {name}\nmark {:019}\n", token.get());
        let mut txn = Txn::new().put(self.guard.mark_key(), mark);
        txn = match self.written.take() {
            Some(Some(value)) => txn.put(self.key(), value.to_string()),
            Some(None) => txn.delete(self.key()),
            None => txn,
        };
        self.client.past_the_guard(txn).await.map_err(stop)
    }
}

impl AsyncConnection for Holder {
    async fn admit(&mut self, fence: Option<&str>) -> Step {
        let fence = Fence::receive(self.guard.name(), fence)?;
        let mark = self.guard.mark(&mut self.client).await.map_err(stop)?;
        fence.judge(self.guard.name(), mark)?;
        Ceiling::Clock.judge(&fence, mark)?;
        self.fence = Some(fence);
        Ok(())
    }

    async fn advance(&mut self, fence: &str) -> Step {
        let fence = Fence::receive(self.guard.name(), Some(fence))?;
        let advanced = self.guard.advance(&mut self.client, &fence).await;
        advanced.map(drop).map_err(stop)
    }

    async fn read(&mut self) -> Step<Option<u64>> {
        if let Some(written) = self.written {
            return Ok(written);
        }
        let key = self.key();
        let value = self.client.get(key).await.map_err(stop)?;
        Ok(value.map(|value| str::from_utf8(&value).unwrap().parse().unwrap()))
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
        let txn = match self.written.take() {
            Some(Some(value)) => Txn::new().put(self.key(), value.to_string()),
            Some(None) => Txn::new().delete(self.key()),
            None => Txn::new(),
        };
        let admitted = self.guard.admit(&mut self.client, &fence, txn);
        admitted.await.map(drop).map_err(stop)
    }

    async fn abort(&mut self) {
        self.fence = None;
        self.written = None;
    }
}

#[test]
fn the_guard_in_etcd_passes_the_suite() {
    run_to_end(async {
        if let Some(whole) = Whole::start(Way::Guard) {
            passes(async |name: &LeaseName| whole.part(name)).await;
        }
    });
}

#[test]
fn a_crowd_of_writers_in_etcd_loses_nothing() {
    run_to_end(async {
        if let Some(whole) = Whole::start(Way::Guard) {
            withstands_a_crowd(async |name: &LeaseName| whole.part(name)).await;
        }
    });
}

#[test]
fn a_check_outside_of_the_transaction_is_found() {
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
