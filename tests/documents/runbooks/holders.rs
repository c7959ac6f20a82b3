//! Holders that go on writing to a guarded store.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;

use super::waits::{PATIENCE, pause, texts};

/// Threads that write; they end with the test.
pub(super) struct Holders {
    threads: Vec<JoinHandle<()>>,
    store: PathBuf,
    stop: Arc<AtomicBool>,
    tried: Arc<AtomicU64>,
}

impl Holders {
    /// Writes under each of these tokens, again and again, by the guard of the command.
    pub(super) fn start(folder: &Path, store: PathBuf, ringfence: &Path, tokens: &[u64]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let tried = Arc::new(AtomicU64::new(0));
        let threads = tokens.iter().map(|token| {
            let (stop, tried, token) = (stop.clone(), tried.clone(), *token);
            let (folder, ringfence) = (folder.to_owned(), ringfence.to_owned());
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut command = Command::new(&ringfence);
                    command.current_dir(&folder);
                    write(command, token);
                    tried.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        Self {
            threads: threads.collect(),
            store,
            stop,
            tried,
        }
    }

    /// How many writes the store has admitted, of all holders.
    pub(super) fn admitted(&self) -> u64 {
        let store = Connection::open(&self.store).expect("a database");
        store.busy_timeout(PATIENCE).expect("a limit");
        let count = store.query_row("SELECT count(*) FROM written", (), |row| row.get(0));
        count.expect("the holders' table")
    }

    /// Waits until each has tried to write again.
    pub(super) fn try_more(&self) {
        let from = self.tried.load(Ordering::Relaxed);
        while self.tried.load(Ordering::Relaxed) < from + 3 * self.threads.len() as u64 {
            pause();
        }
    }
}

impl Drop for Holders {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}

/// Whether the guard of the store admits a write under this token.
pub(super) fn write(mut command: Command, token: u64) -> bool {
    let fence = format!("orders/eu#{token}");
    command
        .args(["guard", "sqlite", "store.db", "--fence", &fence])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let script = "CREATE TABLE IF NOT EXISTS written (at); INSERT INTO written VALUES (1);";
    let mut stdin = child.stdin.take().expect("it was asked for");
    stdin.write_all(script.as_bytes()).ok();
    drop(stdin);
    let output = child.wait_with_output().expect("a child");
    let said = texts(&output);
    // Refused by the guard, or written; the store was never out of reach.
    let refused = said.contains("STALE_TOKEN") || output.status.code() == Some(76);
    assert!(output.status.success() || refused, "{said}");
    output.status.success()
}
