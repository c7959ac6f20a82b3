//! Names of backups: `ringfence-CLUSTER-WALL-INDEX.backup`, whose order is that of their age; and of the
//! files with their digests, which are called as they are and `.digest`.

use std::fmt;

use ringfence_core::ClusterId;
use ringfence_proto::text::from_hex;

const PREFIX: &str = "ringfence-";
const SUFFIX: &str = ".backup";
const DIGEST_SUFFIX: &str = ".digest";
/// Digits of the wall time, in milliseconds since 1970: enough until the year 5138.
const WALL_DIGITS: usize = 14;
/// Digits of the index: all of a 64-bit number.
const INDEX_DIGITS: usize = 20;

/// What the name of a backup says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackupName {
    /// The cluster.
    pub(crate) cluster: ClusterId,
    /// The recorded wall time of the state, in milliseconds since 1970.
    pub(crate) wall_ms: u64,
    /// The index of the state.
    pub(crate) index: u64,
}

impl BackupName {
    /// What a file's name says, if it is exactly one of these.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let parts = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        let mut parts = parts.split('-');
        let read = Self {
            cluster: ClusterId::from_slice(&from_hex(parts.next()?)?)?,
            wall_ms: parts.next()?.parse().ok()?,
            index: parts.next()?.parse().ok()?,
        };
        // Whatever is written in another way was not written here.
        (read.to_string() == name).then_some(read)
    }

    /// The same of the name of a backup, or of the file with its digest.
    pub(super) fn parse_either(name: &str) -> Option<Self> {
        Self::parse(name.strip_suffix(DIGEST_SUFFIX).unwrap_or(name))
    }

    /// What is before the names of all backups.
    pub(super) fn first() -> String {
        PREFIX.to_owned()
    }

    /// What is behind the names of all backups of its cluster, and before those of the next one.
    pub(super) fn behind_its_cluster(self) -> String {
        format!("{PREFIX}{}-~", self.cluster)
    }

    /// The name of the file with its digest.
    pub(super) fn of_digest(self) -> String {
        format!("{self}{DIGEST_SUFFIX}")
    }
}

impl fmt::Display for BackupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cluster, wall, index) = (self.cluster, self.wall_ms, self.index);
        write!(
            f,
            "{PREFIX}{cluster}-{wall:0WALL_DIGITS$}-{index:0INDEX_DIGITS$}{SUFFIX}"
        )
    }
}
