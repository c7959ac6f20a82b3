//! Stores in files whose process is killed at any moment, and interrupted where the store has a way
//! to: a child of this test program writes, and tells a file what it is about to do and what came of
//! it; its parent kills it, opens the store and holds the one against the other.

use std::collections::HashMap;
use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringfence_guard::files::{self, FilesError, FilesGuard};
use ringfence_guard::sled::{Changes, SledError, SledStore};
use ringfence_guard::sqlite::{SqliteError, SqliteGuard};
use ringfence_guard::{Fence, FencingToken, LeaseName};
use rusqlite::Connection;

use crate::scratch;
use crate::soak::{Came, Chance, Tally, writes};

/// What a child receives by its environment: the store's name, its folder, a seed, its first
/// write's number, and how many writes it makes at most.
const CHILD: &str = "RINGFENCE_HOSTILE_CHILD";

/// The most writes of a child.
const CHILD_WRITES: u64 = 20_000;

/// In runs of more than so many writes a child lives longer where opening the store takes long.
const MANY: u64 = 10_000;

/// Bytes of sled's cache.
const SLED_CACHE: usize = 4 << 20;

/// The child's words.
const TOLD: &str = "told";

const LEASE: &str = "soak";

fn fence(token: u64) -> Fence {
    let name = LeaseName::parse(LEASE).unwrap();
    Fence::new(name, FencingToken::new(token).unwrap())
}

/// A store that a child writes to and its parent looks at.
trait Killed: Sized {
    const NAME: &'static str;

    /// How long a child may live at most, in milliseconds, in a short run and in one of [`MANY`].
    const LIFE: [u64; 2];

    fn open(folder: &Path) -> Self;

    /// Writes both halves of a write in one guarded step; it may be interrupted.
    fn write(&mut self, fence: &Fence, id: u64, chance: &mut Chance) -> Came;

    fn mark(&mut self) -> Option<u64>;

    fn advance_to(&mut self, floor: u64);

    /// How many halves of each of these writes are there; they are removed.
    fn take(&mut self, ids: std::ops::Range<u64>) -> HashMap<u64, usize>;
}

struct Sled(SledStore);

impl Killed for Sled {
    const NAME: &'static str = "sled";
    const LIFE: [u64; 2] = [1_000, 30_000];

    fn open(folder: &Path) -> Self {
        // A small cache, since each child opens the store.
        let config = sled::Config::new().path(folder).flush_every_ms(None);
        let config = config.cache_capacity_bytes(SLED_CACHE);
        Self(SledStore::open_with(&config).unwrap())
    }

    fn write(&mut self, fence: &Fence, id: u64, _: &mut Chance) -> Came {
        let changes = Changes::new()
            .insert(format!("{id}/0"), "x")
            .insert(format!("{id}/1"), "x");
        let guard = self.0.guard(fence.name.clone());
        match guard.admit(fence, changes) {
            Ok(_) => Came::Committed,
            Err(SledError::Refused(_)) => Came::Refused,
            Err(SledError::Database(_)) => Came::Unknown,
            Err(_) => Came::Failed,
        }
    }

    fn mark(&mut self) -> Option<u64> {
        let mark = self.0.guard(fence(1).name).mark().unwrap();
        mark.map(FencingToken::get)
    }

    fn advance_to(&mut self, floor: u64) {
        let floor = fence(floor);
        self.0.guard(floor.name).advance_to(floor.token).unwrap();
    }

    fn take(&mut self, ids: std::ops::Range<u64>) -> HashMap<u64, usize> {
        let there = |id: u64| {
            let halves =
                (0..2).filter(|half| self.0.get(format!("{id}/{half}")).unwrap().is_some());
            (id, halves.count())
        };
        let found: HashMap<u64, usize> = ids.map(there).collect();
        let mut gone = Changes::new();
        for id in found.iter().filter(|(_, halves)| **halves > 0) {
            gone = gone
                .remove(format!("{}/0", id.0))
                .remove(format!("{}/1", id.0));
        }
        let mark = fence(self.mark().unwrap());
        self.0.guard(mark.name.clone()).admit(&mark, gone).unwrap();
        found
    }
}

struct Files(FilesGuard);

impl Killed for Files {
    const NAME: &'static str = "files";
    const LIFE: [u64; 2] = [200, 400];

    fn open(folder: &Path) -> Self {
        Self(FilesGuard::new(folder, fence(1).name).unwrap())
    }

