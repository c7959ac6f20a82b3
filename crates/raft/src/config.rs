//! What a node is started with.

mod restore;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ringfence_core::{Millis, Mode, Settings};
use ringfence_planted::{Bug, planted};
use ringfence_tls::{Acceptor, Connector};

pub use self::restore::Restore;
pub(crate) use self::restore::quiet_time_digest;
use crate::platform::hooks::Hooks;
use crate::spans::Spans;
use ringfence_history::HistoryLimits;

/// The most entries that are kept only to be dropped together.
const PURGE_BATCH_MAX: u64 = 10_000;

/// The standard limit of log that the disk does not have yet, in bytes; see
/// [`NodeConfig::log_unflushed_max`].
pub const LOG_UNFLUSHED_BYTES_MAX: u64 = 256 << 20;

/// The standard length of a segment of the log, in bytes.
pub(crate) const WAL_SEGMENT_BYTES: u64 = 64 << 20;

/// The least time after which a silent member counts as down when members are changed.
const LIVE_WITHIN_MIN: Duration = Duration::from_secs(1);
/// The standard limit after which a leader whose disk hangs hands leadership over; see
/// [`NodeConfig::flush_lag_max`].
pub const FLUSH_LAG_MAX: Duration = Duration::from_secs(3);

/// Everything a node needs to know to start.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The node's name, unique in its cluster.
    pub name: String,
    /// Where everything is kept that the node must not lose. Made if it does not exist.
    pub data_dir: PathBuf,
    /// Where calls of other nodes are taken. Port 0 takes any free one.
    pub peer_listen: SocketAddr,
    /// TLS between nodes; `None` for none. The same on every node of a cluster.
    pub peer_tls: Option<PeerTls>,
    /// host:port under which other nodes reach the peer port. `None`: as `initial_cluster` says
    /// for this node, or else what was bound.
    pub peer_advertise: Option<String>,
    /// host:port under which clients reach this node, as they receive it.
    pub client_advertise: String,
    /// Name and peer address of every first member, this node included. A node that is not among
    /// them only joins.
    pub initial_cluster: Vec<(String, String)>,
    /// Peer addresses of any members, for a node that joins an existing cluster.
    pub join: Vec<String>,
    /// Whether this node, when it comes with an empty directory, takes the place of the member
    /// that had its name, once it has caught up.
    pub replace_on_data_loss: bool,
    /// Whether this node, when it joins, asks for a vote once it has caught up.
    pub join_as_voter: bool,
    /// Replaces the wall clock as the lower bound of tokens; counts only when forming.
    pub token_floor: Option<u64>,
    /// The cluster's first settings; counts only when forming.
    pub settings: Settings,
    /// How much rights bind in the new cluster, from its first entry on; counts only when forming.
    /// With another mode than off the cluster is formed once all first members have announced that
    /// they know rights, and with [`Mode::Enforced`] that their peer ports are authenticated.
    pub mode: Mode,
    /// For how long the new cluster grants nothing, since holders of a lost one before the same stores
    /// may still work; 0 to [`ringfence_core::QUIET_TIME_MAX`]. It counts only when forming, and must
    /// be the same on all first members. A
    /// restored cluster keeps quiet for the greatest TTL that a holder may have and a minute more, or
    /// for this time and a minute more if that is longer.
    pub quiet_time: Millis,
    /// What the new cluster is restored from; counts only when forming. [`NodeConfig::settings`]
    /// are those of the backup then, [`Restore::mode`] takes the place of [`NodeConfig::mode`], and
    /// [`NodeConfig::token_floor`] is one more lower bound beside the clock.
    pub restore: Option<Restore>,
    /// How long things may take.
    pub timing: Timing,
    /// Bytes of one segment of the log: 64 KiB to 1 GiB, a multiple of 512. Every segment holds the
    /// longest entry there may be, [`crate::ENTRY_BYTES_MAX`].
    pub wal_segment_bytes: u64,
    /// Bytes of log, as they lie on the disk, after which a snapshot is taken: up to half as many
    /// again on some nodes, so that not all of them take one at the same time.
    pub snapshot_log_bytes: u64,
    /// Entries kept in the log behind a snapshot, so that a peer that was away for a moment needs
    /// no snapshot.
    pub snapshot_log_keep: u64,
    /// The most bytes of log that may wait for this node's own disk, and so lie in memory. Followers
    /// may be faster than a leader's disk, and commit without it: behind this limit a leader
    /// refuses proposals as not done, and a follower takes no more entries, until the disk has
    /// caught up. What is under way when the limit is reached is still taken.
    pub log_unflushed_max: u64,
    /// How long a leader's disk may finish nothing, while the disks of a majority go on, before it
    /// hands leadership over.
    pub flush_lag_max: Duration,
    /// Whether nothing but this machine reaches the peer port: it counts as authenticated then.
    pub peer_port_is_local: bool,
    /// Whether this node, while it leads, takes sessions that last as long as a Pod: only then
    /// a leader watches Pods and ends them. Followers leave it to the leader.
    pub pod_sessions: bool,
    /// How much history is kept.
    pub history: HistoryLimits,
    /// Where the spans of calls go; nowhere unless set.
    pub spans: Spans,
    /// For tests.
    #[doc(hidden)]
    pub hooks: Hooks,
}

