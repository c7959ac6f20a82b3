//! What becomes of purged segments when the file system refuses something.
#![allow(clippy::unwrap_used)]

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ringfence_wal::sim::{Crash, SimFs};
use ringfence_wal::{EntryId, Fs, FsFile, FsLock, LogEntry, Options, Writer};

const EMFILE: i32 = 24;
const EIO: i32 = 5;

/// What a refusal may be for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Call {
    Open,
    Rename,
    SyncDir,
}

/// Says with which code of the operating system a call is refused.
type Refusal = Box<dyn FnMut(Call, &str) -> Option<i32> + Send>;

/// A simulated disk, some of whose calls are refused.
struct Refusing {
    fs: SimFs,
    refusal: Mutex<Refusal>,
}

impl Refusing {
    fn new(refusal: impl FnMut(Call, &str) -> Option<i32> + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            fs: SimFs::with_dir(dir()),
            refusal: Mutex::new(Box::new(refusal)),
        })
    }

    fn judge(&self, call: Call, path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap().to_string_lossy();
        let refused = self.refusal.lock().unwrap()(call, &name);
        refused.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
    }
}

impl Fs for Refusing {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn FsFile>> {
        self.fs.create(path)
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn FsFile>> {
        self.judge(Call::Open, path)?;
        self.fs.open(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.judge(Call::Rename, to)?;
        self.fs.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.fs.remove(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.fs.list(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.judge(Call::SyncDir, dir)?;
        self.fs.sync_dir(dir)
    }
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.fs.make_dir(dir)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.fs.remove_dir(dir)
    }
    fn has_dir(&self, dir: &Path) -> bool {
        self.fs.has_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<FsLock> {
        self.fs.lock(path)
    }
}

fn dir() -> &'static Path {
    Path::new("/log")
}

fn options(segment_bytes: u64) -> Options {
    Options {
        segment_bytes,
        salt: 7,
        on_fatal: Box::new(|_| {}),
        ..Options::new(*b"me")
    }
}

/// A log, and the index of its last entry.
struct Log {
    writer: Writer,
    index: u64,
    acknowledged: Arc<AtomicU64>,
}

impl Log {
    fn open(fs: Arc<dyn Fs>, segment_bytes: u64) -> Self {
        let (writer, _) = Writer::open(fs, dir(), options(segment_bytes)).unwrap();
        Self {
            writer,
            index: 0,
            acknowledged: Arc::default(),
        }
    }

    /// Appends so many entries of 30,000 bytes, each in a batch of its own.
    fn append(&mut self, entries: u64) {
        for _ in 0..entries {
            self.index += 1;
            let entry = LogEntry {
                id: EntryId {
                    term: 1,
                    index: self.index,
                },
                payload: Bytes::from(vec![7; 30_000]),
            };
            let acknowledged = Arc::clone(&self.acknowledged);
            let done = move |result: Result<(), _>| {
                acknowledged.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
            };
            self.writer.append(vec![entry], Box::new(done));
            self.writer.flush();
        }
    }

    fn purge(&mut self, index: u64) {
        self.writer.purge(EntryId { term: 1, index });
        self.writer.flush();
    }

    #[track_caller]
    fn assert_all_acknowledged(&self) {
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        assert_eq!(acknowledged, self.index, "of so many entries");
    }
}

/// 16 purged files wait to be used again; from the 17th on the directory cannot be opened to be synced.
#[test]
fn a_purged_segment_keeps_its_length_until_its_new_name_is_durable() {
    let mut freed = 0;
    let files = Refusing::new(move |call, name| match call {
        Call::Rename if name.starts_with("free-") => {
            freed += 1;
            None
        }
        Call::SyncDir if freed > 16 => Some(EMFILE),
        _ => None,
    });
    let mut log = Log::open(files.clone(), 2 << 20);
    // Some 22 segments.
    log.append(1_500);
    log.purge(log.index - 5);
    let last = Some(EntryId {
        term: 1,
        index: log.index,
    });
    for seed in 0..200 {
        let fs = files.fs.fork();
        fs.crash(Crash::Subset(seed));
        let opened = Writer::open(Arc::new(fs), dir(), options(2 << 20));
        let opened = opened.map(|(_, recovered)| recovered.last);
        assert_eq!(opened.map_err(|e| e.to_string()), Ok(last), "seed {seed}");
    }

    *files.refusal.lock().unwrap() = Box::new(|_, _| None);
    log.append(100);
    log.purge(log.index - 1);
    log.assert_all_acknowledged();
    let paths = files.fs.paths();
    let free = paths.iter().filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("free-")
    });
    assert!(free.count() <= 16, "{paths:?}");
}

/// Fills twenty segments and more, with hardly a purged file waiting at any time.
fn fills_segments_anew(files: Arc<Refusing>) -> Log {
    let mut log = Log::open(files, 64 * 1024);
    for _ in 0..20 {
        log.append(2);
        log.purge(log.index.saturating_sub(4));
    }
    log
}

#[test]
fn a_purged_file_that_cannot_be_opened_does_not_stop_the_log() {
    let mut spoilt = None;
    let files = Refusing::new(move |call, name| {
        let opens = call == Call::Open && name.starts_with("free-");
        let spoilt = opens.then(|| spoilt.get_or_insert_with(|| name.to_owned()));
        spoilt.filter(|spoilt| *spoilt == name).map(|_| EIO)
    });
    fills_segments_anew(files).assert_all_acknowledged();
}

#[test]
fn a_purged_file_that_somebody_removed_does_not_stop_the_log() {
    let files = Refusing::new(|_, _| None);
    let fs = files.fs.clone();
    let removed = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&removed);
    *files.refusal.lock().unwrap() = Box::new(move |call, name| {
        if call == Call::Open && name.starts_with("free-") && count.load(Ordering::Relaxed) < 2 {
            fs.remove(&dir().join(name)).unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        }
        None
    });
    fills_segments_anew(files).assert_all_acknowledged();
    assert_eq!(removed.load(Ordering::Relaxed), 2);
}

/// Nothing is the matter with the file.
#[test]
fn a_purged_file_is_kept_while_there_are_no_descriptors() {
    let refusals = Arc::new(AtomicU64::new(0));
    let left = Arc::clone(&refusals);
    let files = Refusing::new(move |call, name| {
        let opens = call == Call::Open && name.starts_with("free-");
        let one_less = |left: u64| left.checked_sub(1);
        let refused = opens
            && left
                .try_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
                .is_ok();
        refused.then_some(EMFILE)
    });
    let mut log = fills_segments_anew(files.clone());
    let before = files.fs.paths();
    refusals.store(3, Ordering::Relaxed);
    log.append(1);
    assert_eq!(files.fs.paths(), before);
}
