//! The thread that keeps the index: it opens, writes, prunes and flushes it, and brings it back
//! when that fails. It never ends the node.
//!
//! An error that may pass (no room, no file descriptors, no permission) costs nothing but time:
//! the index stays as it is and is tried again. A damaged index, or one whose store panics, is set
//! aside and begins again; peers fill it.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringfence_proto::raft as pb;
use tokio::sync::oneshot;

use crate::dir::{Aside, Dir};
use crate::feed::{Shared, Waiting, Woken};
use crate::ground::{Act, Ground};
use crate::health::is_damage;
use crate::read::Readers;
use crate::store::Store;
use crate::trial::{Past, Trial};
use crate::{Clock, HISTORY_ROOM_MIN, HistoryLimits, record};

/// How many old records are dropped at a time.
const PRUNED_AT_ONCE: usize = 4_096;
/// How far the thread stands back behind those that serve requests, as `nice` counts.
const NICENESS: i32 = 10;
/// How many failed stores a process leaves behind before it slows down. Each keeps some 80 file
/// descriptors and up to 8 MiB until the process ends.
const LEFT_BEHIND_FEW: u32 = 4;

/// How often things are done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// How long what was noted waits at most, and what is in the index until it is on disk.
    pub(crate) write: Duration,
    /// The first pause between two attempts to open the index; each is twice the one before.
    pub(crate) retry: Duration,
    /// The longest of these pauses.
    pub(crate) retry_max: Duration,
    /// The longest pause after many stores were left behind: from [`LEFT_BEHIND_FEW`] on each makes
    /// the pause twice as long, from `retry_max` up to this.
    pub(crate) retry_rare: Duration,
    /// How soon room is looked for again.
    pub(crate) room: Duration,
}

impl Pace {
    pub(crate) const STANDARD: Self = Self {
        write: Duration::from_secs(5),
        retry: Duration::from_secs(1),
        retry_max: Duration::from_secs(60),
        retry_rare: Duration::from_secs(24 * 60 * 60),
        room: Duration::from_secs(1),
    };
}

/// Where the current readers of the index are found.
pub(crate) type Slot = Arc<Mutex<Option<Arc<Readers>>>>;

pub(crate) struct Keeper {
    dir: Dir,
    ground: Box<dyn Ground>,
    limits: HistoryLimits,
    clock: Clock,
    pace: Pace,
    shared: Arc<Shared>,
    slot: Slot,
    trial: Trial,
    store: Option<Store>,
    /// The store was opened and has done no work yet.
    on_trial: bool,
    /// Records in the index, once they were counted.
    count: Option<u64>,
    spare: Waiting,
    /// The pause before the next attempt.
    pause: Duration,
    /// The files must move before the index can be opened again.
    moves: bool,
    /// What is damaged must be set aside first.
    sets_aside: bool,
    left_behind: u32,
    flush_at: Duration,
}

impl Keeper {
    pub(crate) fn new(
        dir: Dir,
        ground: Box<dyn Ground>,
        limits: HistoryLimits,
        (clock, pace): (Clock, Pace),
        shared: Arc<Shared>,
        slot: Slot,
    ) -> Self {
        Self {
            trial: Trial::of(dir.root()),
            on_trial: false,
            dir,
            ground,
            limits,
            clock,
            pace,
            shared,
            slot,
            store: None,
            count: None,
            spare: Waiting::default(),
            pause: pace.retry,
            moves: false,
            sets_aside: false,
            left_behind: 0,
            flush_at: (clock.since_boot)() + pace.write,
        }
    }

    /// Tries to open the index, or a new one if it is damaged; true if it serves.
    pub(crate) fn try_open(&mut self) -> bool {
        let mut opened = self.open();
        if let Err(error) = &opened
            && is_damage(error)
        {
            self.open_failed(error);
            opened = self.open();
        }
        match opened {
            Ok(store) => self.serve(store),
            Err(error) => {
                self.open_failed(&error);
                false
            }
        }
    }

    fn open(&mut self) -> io::Result<Store> {
        std::fs::create_dir_all(self.dir.root())?;
        let room = self.ground.room(self.dir.root())?;
        if room < HISTORY_ROOM_MIN {
            return Err(no_room(room));
        }
        if self.left_behind > 0 {
            self.ground.may(Act::Probe)?;
            self.dir.probe()?;
        }
        if self.moves {
            self.dir.leave_store()?;
            self.moves = false;
        }
        match self.trial.past()? {
            // This process survived it, so that it can go on trying.
            _ if self.sets_aside => self.set_aside(Aside::Damaged)?,
            Past::Sound => {}
            Past::Suspect => self.set_aside(Aside::Suspect)?,
            Past::Deadly => self.set_aside(Aside::Damaged)?,
            Past::DeadlyAlsoNew => return Err(self.deadly()),
        }
        // What fails here says nothing about the index, so the attempt begins behind it.
        let path = self.dir.current()?;
        self.trial.begin()?;
        let opened = self.trial.guard(|| {
            self.ground.may(Act::Open)?;
            Store::open(&path)
        });
        self.trial.survived();
        opened
    }

