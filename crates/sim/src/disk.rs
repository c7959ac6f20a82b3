//! A machine's disk: how fast it is, and how it fails.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use ringfence_wal::sim::{Crash, Fault, SimFs};

use crate::lock::lock;
use crate::random::Random;
use crate::timeline::Timeline;

/// How long a sync takes unless a run says otherwise.
const SYNC: Range<Duration> = Duration::from_micros(100)..Duration::from_millis(3);

/// A disk, which may lose what was not synced, fail, fill up, and stall.
pub struct Disk {
    timeline: Timeline,
    state: Mutex<State>,
}

struct State {
    files: SimFs,
    random: Random,
    sync: Range<Duration>,
    stalled_until: Duration,
    kept: Vec<SimFs>,
}

impl Disk {
    pub(crate) fn new(timeline: Timeline, random: Random) -> Self {
        Self {
            timeline,
            state: Mutex::new(State {
                files: SimFs::new(),
                random,
                sync: SYNC,
                stalled_until: Duration::ZERO,
                kept: Vec::new(),
            }),
        }
    }

    /// The files as they are.
    #[must_use]
    pub fn files(&self) -> SimFs {
        lock(&self.state).files.clone()
    }

    /// How long syncs take from now on.
    pub fn set_sync_time(&self, takes: Range<Duration>) {
        lock(&self.state).sync = takes;
    }

    /// No sync of the log ends for this long at least, and no snapshot is begun to be written.
    pub fn stall(&self, time: Duration) {
        let until = self.timeline.now() + time;
        let mut state = lock(&self.state);
        state.stalled_until = state.stalled_until.max(until);
    }

    /// Ends every stall. A sync that is under way takes as long as it was to take.
    pub fn go_on(&self) {
        lock(&self.state).stalled_until = Duration::ZERO;
    }

    /// The next write of any file fails.
    pub fn fail_next_write(&self) {
        let files = self.files();
        files.plant(Fault::Write(files.writes(), ErrorKind::Other));
    }

    /// The next sync of any file fails, and what it was to make durable is lost.
    pub fn fail_next_sync(&self) {
        let files = self.files();
        files.plant(Fault::Sync(files.syncs(), ErrorKind::Other));
    }

    /// Leaves room for `more` bytes, or lifts the limit.
    pub fn limit(&self, more: Option<u64>) {
        let files = self.files();
        files.set_capacity(more.map(|more| files.used() + more));
    }

    /// Leaves no room for more in one folder, or lifts the limit.
    pub fn close(&self, folder: &Path, closed: bool) {
        self.files().set_room(folder, closed.then_some(0));
    }

    /// Keeps a copy of what is on the disk now, and says which one it is.
    pub fn keep_copy(&self) -> usize {
        let mut state = lock(&self.state);
        let copy = state.files.fork();
        state.kept.push(copy);
        state.kept.len() - 1
    }

    pub(crate) fn next_sync_takes(&self) -> Duration {
        let stalls = self.stalls();
        let mut state = lock(&self.state);
        let takes = state.sync.clone();
        state.random.time(takes).max(stalls)
    }

    /// For how long from now on it keeps nothing.
    pub(crate) fn stalls(&self) -> Duration {
        let until = lock(&self.state).stalled_until;
        until.saturating_sub(self.timeline.now())
    }

    /// Loses what the crash loses. The files that a dead process has open are dead with it.
    pub(crate) fn crash(&self, how: Crash) {
        lock(&self.state).files.crash(how);
    }

    pub(crate) fn seed(&self) -> u64 {
        lock(&self.state).random.next()
    }

    pub(crate) fn wipe(&self) {
        lock(&self.state).files = SimFs::new();
    }

    /// Takes up a kept copy; false if there is none of this number.
    pub(crate) fn roll_back(&self, copy: usize) -> bool {
        let mut state = lock(&self.state);
        let Some(kept) = state.kept.get(copy).map(SimFs::fork) else {
            return false;
        };
        state.files = kept;
        true
    }
}
