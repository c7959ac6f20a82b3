//! What a follower may wait for and remember.

use std::time::Duration;

use ringfence_core::ClusterId;

/// How long a token above the floor waits for the stream, unless set otherwise.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// After how much silence a stream is live no more, unless set otherwise: the cluster says something
/// every second, and two of three may be late.
pub const SILENCE: Duration = Duration::from_secs(3);

/// How many names are remembered, unless set otherwise.
pub const NAMES_MAX: usize = 100_000;

/// How many bytes the remembered names may take, unless set otherwise: their own, and 160 for each.
pub const BYTES_MAX: usize = 32 << 20;

/// How many requests wait for the stream at a time, unless set otherwise.
pub const WAITERS_MAX: usize = 1_024;

/// What to do with a token above the floor while no stream tells floors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unheard {
    /// Let it pass, as a guard without floors does: the store stays writable without the cluster,
    /// and a forged token passes, too.
    #[default]
    Plain,
    /// Refuse it after the wait: nothing that was never granted passes, and no new holder writes
    /// while floors cannot be followed. The one that is known goes on.
    Refuse,
}

/// What a [`FloorFollower`](super::FloorFollower) may wait for and remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long a token above the floor waits for the stream. [`PATIENCE`] unless set otherwise.
    pub patience: Duration,
    /// After how much silence the stream is live no more. [`SILENCE`] unless set otherwise.
    pub silence: Duration,
    /// What to do while no stream is live.
    pub unheard: Unheard,
    /// How many names are remembered: those that were granted last. [`NAMES_MAX`] unless set
    /// otherwise.
    pub names_max: usize,
    /// How many bytes the remembered names may take. [`BYTES_MAX`] unless set otherwise.
    pub bytes_max: usize,
    /// How many requests wait for the stream at a time. [`WAITERS_MAX`] unless set otherwise.
    pub waiters_max: usize,
    /// Whose floors are taken: those of these clusters, of any if there are none. A restored cluster
    /// has an id of its own, so both stand here while it takes the place of the one before.
    pub clusters: Vec<ClusterId>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            patience: PATIENCE,
            silence: SILENCE,
            unheard: Unheard::default(),
            names_max: NAMES_MAX,
            bytes_max: BYTES_MAX,
            waiters_max: WAITERS_MAX,
            clusters: Vec::new(),
        }
    }
}