    /// Why the index is left alone: whatever is tried ends the node.
    fn deadly(&self) -> io::Error {
        io::Error::other(format!(
            "its store panicked, with a new index as well, and ended the node; report this, and \
             remove {} to have it tried again",
            self.trial.file().display()
        ))
    }

    fn set_aside(&mut self, aside: Aside) -> io::Result<()> {
        let path = self.dir.set_aside(aside)?;
        self.trial.restart()?;
        self.sets_aside = false;
        self.shared.health.was_set_aside();
        let path = path.display();
        match aside {
            Aside::Damaged => tracing::error!(
                %path,
                "the damaged history index was set aside; a new one is filled from peers. Delete \
                 the old one when it is not needed any more"
            ),
            Aside::Suspect => tracing::error!(
                %path,
                "the history index was set aside, since the node ended twice while it was opened; \
                 a new one is filled from peers. If the disk was at fault, the old one is sound. \
                 Delete it when it is not needed any more"
            ),
        }
        Ok(())
    }

    fn open_failed(&mut self, error: &io::Error) {
        let path = self.dir.root().display();
        if is_damage(error) {
            // Whatever was opened is not locked any more, or is leaked and moves by name.
            self.sets_aside = true;
            self.shared
                .health
                .failed(&format!("the history index in {path} is damaged: {error}"));
            tracing::error!(%path, %error, "the history index is damaged");
            return;
        }
        let why = format!("the history index in {path} cannot be opened: {error}; it is retried");
        self.shared.health.failed(&why);
        tracing::warn!(%path, %error, retry_in = ?self.pause, "the history index cannot be opened");
    }

