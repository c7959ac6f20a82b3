//! The guard in sled.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Barrier;
use std::thread;

use crate::contention::{Worker, no_increment_is_lost};
use ringfence_guard::conformance::{Connection, Step, Stop, Store};
use ringfence_guard::sled::{Changes, SledError, SledGuard, SledStore};
use ringfence_guard::{Fence, FencingToken, LeaseName, Refused};
use tempfile::TempDir;

/// One directory for all the stores of a run, each with a lease and a key of its own: opening one
/// is what takes sled the longest.
struct Directory {
    directory: TempDir,
    /// `None` only while it is being closed.
    store: Option<SledStore>,
}

fn open(directory: &Path) -> SledStore {
    SledStore::open(&directory.join("store")).unwrap()
}

impl Directory {
    fn create() -> Self {
        let directory = crate::scratch();
        Self {
            store: Some(open(directory.path())),
            directory,
        }
    }

    fn swap(&mut self, directory: Option<TempDir>) {
        drop(self.store.take());
        if let Some(directory) = directory {
            self.directory = directory;
        }
        self.store = Some(open(self.directory.path()));
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

struct Part {
    name: LeaseName,
    whole: Rc<RefCell<Directory>>,
}

impl Store for Part {
    type Connection = Client;
    type Backup = TempDir;

    fn connect(&self) -> Client {
        let store = self.whole.borrow().store.clone().unwrap();
        let guard = store.guard(self.name.clone());
        Client {
            store,
            guard,
            fence: None,
            written: None,
        }
    }

    fn reopen(&mut self) {
        self.whole.borrow_mut().swap(None);
    }

    /// Every write was flushed and none is under way, so the files are whole.
    fn backup(&self) -> TempDir {
        let backup = crate::scratch();
        copy(self.whole.borrow().directory.path(), backup.path());
        backup
    }

    fn restore(&mut self, backup: TempDir) {
        self.whole.borrow_mut().swap(Some(backup));
    }

    fn advance_to(&mut self, floor: FencingToken) {
        self.connect().guard.advance_to(floor).unwrap();
    }
}

/// Writes wait for the commit, which is one batch. The check before is advice.
struct Client {
    store: SledStore,
    guard: SledGuard,
    fence: Option<Fence>,
    written: Option<Option<u64>>,
}

impl Client {
    fn key(&self) -> &str {
        self.guard.name().as_str()
    }
}

fn stop(error: SledError) -> Stop {
    match error {
        SledError::Refused(refused) => Stop::Refused(refused),
        other => Stop::Broken(format!("{other:?}")),
    }
}

impl Connection for Client {
    fn admit(&mut self, fence: Option<&str>) -> Step {
        let fence = Fence::receive(self.guard.name(), fence)?;
        match self.guard.mark().map_err(stop)? {
            Some(mark) if mark > fence.token => Err(Refused::StaleToken {
                name: fence.name,
                offered: fence.token,
                mark,
            }
            .into()),
            _ => {
                self.fence = Some(fence);
                Ok(())
            }
        }
    }

    fn advance(&mut self, fence: &str) -> Step {
        let fence = Fence::receive(self.guard.name(), Some(fence))?;
        self.guard.advance(&fence).map(drop).map_err(stop)
    }

    fn read(&mut self) -> Step<Option<u64>> {
        if let Some(written) = self.written {
            return Ok(written);
        }
        let value = self.store.get(self.key()).map_err(stop)?;
        Ok(value.map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap())))
    }

    fn write(&mut self, datum: Option<u64>) -> Step {
        self.written = Some(datum);
        Ok(())
    }

    fn commit(&mut self) -> Step {
        let Some(fence) = self.fence.take() else {
            return Ok(());
        };
        let changes = match self.written.take() {
            Some(Some(value)) => Changes::new().insert(self.key(), value.to_be_bytes()),
            Some(None) => Changes::new().remove(self.key()),
            None => Changes::new(),
        };
        self.guard.admit(&fence, changes).map(drop).map_err(stop)
    }

    fn abort(&mut self) {
        self.fence = None;
        self.written = None;
    }
}

#[test]
fn the_guard_in_sled_passes_the_suite() {
    let whole = Rc::new(RefCell::new(Directory::create()));
    super::passes(|name| Part {
        name: name.clone(),
        whole: Rc::clone(&whole),
    });
}

#[test]
fn a_crowd_of_writers_in_one_directory_loses_nothing() {
    let whole = Rc::new(RefCell::new(Directory::create()));
    super::withstands_a_crowd(|name| Part {
        name: name.clone(),
        whole: Rc::clone(&whole),
    });
}

