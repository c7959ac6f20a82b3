//! What a cluster is made of.

use ringfence_core::Settings;
use ringfence_raft::Timing;

/// What a cluster is made of.
#[derive(Debug, Clone)]
pub struct Setup {
    /// How many first members there are.
    pub nodes: usize,
    /// The cluster's first settings.
    pub settings: Settings,
    /// Tokens begin here, and not at the wall clock.
    pub token_floor: Option<u64>,
    /// How long things may take between nodes.
    pub timing: Timing,
    /// Bytes of a segment of the log.
    pub wal_segment_bytes: u64,
    /// Bytes of log after which a snapshot is taken.
    pub snapshot_log_bytes: u64,
    /// Entries that stay in the log behind a snapshot.
    pub snapshot_log_keep: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            nodes: 3,
            settings: Settings::STANDARD,
            token_floor: None,
            timing: Timing::default(),
            wal_segment_bytes: 64 << 10,
            snapshot_log_bytes: 64 << 10,
            snapshot_log_keep: 100,
        }
    }
}