    fn serve(&mut self, store: Store) -> bool {
        match Readers::of(&store, self.trial.clone()) {
            Ok(readers) => {
                *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(readers));
                self.store = Some(store);
                self.count = None;
                self.on_trial = true;
                self.flush_at = (self.clock.since_boot)();
                self.shared.forget_trouble();
                self.shared.health.serves();
                true
            }
            Err(error) => {
                self.open_failed(&error);
                false
            }
        }
    }

    /// Runs until the node stops, and then tells `ended`.
    pub(crate) fn run(mut self, ended: oneshot::Sender<()>) {
        stand_back();
        while self.turn() {}
        self.close();
        // The node may have stopped waiting.
        let _told = ended.send(());
    }

    /// Waits for something to do and does it. False at the end.
    fn turn(&mut self) -> bool {
        let now = (self.clock.since_boot)();
        if self.store.is_none() {
            if matches!(
                self.shared.wait(self.clock, now + self.pause, false),
                Woken::End
            ) {
                return false;
            }
            self.pause = (self.pause * 2).clamp(self.pace.retry, self.longest_pause());
            let _serves = self.try_open();
            return true;
        }
        let has_room = match self.has_room() {
            Ok(has_room) => has_room,
            Err(error) => {
                tracing::debug!(%error, "the room for the history is not known");
                true
            }
        };
        let until = match has_room {
            true => self.flush_at,
            false => now + self.pace.room,
        };
        match self.shared.wait(self.clock, until, has_room) {
            Woken::End => return false,
            Woken::Trouble(error) => self.fail(&error),
            // Looked at again: much may have been written while this waited.
            Woken::Work if has_room && self.has_room().unwrap_or(true) => {
                let since = (self.clock.since_boot)();
                self.shared.health.works_since(Some(since));
                let worked = self.trial.clone().guard(|| self.work());
                self.shared.health.works_since(None);
                match worked {
                    Ok(()) => self.worked(),
                    Err(error) => self.fail(&error),
                }
            }
            Woken::Work => {}
        }
        true
    }

    /// The index did its first work: it is sound, and the disk works.
    fn worked(&mut self) {
        if self.on_trial {
            self.on_trial = false;
            self.trial.end();
            self.pause = self.pace.retry;
        }
    }

    /// The longest pause between two attempts, given how many stores were left behind.
    fn longest_pause(&self) -> Duration {
        let many = self.left_behind.saturating_sub(LEFT_BEHIND_FEW);
        let pause = self.pace.retry_max.saturating_mul(1 << many.min(30));
        pause.min(self.pace.retry_rare)
    }

    /// Whether the disk has room. What is written when it has none breaks the store.
    fn has_room(&self) -> io::Result<bool> {
        let room = self.ground.room(self.dir.root())?;
        if room >= HISTORY_ROOM_MIN {
            if !matches!(
                self.shared.health.figures(Duration::ZERO).state,
                crate::HistoryState::Serving | crate::HistoryState::Filling
            ) {
                self.shared.health.serves();
            }
            return Ok(true);
        }
        let why = no_room(room);
        if self.shared.health.has_no_room(&why) {
            let path = self.dir.root().display();
            tracing::warn!(%path, "history is not recorded: {why}");
        }
        Ok(false)
    }

    fn work(&mut self) -> io::Result<()> {
        let Some(store) = &self.store else {
            return Ok(());
        };
        if self.count.is_none() {
            self.count = Some(store.count()?);
        }
        self.write()?;
        let now = (self.clock.since_boot)();
        if now >= self.flush_at {
            self.flush_at = now + self.pace.write;
            self.prune()?;
            self.flush()?;
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(store) = &self.store else {
            return Ok(());
        };
        let moving = self.shared.moving.write();
        let _moving = moving.unwrap_or_else(PoisonError::into_inner);
        let change = self.shared.take(&mut self.spare);
        // A store on trial shows that it can write, also if there is nothing to be written.
        if !change.is_empty() || self.on_trial {
            self.ground.may(Act::Write)?;
            let added = store.write(change)?;
            self.count = self.count.map(|count| count + added);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.ground.may(Act::Flush)?;
        self.store.as_ref().map_or(Ok(()), Store::flush)?;
        self.shared.health.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Keeps the limits, some records at a time.
    fn prune(&mut self) -> io::Result<()> {
        let (Some(store), Some(count)) = (&self.store, &mut self.count) else {
            return Ok(());
        };
        while let over = count.saturating_sub(self.limits.records_max)
            && over > 0
        {
            let some = usize::try_from(over)
                .unwrap_or(PRUNED_AT_ONCE)
                .min(PRUNED_AT_ONCE);
            let dropped = store.prune(some, |_| true)?;
            *count -= dropped.min(*count);
            if dropped == 0 {
                break;
            }
        }
        let age = u64::try_from(self.limits.age_max.as_millis()).unwrap_or(u64::MAX);
        let oldest = (self.clock.wall)().0.saturating_sub(age);
        let is_old = |record: &pb::HistoryRecord| {
            let granted = record::from_pb(record.clone()).and_then(|record| record.granted);
            granted.is_none_or(|granted| granted.since.0 < oldest)
        };
        loop {
            let dropped = store.prune(PRUNED_AT_ONCE, is_old)?;
            *count -= dropped.min(*count);
            if dropped < PRUNED_AT_ONCE as u64 {
                return Ok(());
            }
        }
    }

    /// The index failed while it was used: leaves its store behind and opens it again, or a new
    /// one if it is damaged.
    fn fail(&mut self, error: &io::Error) {
        let Some(store) = self.store.take() else {
            return;
        };
        store.breaks();
        drop(store);
        self.take_readers();
        self.left_behind += 1;
        let path = self.dir.root().display();
        let damaged = is_damage(error);
        (self.sets_aside, self.moves) = (damaged, !damaged);
        if self.left_behind >= LEFT_BEHIND_FEW {
            self.pause = self.longest_pause();
        }
        let why = format!(
            "the history index in {path} failed: {error}; it is retried in {} s",
            self.pause.as_secs()
        );
        tracing::error!(%path, %error, damaged, retry_in = ?self.pause, "the history index failed");
        self.shared.health.failed(&why);
    }

    fn take_readers(&self) {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        drop(slot.take());
    }

    /// Writes what waits and lets go of the directory.
    fn close(&mut self) {
        if self.store.is_none() {
            return;
        }
        let written = match self.has_room() {
            Ok(false) => Err(io::Error::other("the disk has too little room")),
            Ok(true) | Err(_) => {
                let trial = self.trial.clone();
                trial.guard(|| self.write().and_then(|()| self.flush()))
            }
        };
        if written.is_ok() {
            self.trial.end();
        }
        if let Err(error) = &written {
            tracing::warn!(%error, "the last seconds of the history were not written");
            if let Some(store) = &self.store {
                store.breaks();
            }
        }
        self.take_readers();
        self.store = None;
    }
}

fn no_room(room: u64) -> io::Error {
    let why = format!(
        "the disk has {room} bytes of room, {HISTORY_ROOM_MIN} are needed; free some, and the \
         history goes on without an operator"
    );
    io::Error::new(io::ErrorKind::StorageFull, why)
}

/// Lets every thread that serves requests run first.
fn stand_back() {
    // On Linux this is the niceness of the calling thread alone.
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "the history thread keeps its priority");
    }
}