fn fence(text: &str) -> Fence {
    text.parse().unwrap()
}

#[test]
fn leases_of_one_directory_have_marks_of_their_own() {
    let directory = crate::scratch();
    let store = open(directory.path());
    let (a, b) = (
        store.guard(fence("a#1").name),
        store.guard(fence("b#1").name),
    );
    a.advance(&fence("a#8")).unwrap();
    b.admit(&fence("b#3"), Changes::new().insert("x", "1"))
        .unwrap();
    assert!(a.admit(&fence("a#3"), Changes::new().remove("x")).is_err());
    assert_eq!(store.get("x").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(b.mark().unwrap(), FencingToken::new(3));
}

#[test]
fn data_cannot_be_mistaken_for_a_mark() {
    let directory = crate::scratch();
    let store = open(directory.path());
    let guard = store.guard(fence("a#1").name);
    let changes = Changes::new()
        .insert("a", "x")
        .insert("ma", "y")
        .remove("m");
    guard.admit(&fence("a#8"), changes).unwrap();
    assert_eq!(guard.mark().unwrap(), FencingToken::new(8));
    assert_eq!(store.get("ma").unwrap().as_deref(), Some(&b"y"[..]));
}

#[test]
fn a_directory_is_open_once() {
    let directory = crate::scratch();
    let _store = open(directory.path());
    assert!(matches!(
        SledStore::open(&directory.path().join("store")),
        Err(SledError::Database(_))
    ));
}

struct Counter {
    store: SledStore,
    guard: SledGuard,
}

/// `false` for a stale token; whatever else fails is a failure of the test.
fn admitted<R>(outcome: Result<R, SledError>) -> bool {
    match outcome {
        Ok(_) => true,
        Err(SledError::Refused(Refused::StaleToken { .. })) => false,
        Err(error) => panic!("{error:?}"),
    }
}

impl Worker for Counter {
    fn advance(&mut self, fence: &Fence) -> bool {
        admitted(self.guard.advance(fence))
    }

    fn read(&mut self) -> u64 {
        let bytes = self.store.get("count").unwrap();
        bytes.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()))
    }

    fn write(&mut self, fence: &Fence, count: u64) -> bool {
        admitted(
            self.guard
                .admit(fence, Changes::new().insert("count", count.to_be_bytes())),
        )
    }
}

#[test]
fn no_increment_is_lost_between_threads() {
    let directory = crate::scratch();
    let store = open(directory.path());
    let name = fence("a#1").name;
    let worker = |_| Counter {
        store: store.clone(),
        guard: store.guard(name.clone()),
    };
    no_increment_is_lost(&name, (0..4).map(worker).collect(), 300);
}

#[test]
fn a_damaged_mark_is_told_and_a_floor_repairs_it() {
    let directory = crate::scratch();
    let path = directory.path().join("store");
    let raw: ringfence_guard::sled::Db = sled::Config::new().path(&path).open().unwrap();
    raw.insert("ma", "junk").unwrap();
    raw.flush().unwrap();
    drop(raw);

    let store = open(directory.path());
    let guard = store.guard(fence("a#1").name);
    let error = guard.advance(&fence("a#8")).unwrap_err();
    assert!(matches!(error, SledError::DamagedMark { .. }), "{error:?}");
    guard.advance_to(fence("a#9").token).unwrap();
    assert!(guard.advance(&fence("a#8")).is_err());
    guard.advance(&fence("a#9")).unwrap();
}

#[test]
fn of_two_grants_at_one_moment_the_newer_one_stays() {
    const ROUNDS: u64 = 1_000;
    let directory = crate::scratch();
    let store = open(directory.path());
    let name = fence("a#1").name;
    let together = Barrier::new(2);
    let play = |guard: SledGuard, mine: u64| {
        for round in 0..ROUNDS {
            let token = FencingToken::new(2 * round + mine).unwrap();
            let changes = Changes::new().insert("token", token.to_string());
            together.wait();
            admitted(guard.admit(&Fence::new(guard.name().clone(), token), changes));
            together.wait();
            let newer = FencingToken::new(2 * round + 2).unwrap();
            assert_eq!(guard.mark().unwrap(), Some(newer));
        }
    };
    thread::scope(|scope| {
        for mine in [1, 2] {
            let guard = store.guard(name.clone());
            let play = &play;
            scope.spawn(move || play(guard, mine));
        }
    });
    let last = store.get("token").unwrap().unwrap();
    assert_eq!(String::from_utf8(last).unwrap(), (2 * ROUNDS).to_string());
}
