//! Where the writer gets its next segment: from a thread that prepares ahead, or made on the spot.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::WalError;
use crate::prepare::Preparer;
use crate::segment::Segment;

/// How long the spare thread rests between two steps, so that the writer's syncs get through.
const PAUSE: Duration = Duration::from_millis(5);

/// A source of ready segments.
pub(crate) enum Spares {
    /// Prepares when asked: no thread, so every step is repeatable.
    Inline {
        preparer: Preparer,
        ready: VecDeque<Segment>,
    },
    /// A thread prepares ahead.
    Thread(SpareThread),
}

impl Spares {
    /// Returns the next segment, waiting for it if need be.
    pub(crate) fn take(&mut self) -> Result<Segment, WalError> {
        match self {
            Self::Inline { preparer, ready } => match ready.pop_front() {
                Some(segment) => Ok(segment),
                None => preparer.prepare(&mut || ControlFlow::Continue(())),
            },
            Self::Thread(thread) => thread.take(),
        }
    }

    /// Gives back a segment whose every record is purged.
    pub(crate) fn retire(&mut self, segment: Segment) -> Result<(), WalError> {
        match self {
            Self::Inline { preparer, .. } => {
                preparer.retire(&segment, &mut || ControlFlow::Continue(()))
            }
            Self::Thread(thread) => {
                thread.shared.lock().retired.push_back(segment);
                thread.shared.changed.notify_all();
                Ok(())
            }
        }
    }

    /// Hands the work to a thread that keeps `count` segments ready.
    ///
    /// # Errors
    /// The operating system's refusal to start a thread.
    pub(crate) fn into_thread(self, count: usize) -> io::Result<Self> {
        match self {
            Self::Inline { preparer, ready } => {
                SpareThread::start(preparer, ready, count).map(Self::Thread)
            }
            Self::Thread(_) => Ok(self),
        }
    }
}

/// The thread that prepares segments. Dropping it stops and joins the thread.
pub(crate) struct SpareThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Segment>,
    retired: VecDeque<Segment>,
    /// The writer stands still until a segment is ready or `failed` is set.
    waiting: bool,
    failed: Option<WalError>,
    stop: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing between lock and unlock panics; if it did, the queues would still be whole.
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(state)
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Rests, unless somebody waits for the result.
    fn pause(&self) -> ControlFlow<()> {
        let state = self.lock();
        let rested = self
            .changed
            .wait_timeout_while(state, PAUSE, |s| !s.stop && !s.waiting);
        let (state, _) = rested.unwrap_or_else(std::sync::PoisonError::into_inner);
        if state.stop {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

impl SpareThread {
    fn start(preparer: Preparer, ready: VecDeque<Segment>, count: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        shared.lock().ready = ready;
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("wal-spares".to_owned())
            .spawn(move || work(preparer, &theirs, count))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    fn take(&mut self) -> Result<Segment, WalError> {
        let mut state = self.shared.lock();
        if state.ready.is_empty() {
            // A lack of space that was met ahead of time may have passed: it is tried once more
            // now that somebody needs the segment.
            state.waiting = true;
            state.failed = None;
            self.shared.changed.notify_all();
            while state.ready.is_empty() && state.failed.is_none() {
                state = self.shared.wait(state);
            }
            state.waiting = false;
        }
        let taken = match (state.ready.pop_front(), &state.failed) {
            (Some(segment), _) => Ok(segment),
            (None, Some(error)) => Err(error.clone()),
            // The loop above ends only with one of the two.
            (None, None) => Err(WalError::Closed),
        };
        drop(state);
        self.shared.changed.notify_all();
        taken
    }
}

impl Drop for SpareThread {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was printed where it happened.
            drop(thread.join());
        }
    }
}

fn work(mut preparer: Preparer, shared: &Shared, count: usize) {
    let mut state = shared.lock();
    while !state.stop {
        let failed = if let Some(segment) = state.retired.pop_front() {
            drop(state);
            preparer.retire(&segment, &mut || shared.pause()).err()
        } else if state.ready.len() < count && state.failed.is_none() {
            drop(state);
            match preparer.prepare(&mut || shared.pause()) {
                Ok(segment) => {
                    shared.lock().ready.push_back(segment);
                    None
                }
                Err(error) => Some(error),
            }
        } else {
            state = shared.wait(state);
            continue;
        };
        state = shared.lock();
        if failed.is_some() {
            state.failed = failed;
        }
        shared.changed.notify_all();
    }
}
