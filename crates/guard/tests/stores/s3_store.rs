//! The guard of objects in S3 against the conformance suite.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutPayload};
use ringfence_guard::conformance::{AsyncConnection, AsyncStore, Rule, Step, Stop};
use ringfence_guard::s3::{Change, S3Error, S3Guard, S3Store};
use ringfence_guard::{Ceiling, Fence, FencingToken, LeaseName};

use crate::servers::Disk;
use crate::servers::s3::S3;
use crate::{fails, passes, run_to_end, withstands_a_crowd};

/// How a holder goes about it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Guard,
    /// Wrong: the mark is looked at, and written with the body later, without a condition.
    CheckedBeforehand,
}

/// One server for all the stores of a run, each with a lease and an object of its own.
struct Whole {
    server: RefCell<S3>,
    store: S3Store,
    way: Way,
    made: Cell<u64>,
}

impl Whole {
    fn start(way: Way) -> Option<Rc<Self>> {
        let server = S3::start(Disk::Memory)?;
        Some(Rc::new(Self {
            store: server.store(),
            server: RefCell::new(server),
            way,
            made: Cell::new(0),
        }))
    }

    fn part(self: &Rc<Self>, name: &LeaseName) -> Part {
        self.made.set(self.made.get() + 1);
        Part {
            name: name.clone(),
            key: format!("objects/{}", self.made.get()),
            whole: Rc::clone(self),
        }
    }
}

struct Part {
    name: LeaseName,
    key: String,
    whole: Rc<Whole>,
}

impl Part {
    fn guard(&self) -> S3Guard {
        S3Guard::new(&self.whole.store, self.name.clone(), &self.key).unwrap()
    }
}

impl AsyncStore for Part {
    type Connection = Holder;
    type Backup = Option<Bytes>;

    async fn connect(&self) -> Holder {
        Holder {
            guard: self.guard(),
            store: self.whole.store.clone(),
            way: self.whole.way,
            fence: None,
            written: None,
        }
    }

    async fn reopen(&mut self) {
        self.whole.server.borrow_mut().crash();
    }

    async fn backup(&self) -> Option<Bytes> {
        let object = self.whole.store.client().get(&Path::from(&*self.key)).await;
        match object {
            Ok(object) => Some(object.bytes().await.unwrap()),
            Err(object_store::Error::NotFound { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    async fn restore(&mut self, backup: Option<Bytes>) {
        let (client, key) = (self.whole.store.client(), Path::from(&*self.key));
        match backup {
            Some(object) => drop(client.put(&key, object.into()).await.unwrap()),
            None => client.delete(&key).await.unwrap(),
        }
    }

    async fn advance_to(&mut self, floor: FencingToken) {
        self.guard().advance_to(floor).await.unwrap();
    }
}

/// Writes wait for the commit, which is one object. The check before is advice.
struct Holder {
    guard: S3Guard,
    store: S3Store,
    way: Way,
    fence: Option<Fence>,
    written: Option<Option<u64>>,
}

fn stop(error: S3Error) -> Stop {
    match error {
        S3Error::Refused(refused) => Stop::Refused(refused),
        other => Stop::Broken(format!("{other:?}")),
    }
}

fn change(datum: Option<u64>) -> Change {
    datum.map_or(Change::Delete, |datum| Change::put(datum.to_string()))
}

impl Holder {
    /// What the guard would write, over whatever there is.
    async fn overwrite(&mut self, fence: &Fence) -> Step {
        let body = self.written.take().flatten().map(|datum| datum.to_string());
        let length = body.as_ref().map_or("deleted".to_owned(), |body| {
            format!("body {:019}", body.len())
        });
        let Fence { name, token, .. } = fence;
        let object = format!(
            "ringfence-guarded-object 1\nlease {name}\nmark {:019}\nrevision {:019}\n{length}\n\
             writes {:032x}\n\n{}",
            token.get(),
            1,
            token.get(),
            body.unwrap_or_default()
        );
        let key = Path::from(self.guard.key());
        let put = self.store.client().put(&key, PutPayload::from(object));
        put.await
            .map(drop)
            .map_err(|error| Stop::Broken(error.to_string()))
    }
}

impl AsyncConnection for Holder {
    async fn admit(&mut self, fence: Option<&str>) -> Step {
        let fence = Fence::receive(self.guard.name(), fence)?;
        let mark = self.guard.mark().await.map_err(stop)?;
        fence.judge(self.guard.name(), mark)?;
        Ceiling::Clock.judge(&fence, mark)?;
        self.fence = Some(fence);
        Ok(())
    }

    async fn advance(&mut self, fence: &str) -> Step {
        let fence = Fence::receive(self.guard.name(), Some(fence))?;
        self.guard.advance(&fence).await.map(drop).map_err(stop)
    }

    async fn read(&mut self) -> Step<Option<u64>> {
        if let Some(written) = self.written {
            return Ok(written);
        }
        let body = self.guard.read().await.map_err(stop)?;
        Ok(body.map(|body| str::from_utf8(&body).unwrap().parse().unwrap()))
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
        let done = match self.written.take() {
            Some(datum) => self.guard.admit(&fence, change(datum)).await,
            None => self.guard.advance(&fence).await,
        };
        done.map(drop).map_err(stop)
    }

    async fn abort(&mut self) {
        self.fence = None;
        self.written = None;
    }
}

#[test]
fn the_guard_in_s3_passes_the_suite() {
    run_to_end(async {
        if let Some(whole) = Whole::start(Way::Guard) {
            passes(async |name: &LeaseName| whole.part(name)).await;
        }
    });
}

#[test]
fn a_crowd_of_writers_in_s3_loses_nothing() {
    run_to_end(async {
        if let Some(whole) = Whole::start(Way::Guard) {
            withstands_a_crowd(async |name: &LeaseName| whole.part(name)).await;
        }
    });
}

#[test]
fn a_check_without_a_condition_on_the_write_is_found() {
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
