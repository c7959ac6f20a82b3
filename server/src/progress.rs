//! Whether this node is of use to clients, and whether it can still work at all: judged by
//! progress, not by being alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ringfence_raft::Node;
use tracing::{info, warn};

use crate::limits::{
    NOT_READY_LOG_AFTER, NOT_READY_LOG_PAUSE, PROGRESS_INTERVAL, READY_AGE_MAX, STUCK_MAX,
};
use crate::reach::Reach;

/// A node's progress, as probes ask for it.
#[derive(Clone)]
pub(crate) struct Progress {
    node: Node,
    reach: Reach,
    pulse: Arc<Pulse>,
}

impl Progress {
    /// Of `node`, whose clients come by ports of this reach.
    pub(crate) fn of(node: Node, reach: Reach) -> Self {
        let pulse = Arc::default();
        Self { node, reach, pulse }
    }

    /// The node.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// Fine if this node can serve; else why not and where the documents say what to do, for people.
    pub(crate) fn check(&self) -> Result<(), String> {
        let ready = self.node.ready(READY_AGE_MAX);
        let found = ready.map_err(|not_ready| format!("{not_ready}; see {}", not_ready.runbook()));
        found.and_then(|()| self.reach.check())
    }

    /// What is fine now and is not to stay so, for people.
    pub(crate) fn remark(&self) -> Option<&'static str> {
        let unused = self.node.status().restore_unused;
        unused.then_some(
            "--restore is still set and does nothing, because this node belongs to a cluster: remove it. \
             If `ringfence cluster status` does not say `restored from cluster`, that cluster was \
             formed without the backup; see deploy/RECOVERY.md#it-was-formed-without-the-backup",
        )
    }

    /// Fine unless this node has work that is its own and gets nowhere with it; then a restart can
    /// help. One that hears no peer has no such work: it waits, however long.
    pub(crate) fn alive(&self) -> Result<(), String> {
        let stuck = PROGRESS_INTERVAL * self.pulse.looks();
        if stuck < STUCK_MAX {
            return Ok(());
        }
        Err(format!(
            "its disk has finished nothing for {} s, and entries wait for it",
            stuck.as_secs()
        ))
    }

    /// Looks whether the log gets on; to be called once in every [`PROGRESS_INTERVAL`].
    pub(crate) fn look(&self) {
        let figures = self.node.metrics();
        // What waits for room is not stuck: a restart would make none.
        let waiting = match figures.wal_no_room {
            true => 0,
            false => figures.wal_unflushed_bytes,
        };
        self.pulse
            .beat(waiting, figures.wal_bytes, figures.wal_syncs);
    }
}

/// Says in the log that a node stays unready, and why: a probe that asks may be far away.
#[derive(Debug, Default)]
pub(crate) struct Complaint {
    /// How long it has been unready.
    since: Duration,
    /// Whether the log says so.
    said: bool,
}

impl Complaint {
    /// Takes what [`Progress::check`] found, once in every [`PROGRESS_INTERVAL`].
    pub(crate) fn hear(&mut self, found: &Result<(), String>) {
        match found {
            Ok(()) => {
                if std::mem::take(self).said {
                    info!("this node is ready again");
                }
            }
            Err(why) => {
                self.since += PROGRESS_INTERVAL;
                if self.is_due() {
                    self.said = true;
                    warn!(for_s = self.since.as_secs(), %why, "this node is not ready");
                }
            }
        }
    }

    /// Once it has lasted, and then again from time to time.
    fn is_due(&self) -> bool {
        let Some(over) = self.since.checked_sub(NOT_READY_LOG_AFTER) else {
            return false;
        };
        over.as_millis() % NOT_READY_LOG_PAUSE.as_millis() < PROGRESS_INTERVAL.as_millis()
    }
}

/// Counts how often in a row the log was seen to wait without getting on.
#[derive(Debug, Default)]
struct Pulse {
    looks: AtomicU32,
    /// What had been done at the last look: it changes whenever anything is.
    done: std::sync::Mutex<(u64, u64)>,
}

impl Pulse {
    fn looks(&self) -> u32 {
        self.looks.load(Ordering::Relaxed)
    }

    fn beat(&self, waiting_bytes: u64, bytes: u64, syncs: u64) {
        let mut done = self
            .done
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let before = std::mem::replace(&mut *done, (bytes, syncs));
        if waiting_bytes > 0 && before == (bytes, syncs) {
            self.looks.fetch_add(1, Ordering::Relaxed);
        } else {
            self.looks.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_complained_of_and_not_at_every_look() {
        let unready = Err("why".to_owned());
        let mut complaint = Complaint::default();
        let mut said = Vec::new();
        let hour = Duration::from_secs(3_600).as_millis() / PROGRESS_INTERVAL.as_millis();
        for _ in 0..hour {
            complaint.hear(&unready);
            if complaint.is_due() {
                said.push(complaint.since);
            }
        }
        let expected = NOT_READY_LOG_AFTER + NOT_READY_LOG_PAUSE;
        assert_eq!(said[..2], [NOT_READY_LOG_AFTER, expected]);
        assert_eq!(said.len(), 12);
        complaint.hear(&Ok(()));
        assert!(!complaint.said && complaint.since.is_zero());
    }

    #[test]
    fn only_a_log_that_waits_and_gets_nowhere_is_stuck() {
        let pulse = Pulse::default();
        pulse.beat(10, 100, 1);
        assert_eq!(pulse.looks(), 0);
        pulse.beat(10, 100, 1);
        pulse.beat(20, 100, 1);
        assert_eq!(pulse.looks(), 2);
        pulse.beat(20, 110, 2);
        assert_eq!(pulse.looks(), 0);
        // Nothing to do is no fault, however long.
        pulse.beat(0, 110, 2);
        pulse.beat(0, 110, 2);
        assert_eq!(pulse.looks(), 0);
    }
}
