//! Where the writer gets its next segment: from a thread that prepares ahead, or made on the spot.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::WalError;
use crate::clock;
use crate::prepare::Preparer;
use crate::segment::Segment;
use crate::stats::SpareCounters;

/// How long the spare thread rests between two steps, so that the writer's syncs get through.
const PAUSE: Duration = Duration::from_millis(5);
/// How long the spare thread waits before it tries again what the file system refused.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// A source of ready segments.
pub(crate) enum Spares {
    /// Prepares when asked: no thread, so every step is repeatable.
    Inline {
        preparer: Box<Preparer>,
        ready: VecDeque<Segment>,
        /// Segments that could not be taken back yet, oldest first.
        retired: VecDeque<Segment>,
    },
    /// A thread prepares ahead.
    Thread(SpareThread),
}

impl Spares {
    /// Returns the next segment, waiting for it if need be.
    pub(crate) fn take(&mut self) -> Result<Segment, WalError> {
        match self {
            Self::Inline {
                preparer, ready, ..
            } => match ready.pop_front() {
                Some(segment) => {
                    preparer.counters.ready(ready.len());
                    Ok(segment)
                }
                None => preparer.prepare(&mut || ControlFlow::Continue(())),
            },
            Self::Thread(thread) => thread.take(),
        }
    }

    /// Makes `count` segments ready, where no thread does. A failure is counted and reported; it
    /// matters when a segment is needed.
    pub(crate) fn prepare_ahead(&mut self, count: usize) {
        let Self::Inline {
            preparer,
            ready,
            retired,
        } = self
        else {
            return;
        };
        // What fails for good also fails what is prepared from here on.
        drop(take_back(preparer, retired));
        while ready.len() < count
            && let Ok(segment) = preparer.prepare(&mut || ControlFlow::Continue(()))
        {
            ready.push_back(segment);
            preparer.counters.ready(ready.len());
        }
    }

    /// Gives back a segment whose every record is purged.
    pub(crate) fn retire(&mut self, segment: Segment) -> Result<(), WalError> {
        match self {
            Self::Inline {
                preparer, retired, ..
            } => {
                retired.push_back(segment);
                take_back(preparer, retired)
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
            Self::Inline {
                preparer,
                ready,
                retired,
            } => {
                let state = State {
                    ready,
                    retired,
                    ..State::default()
                };
                SpareThread::start(*preparer, state, count).map(Self::Thread)
            }
            Self::Thread(_) => Ok(self),
        }
    }
}

/// Takes segments back, oldest first, up to one that cannot be yet: none behind it may go before it,
/// or the log would have a hole.
fn take_back(preparer: &mut Preparer, retired: &mut VecDeque<Segment>) -> Result<(), WalError> {
    while let Some(segment) = retired.front() {
        match preparer.retire(segment, &mut || ControlFlow::Continue(())) {
            Ok(()) => drop(retired.pop_front()),
            Err(error) if error.may_pass() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The thread that prepares segments. Dropping it stops and joins the thread.
pub(crate) struct SpareThread {
    shared: Arc<Shared>,
    counters: Arc<SpareCounters>,
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
    /// Segments to be taken back, oldest first. One stays here until it was.
    retired: VecDeque<Segment>,
    /// The oldest of them could not be taken back yet, so none is.
    held_up: bool,
    /// When the file system has refused something last.
    refused: Option<Instant>,
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

    /// Waits until something changes, or it is time to try again what was refused.
    fn wait_to_try<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(refused) = state.refused.filter(|_| !state.waiting) else {
            return self.wait(state);
        };
        let left = TRY_AGAIN.saturating_sub(refused.elapsed());
        let (mut state, _) = self
            .changed
            .wait_timeout(state, left)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if state.refused.is_some_and(|at| at.elapsed() >= TRY_AGAIN) {
            state.failed.take_if(|failed| failed.may_pass());
            state.held_up = false;
            state.refused = None;
        }
        state
    }

    /// Rests, unless a caller waits for the result.
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
    fn start(preparer: Preparer, state: State, count: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let theirs = Arc::clone(&shared);
        let counters = Arc::clone(&preparer.counters);
        let thread = std::thread::Builder::new()
            .name("wal-spares".to_owned())
            .spawn(move || work(preparer, &theirs, count))?;
        Ok(Self {
            shared,
            counters,
            thread: Some(thread),
        })
    }

    fn take(&mut self) -> Result<Segment, WalError> {
        let mut state = self.shared.lock();
        if state.ready.is_empty() {
            // A refusal that was met ahead of time may have passed: it is tried once more now that
            // a caller needs the segment.
            state.waiting = true;
            state.failed.take_if(|failed| failed.may_pass());
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
        self.counters.ready(state.ready.len());
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
            thread.join().ok();
        }
    }
}

fn work(mut preparer: Preparer, shared: &Shared, count: usize) {
    let mut state = shared.lock();
    while !state.stop {
        let oldest = state.retired.front().filter(|_| !state.held_up).cloned();
        let failed = if let Some(segment) = oldest {
            drop(state);
            let retired = preparer.retire(&segment, &mut || shared.pause());
            let mut state = shared.lock();
            match retired {
                Ok(()) => {
                    state.retired.pop_front();
                    // A file that was given back is the room that was not there.
                    state.failed.take_if(|failed| failed.may_pass());
                    None
                }
                Err(error) => {
                    state.held_up = true;
                    state.refused = Some(clock::now());
                    Some(error).filter(|error| !error.may_pass())
                }
            }
        } else if state.ready.len() < count && state.failed.is_none() {
            drop(state);
            match preparer.prepare(&mut || shared.pause()) {
                Ok(segment) => {
                    let mut state = shared.lock();
                    state.ready.push_back(segment);
                    preparer.counters.ready(state.ready.len());
                    None
                }
                Err(error) => Some(error),
            }
        } else {
            state = shared.wait_to_try(state);
            continue;
        };
        state = shared.lock();
        if failed.is_some() {
            state.failed = failed;
            state.refused = Some(clock::now());
        }
        shared.changed.notify_all();
    }
}
