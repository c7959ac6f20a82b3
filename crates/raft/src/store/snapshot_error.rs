//! Why a snapshot cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use ringfence_core::ClusterId;
use ringfence_proto::DecodeError;

/// A snapshot that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The file cannot be read or written.
    #[error("snapshot {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// Its bytes are damaged.
    #[error(
        "snapshot {path} is damaged at byte {offset} ({why}); restore the file, or empty the whole \
         directory and let the node join again"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damaged frame begins.
        offset: u64,
        /// What is wrong.
        why: String,
    },
    /// It is sound, and this program does not know what it says.
    #[error(
        "snapshot {path} was written by a newer release ({why}); nothing is lost: start a newer \
         release on the same data directory"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// What the decoder said.
        why: DecodeError,
    },
    /// It belongs to another cluster.
    #[error(
        "snapshot {path} belongs to cluster {found}, not to {expected}; restore the file, or empty \
         the whole directory and let the node join again"
    )]
    OtherCluster {
        /// The file.
        path: PathBuf,
        /// The cluster of this node.
        expected: ClusterId,
        /// The cluster in the file.
        found: String,
    },
}

impl SnapshotError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}
