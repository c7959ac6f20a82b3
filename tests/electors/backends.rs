//! S2.10: what is written against the trait `Lock` runs on any backend that is consistent: on a
//! Ringfence cluster, on a register with compare-and-swap, and on the locks of an operating system.

use std::error::Error;
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_client::{BootClock, Clock, Lock, Moment};

use crate::raw_lock::{self, MINUTE};
use crate::support::{Tokens, client, one_node, within};

/// What every lock owes two contenders, `alice` and `bob`.
async fn assert_it_is_a_lock<L: Lock>(mut alice: L, mut bob: L) {
    bob.refresh().await.unwrap();
    assert_eq!((bob.term(), bob.owner()), (-1, None), "nobody ever had it");
    assert!(bob.locked_until().is_none());

    assert!(alice.try_acquire().await.unwrap());
    let first = alice.term();
    assert!(first >= 0 && alice.owner() == Some("alice"));
    assert!(alice.locked_until().unwrap() > BootClock.now());
    assert!(alice.try_acquire().await.unwrap(), "it is mine already");
    assert_eq!(alice.term(), first, "renewing is no new term");

    assert!(!bob.try_acquire().await.unwrap());
    assert_eq!((bob.owner(), bob.term()), (Some("alice"), first));
    assert!(bob.locked_until().is_none(), "it is alice's");
    assert!(bob.try_release().await.unwrap(), "not owned counts");
    assert!(!bob.try_acquire().await.unwrap(), "and is still alice's");

    assert!(alice.try_release().await.unwrap());
    assert!(alice.try_release().await.unwrap(), "twice does no harm");
    assert_eq!((alice.term(), alice.locked_until()), (first, None));
    bob.refresh().await.unwrap();
    assert_eq!((bob.owner(), bob.term()), (None, first));

    assert!(bob.try_acquire().await.unwrap());
    assert!(bob.term() > first);
    assert!(!alice.try_acquire().await.unwrap());
    alice.refresh().await.unwrap();
    assert_eq!((alice.owner(), alice.term()), (Some("bob"), bob.term()));
}

/// How often each of a crowd has the lock.
const TERMS: usize = 5;

/// Of many who are after it all the time one has it, and each time under a greater term.
async fn assert_it_excludes<L: Lock<Error: Send> + Send + 'static>(crowd: Vec<L>) {
    let (busy, terms, refused) = (
        Arc::new(AtomicBool::new(false)),
        Tokens::default(),
        Arc::new(AtomicUsize::new(0)),
    );
    let crowd = crowd.into_iter().map(|mut lock| {
        let (busy, terms, refused) = (Arc::clone(&busy), terms.clone(), Arc::clone(&refused));
        tokio::spawn(async move {
            for _ in 0..TERMS {
                while !lock.try_acquire().await.unwrap() {
                    refused.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                assert!(!busy.swap(true, Ordering::SeqCst), "two have it at once");
                terms.push(lock.term().unsigned_abs());
                tokio::time::sleep(Duration::from_millis(5)).await;
                busy.store(false, Ordering::SeqCst);
                assert!(lock.try_release().await.unwrap());
            }
        })
    });
    let crowd: Vec<_> = crowd.collect();
    for one in crowd {
        within("its turns", one).await.unwrap();
    }
    assert!(terms.rise(), "a term came twice, or went back");
    let refused = refused.load(Ordering::SeqCst);
    assert!(refused > 0, "nobody was ever in another one's way");
}

/// A register that can be read, and set by a caller that knows what is in it: as little as a
/// backend can have.
#[derive(Clone, Default)]
struct Register(Arc<Mutex<Entry>>);

#[derive(Clone, PartialEq, Eq)]
struct Entry {
    term: i64,
    /// Who holds it, and until when.
    held: Option<(String, Moment)>,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            term: -1,
            held: None,
        }
    }
}

#[derive(Debug)]
struct Conflict;

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("somebody else was quicker")
    }
}

impl Error for Conflict {}

impl Register {
    fn read(&self) -> Entry {
        self.0.lock().unwrap().clone()
    }

    fn swap(&self, old: &Entry, new: Entry) -> Result<(), Conflict> {
        let mut entry = self.0.lock().unwrap();
        if *entry != *old {
            return Err(Conflict);
        }
        *entry = new;
        Ok(())
    }
}

/// A lock on a register, lost if it is not renewed.
struct Swapped {
    register: Register,
    me: &'static str,
    ttl: Duration,
    /// The register as it was seen at the last call.
    seen: Entry,
}

impl Swapped {
    fn new(register: &Register, me: &'static str, ttl: Duration) -> Self {
        Self {
            register: register.clone(),
            me,
            ttl,
            seen: Entry::default(),
        }
    }

