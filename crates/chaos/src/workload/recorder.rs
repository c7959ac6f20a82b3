//! Telling what happens, line by line, to the process that started this process.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringfence_check::history::{Invoked, KeepAlive, Note, Op, Outcome, Record, Returned};

use crate::clock::now_ns;

/// Room for the operations of one client in the numbers of all.
const OPERATIONS_MAX: u64 = 1_000_000_000;

/// Prints records of the history to stdout.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    client: u32,
    next: Arc<AtomicU64>,
}

impl Recorder {
    pub(super) fn new(client: u32) -> Self {
        let first = u64::from(client) * OPERATIONS_MAX;
        Self {
            client,
            next: Arc::new(AtomicU64::new(first)),
        }
    }

    /// Whose records these are.
    pub(super) fn client(&self) -> u32 {
        self.client
    }

    pub(super) fn put(&self, record: &Record) {
        let Ok(mut line) = serde_json::to_vec(record) else {
            return;
        };
        line.push(b'\n');
        if std::io::stdout().lock().write_all(&line).is_err() {
            // No parent listens any more; what is not written down need not be done.
            std::process::exit(1);
        }
    }

    /// An operation begins now.
    pub(super) fn invoked(&self, session: Option<u64>, op: Op) -> u64 {
        self.invoked_at(now_ns(), session, op)
    }

    /// An operation may have begun at this time.
    pub(super) fn invoked_at(&self, t: u64, session: Option<u64>, op: Op) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.put(&Record::Invoked(Invoked {
            id,
            t,
            client: self.client,
            session,
            request: None,
            op,
        }));
        id
    }

    /// An operation has ended now.
    pub(super) fn returned(&self, id: u64, outcome: Outcome) {
        self.put(&Record::Returned(Returned {
            id,
            t: now_ns(),
            outcome,
            index: None,
        }));
    }

    pub(super) fn kept_alive(&self, session: u64, sent: u64, ttl_ms: u64) {
        self.put(&Record::KeepAlive(KeepAlive {
            client: self.client,
            session,
            sent,
            acked: now_ns(),
            ttl_ms,
        }));
    }

    pub(super) fn note(&self, text: String) {
        self.put(&Record::Note(Note {
            t: Some(now_ns()),
            text,
        }));
    }
}
