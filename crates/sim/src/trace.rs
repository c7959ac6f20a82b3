//! What happened, as lines: equal seeds make equal bytes.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many of the newest lines are kept when not all of them are.
const LINES_KEPT: usize = 400;

/// The trace of a run. Clones share it.
#[derive(Clone, Default)]
pub struct Trace {
    state: Arc<Mutex<State>>,
}

struct State {
    whole: bool,
    hash: u64,
    lines: u64,
    text: String,
    newest: VecDeque<String>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            whole: false,
            hash: 0xCBF2_9CE4_8422_2325,
            lines: 0,
            text: String::new(),
            newest: VecDeque::new(),
        }
    }
}

impl Trace {
    /// A trace; one that is `whole` keeps every line, any other the newest few hundred.
    #[must_use]
    pub fn new(whole: bool) -> Self {
        let trace = Self::default();
        trace.state().whole = whole;
        trace
    }

    /// Adds a line that happened at `now`.
    pub fn line(&self, now: Duration, what: fmt::Arguments<'_>) {
        let mut state = self.state();
        let mut line = String::with_capacity(64);
        // Writing to a string cannot fail.
        writeln!(line, "{}.{:06} {what}", now.as_secs(), now.subsec_micros()).ok();
        for byte in line.bytes() {
            state.hash = (state.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        state.lines += 1;
        if state.whole {
            state.text.push_str(&line);
            return;
        }
        if state.newest.len() == LINES_KEPT {
            state.newest.pop_front();
        }
        state.newest.push_back(line);
    }

    /// Mixes numbers into the hash alone: for what happens too often to be a line.
    pub fn note(&self, numbers: &[u64]) {
        let mut state = self.state();
        for number in numbers {
            state.hash = (state.hash ^ number).wrapping_mul(0x0000_0100_0000_01B3);
            state.hash ^= state.hash >> 29;
        }
    }

    /// A number over everything so far.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.state().hash
    }

    /// How many lines there were.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.state().lines
    }

    /// All lines of a whole trace; the newest of any other.
    #[must_use]
    pub fn text(&self) -> String {
        let state = self.state();
        if state.whole {
            return state.text.clone();
        }
        state.newest.iter().map(String::as_str).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