    fn write(&mut self, fence: &Fence, id: u64, chance: &mut Chance) -> Came {
        // Somewhere in a write, or behind it.
        let left = AtomicU64::new(chance.below(60));
        let guard = self
            .0
            .clone()
            .steps(move |_| match left.fetch_sub(1, Ordering::Relaxed) {
                1 => Err(std::io::Error::other("no space left")),
                _ => Ok(()),
            });
        let changes = files::Changes::new()
            .put(format!("{id}.0"), "x")
            .put(format!("{id}.1"), "x");
        match guard.admit(fence, changes) {
            Ok(_) => Came::Committed,
            Err(FilesError::Refused(_)) => Came::Refused,
            Err(FilesError::Unknown { .. }) => Came::Unknown,
            Err(_) => Came::Failed,
        }
    }

    fn mark(&mut self) -> Option<u64> {
        self.0.mark().unwrap().map(FencingToken::get)
    }

    fn advance_to(&mut self, floor: u64) {
        self.0.advance_to(fence(floor).token).unwrap();
    }

    fn take(&mut self, ids: std::ops::Range<u64>) -> HashMap<u64, usize> {
        // What was committed and not finished is, by the first look of a guard.
        let mark = fence(self.mark().unwrap());
        let names = |id: u64| [0, 1].map(|half| format!("{id}.{half}"));
        let directory = self.0.directory();
        let there = |id: u64| {
            let halves = names(id).into_iter();
            let found = halves.filter(|name| directory.join(name).exists());
            (id, found.count())
        };
        let found: HashMap<u64, usize> = ids.map(there).collect();
        let gone: Vec<String> = found
            .iter()
            .filter(|(_, halves)| **halves > 0)
            .flat_map(|(id, _)| names(*id))
            .collect();
        for part in gone.chunks(files::CHANGES_MAX) {
            let delete = part
                .iter()
                .fold(files::Changes::new(), files::Changes::delete);
            self.0.admit(&mark, delete).unwrap();
        }
        found
    }
}

struct Sqlite(Connection);

impl Killed for Sqlite {
    const NAME: &'static str = "sqlite";
    const LIFE: [u64; 2] = [200, 400];

    fn open(folder: &Path) -> Self {
        let connection = Connection::open(folder.join("store.db")).unwrap();
        connection
            .pragma_update(None, "journal_mode", "wal")
            .unwrap();
        // Nothing here is about the loss of power.
        connection
            .pragma_update(None, "synchronous", "off")
            .unwrap();
        SqliteGuard::install(&connection).unwrap();
        let table = "CREATE TABLE IF NOT EXISTS written (id INTEGER, half INTEGER)";
        connection.execute_batch(table).unwrap();
        Self(connection)
    }

    fn write(&mut self, fence: &Fence, id: u64, chance: &mut Chance) -> Came {
        // Somewhere in a write, or behind it.
        let mut left = chance.below(600);
        self.0.progress_handler(
            1,
            Some(move || {
                left = left.wrapping_sub(1);
                left == 0
            }),
        );
        let goes_on = chance.below(2) == 0;
        let guard = SqliteGuard::new(fence.name.clone());
        let done = guard.write(&mut self.0, fence, |tx| {
            let insert = |half| {
                let insert = "INSERT INTO written VALUES (?1, ?2)";
                tx.prepare_cached(insert)?.execute((id, half))
            };
            let one = insert(0);
            if !goes_on && let Err(error) = one {
                return Err(SqliteError::from(error));
            }
            one.and(insert(1))?;
            Ok(())
        });
        self.0.progress_handler(0, None::<fn() -> bool>);
        match done {
            Ok(()) => Came::Committed,
            Err(SqliteError::Refused(_)) => Came::Refused,
            Err(SqliteError::Unknown { .. }) => Came::Unknown,
            Err(_) => Came::Failed,
        }
    }

    fn mark(&mut self) -> Option<u64> {
        let mark = SqliteGuard::new(fence(1).name).mark(&self.0).unwrap();
        mark.map(FencingToken::get)
    }

    fn advance_to(&mut self, floor: u64) {
        let floor = fence(floor);
        let guard = SqliteGuard::new(floor.name);
        guard.advance_to(&mut self.0, floor.token).unwrap();
    }

    fn take(&mut self, ids: std::ops::Range<u64>) -> HashMap<u64, usize> {
        let mut there: HashMap<u64, usize> = ids.map(|id| (id, 0)).collect();
        let mut delete = self.0.prepare("DELETE FROM written RETURNING id").unwrap();
        let found = delete.query_map([], |row| row.get(0)).unwrap();
        for id in found.map(Result::unwrap) {
            *there.entry(id).or_default() += 1;
        }
        there
    }
}

