//! The rights of the applied state, to be read without the lock that entries are applied under.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;
use ringfence_core::{Access, Mode, StateMachine};
use ringfence_planted::{Bug, planted};

/// The modes as numbers.
const OFF: u8 = 0;
const PERMISSIVE: u8 = 1;
const ENFORCED: u8 = 2;

/// What is published of the rights.
#[derive(Default)]
pub(super) struct Rights {
    all: Mutex<Access>,
    /// The mode of these, as a number: it is asked for with each request.
    mode: AtomicU8,
    /// How far the log of the cluster was committed at some time since this node started.
    began: OnceLock<u64>,
    /// The last index behind which the mode was other than `off`.
    bound: AtomicU64,
    /// The mode was so in what the disk of this node held when it started.
    held: AtomicBool,
}

impl Rights {
    /// The state has come to an index up to which the log was committed since this node started.
    pub(super) fn caught_up(&self, index: u64) {
        let begin = || match planted(Bug::TakenBackModeCounts) {
            true => 1,
            false => index,
        };
        self.began.get_or_init(begin);
    }

    /// The state is what the disk of this node held when it started.
    pub(super) fn started(&self) {
        let is_set = self.mode() != Mode::Off;
        self.held.store(is_set, Ordering::Relaxed);
    }

    /// Whether this node started with a mode other than `off`, and has seen none of the entries that
    /// took it back.
    pub(super) fn holds_a_mode(&self) -> bool {
        self.held.load(Ordering::Relaxed) && self.mode() != Mode::Off
    }

    pub(super) fn all(&self) -> Access {
        self.all.lock().clone()
    }

    /// How much they bind.
    pub(super) fn mode(&self) -> Mode {
        match self.mode.load(Ordering::Relaxed) {
            ENFORCED => Mode::Enforced,
            PERMISSIVE => Mode::Permissive,
            _ => Mode::Off,
        }
    }

    /// Whether the mode was other than `off` in the state that this node first caught up with since it
    /// started, or in a later one; `None` before it has. What was set and taken back before does not
    /// count, whether this node applies these entries now or they are part of a snapshot.
    pub(super) fn mode_was_set(&self) -> Option<bool> {
        let began = *self.began.get()?;
        Some(self.bound.load(Ordering::Relaxed) >= began)
    }

    /// Remembers a mode other than `off`; after each entry, since the next one may take it back.
    pub(super) fn note(&self, machine: &StateMachine, index: u64) {
        if machine.access().mode() != Mode::Off {
            self.bound.store(index, Ordering::Relaxed);
        }
    }

    /// Publishes the rights, if they have changed; under the lock of the state.
    pub(super) fn publish(&self, machine: &StateMachine) {
        let mut published = self.all.lock();
        if published.set_at() != machine.access().set_at() {
            *published = machine.access().clone();
            let mode = match published.mode() {
                Mode::Off => OFF,
                Mode::Permissive => PERMISSIVE,
                Mode::Enforced => ENFORCED,
            };
            self.mode.store(mode, Ordering::Relaxed);
        }
    }
}
