//! Figures about a node, as plain numbers.

use std::sync::atomic::Ordering;

use openraft::async_runtime::WatchReceiver;
use ringfence_history::HistoryFigures;

use crate::shared::inner::Inner;

/// Figures since the node was started, unless they say otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeMetrics {
    /// The newest term.
    pub term: u64,
    /// The last index of the log.
    pub last_log_index: u64,
    /// The newest index that this node knows to be committed.
    pub committed_index: u64,
    /// The newest applied index.
    pub applied_index: u64,
    /// The index of the newest snapshot, 0 if there is none.
    pub snapshot_index: u64,
    /// The newest index that is no longer in the log, 0 if none was dropped.
    pub purged_index: u64,
    /// How often this node has begun to lead.
    pub terms_led: u64,
    /// How often another leader became known.
    pub leader_changes: u64,
    /// Ticks that this node has logged as a leader.
    pub ticks: u64,
    /// Entries applied.
    pub applied: u64,
    /// Entries of keep-alives that this node has logged as a leader.
    pub keep_alive_entries: u64,
    /// Sessions in them.
    pub keep_alive_sessions: u64,
    /// Snapshots taken.
    pub snapshots_built: u64,
    /// Snapshots that could not be taken; each is tried again.
    pub snapshots_failed: u64,
    /// Snapshots taken up, the one found at the start included.
    pub snapshots_installed: u64,
    /// How late the newest end by time came after its deadline, in milliseconds of cluster time.
    pub last_lag_millis: u64,
    /// How late the latest of these came, in milliseconds of cluster time.
    pub max_lag_millis: u64,
    /// Requests that wait on this node for their turn in a queue.
    pub waiters: u64,
    /// Entries that the log has made durable.
    pub wal_entries: u64,
    /// Bytes that the log has written and made durable.
    pub wal_bytes: u64,
    /// Times that the log has waited for the disk.
    pub wal_syncs: u64,
    /// How long the last of these took, in microseconds.
    pub wal_last_sync_micros: u64,
    /// How long the slowest took, in microseconds.
    pub wal_max_sync_micros: u64,
    /// Segment files that hold records.
    pub wal_segments: u64,
    /// Bytes of the entries in the log.
    pub wal_live_bytes: u64,
    /// Bytes that were appended to the log and wait to be made durable; see
    /// [`crate::NodeConfig::log_unflushed_max`].
    pub wal_unflushed_bytes: u64,
    /// The history: whether it can be used, and how often it could not.
    pub history: HistoryFigures,
    /// Segments of the log that are prepared ahead.
    pub wal_spare_segments: u64,
    /// How often a segment could not be prepared ahead.
    pub wal_spare_failures: u64,
    /// Whether the file system has no room for more log: a leader refuses proposals and a follower
    /// takes no entries until there is some.
    pub wal_no_room: bool,
    /// How often this node, as a leader, found that a follower had lost log that it had
    /// acknowledged.
    pub log_reversions: u64,
}

impl NodeMetrics {
    pub(crate) fn of(inner: &Inner) -> Self {
        let state = &inner.state.counts;
        let lead = &inner.lead_counts;
        let keep_alives = &inner.keepalives.counts;
        let mut figures = Self {
            applied_index: inner.state.applied_index(),
            terms_led: lead.terms_led.load(Ordering::Relaxed),
            leader_changes: lead.leader_changes.load(Ordering::Relaxed),
            ticks: lead.ticks.load(Ordering::Relaxed),
            applied: state.applied.load(Ordering::Relaxed),
            keep_alive_entries: keep_alives.entries.load(Ordering::Relaxed),
            keep_alive_sessions: keep_alives.sessions.load(Ordering::Relaxed),
            snapshots_built: state.snapshots_built.load(Ordering::Relaxed),
            snapshots_failed: state.snapshots_failed.load(Ordering::Relaxed),
            snapshots_installed: state.snapshots_installed.load(Ordering::Relaxed),
            last_lag_millis: state.last_lag.load(Ordering::Relaxed),
            max_lag_millis: state.max_lag.load(Ordering::Relaxed),
            waiters: inner.state.waiters.len() as u64,
            history: inner.history.figures(),
            ..Self::default()
        };
        let Some(running) = inner.running.get() else {
            return figures;
        };
        let metrics = running.raft.metrics();
        let now = metrics.borrow_watched();
        figures.term = now.current_term;
        figures.last_log_index = running.log.last_index();
        figures.committed_index = now.local_committed.as_ref().map_or(0, |id| id.index);
        figures.snapshot_index = now.snapshot.as_ref().map_or(0, |id| id.index);
        figures.purged_index = now.purged.as_ref().map_or(0, |id| id.index);
        let wal = running.log.wal_stats();
        figures.wal_entries = wal.entries_appended;
        figures.wal_bytes = wal.bytes_appended;
        figures.wal_syncs = wal.syncs;
        figures.wal_last_sync_micros = wal.last_sync_micros;
        figures.wal_max_sync_micros = wal.max_sync_micros;
        figures.wal_segments = wal.live_segments;
        figures.wal_live_bytes = wal.live_bytes;
        figures.wal_unflushed_bytes = running.log.unflushed();
        figures.wal_spare_segments = wal.spare_segments;
        figures.wal_spare_failures = wal.spare_failures;
        figures.wal_no_room = wal.no_room;
        figures.log_reversions = running.transport.reversions();
        figures
    }
}