/// Writes until it is killed, or has made all it was to make.
fn be_a_child<S: Killed>(folder: &Path, seed: u64, first: u64, count: u64) {
    let mut store = S::open(&folder.join(S::NAME));
    let file = folder.join(TOLD);
    let mut told = OpenOptions::new().append(true).open(file).unwrap();
    // One line in one write: it is there wholly if this process is killed behind it.
    let mut tell = |line: String| told.write_all(line.as_bytes()).unwrap();
    let mut chance = Chance(seed);
    let floor = store.mark().unwrap();
    let mut newest = floor;
    for id in first..first + count {
        let stale = chance.below(2) == 0;
        let new = !stale && chance.below(20) == 0;
        let token = match (stale, new) {
            (true, _) => floor - 1,
            (_, true) => newest + 1,
            _ => newest,
        };
        tell(format!("{id} {stale} begun\n"));
        let came = store.write(&fence(token), id, &mut chance);
        if new && matches!(came, Came::Committed | Came::Unknown) {
            newest = store.mark().unwrap();
        }
        tell(format!("{id} {stale} {came:?}\n"));
    }
}

/// What a child reported: each write it began, whether that was stale, and what came of it.
fn read_told(file: &Path) -> HashMap<u64, (bool, Came)> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut told = HashMap::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap();
        let (id, stale) = (word().parse().unwrap(), word().parse().unwrap());
        let came = match word() {
            "Committed" => Came::Committed,
            "Refused" => Came::Refused,
            "Failed" => Came::Failed,
            // Killed before it said more.
            _ => Came::Unknown,
        };
        told.insert(id, (stale, came));
    }
    told
}

/// How a child ended on its own, if it does within this time.
#[expect(
    clippy::disallowed_methods,
    reason = "a child is killed at any moment, and not when something has happened"
)]
fn ends_within(child: &mut Child, life: Duration) -> Option<ExitStatus> {
    const LOOK: Duration = Duration::from_millis(10);
    let mut left = life;
    while left > LOOK {
        std::thread::sleep(LOOK);
        left -= LOOK;
        if let Some(ended) = child.try_wait().unwrap() {
            return Some(ended);
        }
    }
    std::thread::sleep(left);
    child.try_wait().unwrap()
}

fn kill_children_of<S: Killed>() {
    let folder = scratch();
    let store = folder.path().join(S::NAME);
    std::fs::create_dir_all(&store).unwrap();
    S::open(&store).advance_to(2);
    let mut chance = Chance(7);
    let (mut tally, mut first, mut killed) = (Tally::default(), 0, 0_u64);
    // A run in which every child has ended on its own shows nothing of kills, nor one whose child was
    // killed between two writes.
    while tally.writes < writes() || killed == 0 || tally.failed + tally.unknown == 0 {
        let count = CHILD_WRITES;
        let file = folder.path().join(TOLD);
        File::create(&file).unwrap();
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "killed::a_child_writes", "--nocapture"]);
        let place = folder.path().display();
        let seed = chance.next();
        child.env(CHILD, format!("{} {place} {seed} {first} {count}", S::NAME));
        let mut child = child.stdout(Stdio::null()).spawn().unwrap();
        let longest = S::LIFE[usize::from(writes() > MANY)];
        let life = Duration::from_millis(20 + chance.below(longest));
        let ended = ends_within(&mut child, life);
        match ended {
            Some(status) => assert!(status.success(), "a child failed: {status}"),
            None => {
                killed += 1;
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }

        let told = read_told(&file);
        let mut opened = S::open(&store);
        let halves = opened.take(first..first + count);
        for (id, (stale, came)) in &told {
            tally.judge(*stale, *came, halves[id], 2);
        }
        for (id, halves) in halves {
            assert!(halves == 0 || told.contains_key(&id), "{id} from nowhere");
        }
        first += count;
        drop(opened);
    }
    println!("{}: killed {killed} times", S::NAME);
    tally.settle(S::NAME);
}

#[test]
fn hostile_sled_writes_commit_nothing_stale_and_nothing_torn() {
    kill_children_of::<Sled>();
}

#[test]
fn hostile_writes_of_files_commit_nothing_stale_and_nothing_torn() {
    kill_children_of::<Files>();
}

#[test]
fn hostile_sqlite_writes_commit_nothing_stale_and_nothing_torn() {
    kill_children_of::<Sqlite>();
}

/// Does nothing unless it is the child of another test.
#[test]
fn a_child_writes() {
    let Ok(told) = env::var(CHILD) else {
        return;
    };
    let words: Vec<&str> = told.split(' ').collect();
    let number = |at: usize| words[at].parse().unwrap();
    let (folder, seed, first, count) = (Path::new(words[1]), number(2), number(3), number(4));
    match words[0] {
        Sled::NAME => be_a_child::<Sled>(folder, seed, first, count),
        Files::NAME => be_a_child::<Files>(folder, seed, first, count),
        _ => be_a_child::<Sqlite>(folder, seed, first, count),
    }
}
