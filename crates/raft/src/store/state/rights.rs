//! The rights of the applied state, to be read without the lock that entries are applied under.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;
use ringfence_core::{Access, Mode, StateMachine};

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
    /// The last index of what the disk of this node held when it started.
    held: AtomicU64,
    was_set: AtomicBool,
}

impl Rights {
    /// The disk of this node holds state or log up to this index; before anything is applied.
    pub(super) fn held(&self, last: u64) {
        self.held.store(last, Ordering::Relaxed);
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

    /// Whether the mode was other than `off` in a state that was applied since this node started: in
    /// the one that its disk held then, or in a later one. What entries set and took back before the
    /// start does not count, whether they are applied again or are part of a snapshot by now.
    pub(super) fn mode_was_set(&self) -> bool {
        self.was_set.load(Ordering::Relaxed)
    }

    /// Remembers a mode other than `off`; after each entry, since the next one may take it back.
    pub(super) fn note(&self, machine: &StateMachine, index: u64) {
        if machine.access().mode() != Mode::Off && index >= self.held.load(Ordering::Relaxed) {
            self.was_set.store(true, Ordering::Relaxed);
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