/// Both sides of the handshakes between nodes.
#[derive(Clone)]
pub struct PeerTls {
    /// For nodes that connect to this one.
    pub accept: Acceptor,
    /// For those that this one connects to. Their certificates have to be for the hosts of their
    /// peer addresses.
    pub connect: Connector,
}

impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerTls")
    }
}

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Between two heartbeats of a leader, at least 10 ms.
    pub heartbeat: Duration,
    /// How long a follower waits for a leader it does not hear, at least; more than two
    /// heartbeats.
    pub election_min: Duration,
    /// And at most.
    pub election_max: Duration,
    /// How long a request waits for a leader before it is refused.
    pub leader_wait: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(50),
            election_min: Duration::from_millis(200),
            election_max: Duration::from_millis(300),
            leader_wait: Duration::from_secs(3),
        }
    }
}

impl Timing {
    /// A member that has answered its leader within this time is live: 1 s, or two elections if
    /// these take longer.
    pub(crate) fn live_within(&self) -> Duration {
        (self.election_max * 2).max(LIVE_WITHIN_MIN)
    }
}

impl NodeConfig {
    /// A node with this name and directory that listens on any local port, with the standard
    /// settings, and belongs to no cluster unless `initial_cluster` or `join` say more.
    #[must_use]
    pub fn new(name: impl Into<String>, data_dir: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            data_dir: data_dir.into(),
            peer_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            peer_tls: None,
            peer_advertise: None,
            client_advertise: String::new(),
            initial_cluster: Vec::new(),
            join: Vec::new(),
            replace_on_data_loss: false,
            join_as_voter: false,
            token_floor: None,
            settings: Settings::STANDARD,
            mode: Mode::Off,
            quiet_time: Millis(0),
            restore: None,
            timing: Timing::default(),
            wal_segment_bytes: WAL_SEGMENT_BYTES,
            snapshot_log_bytes: 256 << 20,
            snapshot_log_keep: 50_000,
            log_unflushed_max: LOG_UNFLUSHED_BYTES_MAX,
            flush_lag_max: FLUSH_LAG_MAX,
            peer_port_is_local: false,
            pod_sessions: true,
            history: HistoryLimits::default(),
            spans: Spans::default(),
            hooks: Hooks::default(),
        }
    }

    /// Whether the peer port admits those alone who show a certificate with a name of peers. One that
    /// nothing but this machine reaches counts as such.
    #[must_use]
    pub fn peer_authenticated(&self) -> bool {
        let tls = self.peer_tls.as_ref();
        self.peer_port_is_local || tls.is_some_and(|tls| tls.accept.admits_peers_alone())
    }

    /// What openraft is configured with.
    pub(crate) fn openraft(&self) -> Result<openraft::Config, openraft::ConfigError> {
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        openraft::Config {
            cluster_name: "ringfence".to_owned(),
            heartbeat_interval: millis(self.timing.heartbeat),
            heartbeat_min_interval: Some(millis(self.timing.heartbeat)),
            election_timeout_min: millis(self.timing.election_min),
            election_timeout_max: millis(self.timing.election_max),
            enable_pre_vote: Some(true),
            // A leader that starts again must not go on in its old term: it would number entries
            // that others hold already, and what it remembered of the term is gone.
            enable_leader_restore: Some(planted(Bug::TermResumed)),
            // A follower whose disk forgot what it had flushed is sent it again, and openraft warns of
            // it. Without this a leader that is well would end, or leave the follower out for good.
            allow_log_reversion: Some(true),
            quorum_loss_probe_interval: Some(2 * millis(self.timing.election_max)),
            max_payload_entries: 2_048,
            api_batch_capacity: 4_096,
            // Snapshots go by bytes, which this crate counts itself.
            snapshot_policy: openraft::SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: self.snapshot_log_keep,
            // Dropping entries one by one would be work on the core's own task.
            purge_batch_size: self.snapshot_log_keep.clamp(1, PURGE_BATCH_MAX),
            replication_lag_threshold: 1_000_000_000,
            install_snapshot_timeout: 600_000,
            backoff: "10ms 20ms ...500ms".to_owned(),
            ..openraft::Config::default()
        }
        .validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_leader_never_resumes_its_term() {
        let config = NodeConfig::new("a", "/nowhere").openraft().unwrap();
        assert_eq!(config.enable_leader_restore, Some(false));
    }

    #[test]
    fn a_lost_quorum_is_probed_and_a_vote_is_asked_for_first() {
        let config = NodeConfig::new("a", "/nowhere").openraft().unwrap();
        assert_eq!(config.quorum_loss_probe_interval, Some(600));
        assert_eq!(config.enable_pre_vote, Some(true));
    }
}