    fn look(&mut self) {
        self.seen = self.register.read();
        let over = |(_, until): &(String, Moment)| *until <= BootClock.now();
        if self.seen.held.as_ref().is_some_and(over) {
            self.seen.held = None;
        }
    }
}

impl Lock for Swapped {
    type Error = Conflict;

    async fn try_acquire(&mut self) -> Result<bool, Conflict> {
        let found = self.register.read();
        self.look();
        let mine = match self.owner() {
            Some(owner) if owner != self.me => return Ok(false),
            owner => owner.is_some(),
        };
        let new = Entry {
            term: found.term + i64::from(!mine),
            held: Some((self.me.into(), BootClock.now() + self.ttl)),
        };
        match self.register.swap(&found, new) {
            Ok(()) => {
                self.look();
                Ok(true)
            }
            // A conflict is no wrong yes, and no failure.
            Err(Conflict) => {
                self.look();
                Ok(false)
            }
        }
    }

    async fn refresh(&mut self) -> Result<(), Conflict> {
        self.look();
        Ok(())
    }

    async fn try_release(&mut self) -> Result<bool, Conflict> {
        let found = self.register.read();
        self.look();
        if self.owner() == Some(self.me) {
            let new = Entry {
                held: None,
                ..found.clone()
            };
            self.register.swap(&found, new)?;
            self.look();
        }
        Ok(true)
    }

    fn term(&self) -> i64 {
        self.seen.term
    }

    fn owner(&self) -> Option<&str> {
        self.seen.held.as_ref().map(|(owner, _)| owner.as_str())
    }

    fn locked_until(&self) -> Option<Moment> {
        let mine = self
            .seen
            .held
            .as_ref()
            .filter(|(owner, _)| owner == self.me);
        mine.map(|(_, until)| *until)
    }
}

/// A lock that the operating system keeps for as long as a file is open; the file tells the term and
/// the owner.
struct Filed {
    file: File,
    me: &'static str,
    mine: bool,
    term: i64,
    owner: Option<String>,
}

impl Filed {
    fn new(path: &std::path::Path, me: &'static str) -> Self {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false);
        Self {
            file: file.open(path).unwrap(),
            me,
            mine: false,
            term: -1,
            owner: None,
        }
    }

    fn read(&mut self) -> io::Result<()> {
        let mut text = String::new();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.read_to_string(&mut text)?;
        let mut words = text.split(' ');
        let term = words.next().and_then(|word| word.parse().ok());
        self.term = self.term.max(term.unwrap_or(-1));
        self.owner = words.next().map(str::to_owned);
        Ok(())
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())
    }
}

impl Lock for Filed {
    type Error = io::Error;

    async fn try_acquire(&mut self) -> io::Result<bool> {
        if self.mine {
            return Ok(true);
        }
        match self.file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                self.read()?;
                return Ok(false);
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        self.mine = true;
        self.read()?;
        self.term += 1;
        self.owner = Some(self.me.into());
        self.write(&format!("{} {}", self.term, self.me))?;
        Ok(true)
    }

    async fn refresh(&mut self) -> io::Result<()> {
        self.read()
    }

    async fn try_release(&mut self) -> io::Result<bool> {
        if self.mine {
            self.owner = None;
            self.write(&self.term.to_string())?;
            self.file.unlock()?;
            self.mine = false;
        }
        Ok(true)
    }

    fn term(&self) -> i64 {
        self.term
    }

    fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    fn locked_until(&self) -> Option<Moment> {
        // It needs no renewal.
        self.mine.then_some(Moment::from_boot(Duration::MAX))
    }
}

const CROWD: [&str; 4] = ["n0", "n1", "n2", "n3"];

#[tokio::test]
async fn s2_10_on_a_cluster() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let lock = |name: &str, me: &str| raw_lock::lock(&client, name, me, MINUTE);
    assert_it_is_a_lock(lock("pair", "alice"), lock("pair", "bob")).await;
    assert_it_excludes(CROWD.map(|me| lock("crowd", me)).into()).await;
}

#[tokio::test]
async fn s2_10_on_a_register_with_compare_and_swap() {
    let (pair, crowd) = (Register::default(), Register::default());
    let [alice, bob] = ["alice", "bob"].map(|me| Swapped::new(&pair, me, MINUTE));
    assert_it_is_a_lock(alice, bob).await;
    assert_it_excludes(CROWD.map(|me| Swapped::new(&crowd, me, MINUTE)).into()).await;
}

#[tokio::test]
async fn s2_10_on_the_locks_of_an_operating_system() {
    let folder = tempfile::tempdir().unwrap();
    let (pair, crowd) = (folder.path().join("pair"), folder.path().join("crowd"));
    let [alice, bob] = ["alice", "bob"].map(|me| Filed::new(&pair, me));
    assert_it_is_a_lock(alice, bob).await;
    assert_it_excludes(CROWD.map(|me| Filed::new(&crowd, me)).into()).await;
}
