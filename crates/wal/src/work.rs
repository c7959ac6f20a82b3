//! The writer's work: calls from the queue, a turn for all that have queued. A thread takes turn
//! after turn; a simulation takes the two steps of each when it says so.

use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::call::{Call, CommittedSlot};
use crate::clock;
use crate::writer::{Writer, WrittenBatch};

/// How long calls that wait for room on the file system wait before it is looked for again.
const ROOM_AGAIN: Duration = Duration::from_millis(500);

/// The writer and the way to it.
pub(crate) struct Work {
    writer: Writer,
    queue: Receiver<Call>,
    committed: CommittedSlot,
    open: bool,
    /// A batch that only a stepped log leaves between its two steps.
    written: Option<WrittenBatch>,
}

impl Work {
    pub(crate) fn new(writer: Writer, queue: Receiver<Call>, committed: CommittedSlot) -> Self {
        Self {
            writer,
            queue,
            committed,
            open: true,
            written: None,
        }
    }

    /// The writer thread: takes one call, then all that have queued, and flushes once for them.
    pub(crate) fn run(mut self) {
        let mut crowded = false;
        let mut resumed = clock::now();
        while self.open {
            let call = match self.writer.is_stalled() {
                false => self
                    .queue
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
                true => self.queue.recv_timeout(ROOM_AGAIN),
            };
            match call {
                Ok(call) => self.take(call),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let mut taken = 1 + self.take_queued();
            if crowded {
                // Callers that were just notified tend to call again, and share these cores with
                // us. One step aside lets them in, which halves the number of syncs when many are
                // in flight. A lone caller never meets it.
                std::thread::yield_now();
                taken += self.take_queued();
            }
            crowded = taken > 1;
            self.offer_mark();
            if self.writer.is_stalled() && resumed.elapsed() >= ROOM_AGAIN {
                self.writer.resume();
                resumed = clock::now();
            }
            self.writer.write_out();
        }
        self.writer.close();
    }

    /// Hands everything that has queued to the writer, and returns how many calls it was.
    fn take_queued(&mut self) -> u64 {
        let mut taken = 0;
        while self.open {
            match self.queue.try_recv() {
                Ok(call) => self.take(call),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
            taken += 1;
        }
        taken
    }

    /// Hands one call to the writer; the last one ends the work.
    fn take(&mut self, call: Call) {
        match call {
            Call::Close => self.open = false,
            call => self.writer.take(call),
        }
    }

    fn offer_mark(&mut self) {
        let mark = self
            .committed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some((index, mark)) = mark {
            self.writer.save_committed(index, mark);
        }
    }

    /// The first step of a turn; true if there is something to sync.
    fn write(&mut self) -> bool {
        if !self.open || self.written.is_some() {
            return self.written.is_some();
        }
        let stalled = self.writer.is_stalled();
        if self.take_queued() > 0 || stalled {
            self.offer_mark();
            if stalled {
                self.writer.resume();
            }
            // A failure has poisoned the log, and every call that waits was notified.
            self.written = self.writer.write_batch().ok().flatten();
        }
        self.written.is_some()
    }

    /// The second step of a turn: makes the batch durable and completes its calls.
    fn sync(&mut self) {
        if let Some(written) = self.written.take()
            && self.writer.sync_batch(written).is_ok()
        {
            self.writer.recycle();
            self.writer.prepare_ahead();
        }
    }

    /// Does all that is left and seals the log.
    pub(crate) fn finish(&mut self) {
        self.sync();
        self.take_queued();
        self.offer_mark();
        self.open = false;
        self.writer.seal();
    }
}

/// The work of a log that has no thread, in two steps per turn. It does not keep the log open.
pub struct StepDriver {
    work: Weak<Mutex<Work>>,
}

impl StepDriver {
    pub(crate) fn new(work: &Arc<Mutex<Work>>) -> Self {
        let work = Arc::downgrade(work);
        Self { work }
    }

    /// Returns true until the log is closed.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.with(|work| work.open).unwrap_or(false)
    }

    /// Returns true if calls wait for room on the file system: [`StepDriver::write`] tries again.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.with(|work| work.writer.is_stalled()).unwrap_or(false)
    }

    /// Takes what has queued and writes it as a batch; true if one waits to be synced. A crash
    /// now may lose any part of it.
    pub fn write(&mut self) -> bool {
        self.with(Work::write).unwrap_or(false)
    }

    /// Makes the batch durable and reports its calls done.
    pub fn sync(&mut self) {
        let _ = self.with(Work::sync);
    }

    fn with<T>(&self, step: impl FnOnce(&mut Work) -> T) -> Option<T> {
        let work = self.work.upgrade()?;
        let mut work: MutexGuard<'_, Work> = work.lock().unwrap_or_else(PoisonError::into_inner);
        Some(step(&mut work))
    }
}
