//! What can go wrong, and what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{EntryId, MAX_HEADER_BYTES, MAX_SEGMENT_BYTES, MAX_SPARE_SEGMENTS, MIN_SEGMENT_BYTES};

/// Bytes on disk that are not what the log wrote there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The segment file that holds the bytes.
    pub path: PathBuf,
    /// The byte in the file at which the unreadable part begins.
    pub offset: u64,
    /// What was found there.
    pub found: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is damaged at byte {}: {}; acknowledged records may be lost, so this log must not \
             be used: remove the member from the cluster, wipe its directory and let it join again",
            self.path.display(),
            self.offset,
            self.found
        )
    }
}

/// Why a call on an open log failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WalError {
    /// The file system refused an operation. Final: the log accepts nothing any more.
    #[error(
        "cannot {operation} {}: {source}; the log accepts nothing more: {}",
        path.display(),
        next_step(source)
    )]
    Io {
        /// What was tried, as in "cannot {operation}".
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's answer.
        #[source]
        source: Arc<io::Error>,
    },
    /// A segment could not be prepared, or taken back, and it is tried again: nothing was promised
    /// on it. Calls that need the segment wait for it, so only [`crate::Options::on_spare`] is
    /// notified.
    #[error("cannot {operation} {}: {source}; it is tried again every second", path.display())]
    NotPrepared {
        /// What was tried, as in "cannot {operation}".
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's answer.
        #[source]
        source: Arc<io::Error>,
    },
    /// An earlier write or sync failed; nothing succeeds after that.
    #[error("the log stopped after an earlier failure: {0}")]
    Poisoned(Arc<WalError>),
    /// The entry is longer than this log takes. Nothing of the call was written.
    #[error(
        "entry {}-{} has {bytes} bytes, at most {limit} are allowed: split the entry, or raise \
         `segment_bytes` if it is what sets the limit",
        id.term, id.index
    )]
    EntryTooLarge {
        /// Term and index of the entry.
        id: EntryId,
        /// Its payload in bytes.
        bytes: u64,
        /// The limit in bytes: [`crate::MAX_ENTRY_BYTES`], or what fits in one segment.
        limit: u64,
    },
    /// The vote is longer than [`crate::MAX_MARK_BYTES`]. Nothing was written.
    #[error("the vote has {bytes} bytes, at most {limit} are allowed")]
    VoteTooLarge {
        /// Its length in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The entry does not follow the last one. Nothing of the call was written.
    #[error(
        "entry {offered} was offered where {expected} comes next: the caller must append without \
         holes, and truncate before it overwrites"
    )]
    OutOfOrder {
        /// Index of the entry that was offered.
        offered: u64,
        /// The index that would have followed.
        expected: u64,
    },
    /// A record that was written is no longer readable.
    #[error("{0}")]
    Damaged(Damage),
    /// The log is closed.
    #[error("the log is closed")]
    Closed,
}

impl WalError {
    /// Says why an operation on `path` failed.
    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            operation,
            path: path.to_owned(),
            source: Arc::new(source),
        }
    }

    /// The same, of a step that is tried again.
    pub(crate) fn not_prepared(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::io(operation, path, source).into_not_prepared()
    }

    /// A refusal that turned out to be none for good.
    pub(crate) fn into_not_prepared(self) -> Self {
        match self {
            Self::Io {
                operation,
                path,
                source,
            } => Self::NotPrepared {
                operation,
                path,
                source,
            },
            other => other,
        }
    }

    /// Returns true if it is tried again: the caller that needs what failed waits for it.
    pub(crate) const fn may_pass(&self) -> bool {
        matches!(self, Self::NotPrepared { .. })
    }

    /// Returns true if the medium had no room.
    pub(crate) fn is_no_space(&self) -> bool {
        matches!(
            self,
            Self::Io { source, .. } | Self::NotPrepared { source, .. } if no_space(source)
        )
    }
}

/// Why a log did not open. Nothing was changed that a later open could miss.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory does not exist, or is not a directory.
    #[error("{} is not a directory: create it, or correct the path", path.display())]
    NotADirectory {
        /// The directory that was given.
        path: PathBuf,
    },
    /// The file system refused an operation.
    #[error("cannot {operation} {}: {source}; {}", path.display(), next_step(source))]
    Io {
        /// What was tried, as in "cannot {operation}".
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's answer.
        #[source]
        source: Arc<io::Error>,
    },
    /// Another process has the log open.
    #[error(
        "{} is in use by {holder}: stop that process, or give this one a directory of its own",
        path.display()
    )]
    Locked {
        /// The directory of the log.
        path: PathBuf,
        /// Who holds it, as far as it reported.
        holder: String,
    },
    /// The log must be there already, and nothing was ever written to the one in the directory: no
    /// segment is there, or none that holds a batch. Every log begins with a batch of its own.
    #[error(
        "the log in {} is gone: no segment there holds anything that was written, but this log \
         was written before; put its files back if they were moved, else remove this member from \
         the cluster, wipe its directory and let it join again",
        .0.display()
    )]
    Missing(PathBuf),
    /// The log belongs to another process.
    #[error(
        "{} belongs to another identity: it carries {found}, this process is {expected} \
         (hexadecimal): give the directory that belongs to this member, or an empty one",
        path.display()
    )]
    IdentityMismatch {
        /// The segment file with the other identity.
        path: PathBuf,
        /// The identity offered, as hexadecimal digits.
        expected: String,
        /// The identity in the file, as hexadecimal digits.
        found: String,
    },
    /// The log was written in a format that this version does not know.
    #[error(
        "{} has format version {found}, this program knows {known}: start the newer program",
        path.display()
    )]
    UnknownVersion {
        /// The segment file with the unknown version.
        path: PathBuf,
        /// The version in the file.
        found: u32,
        /// The version this program writes.
        known: u32,
    },
    /// Acknowledged records may be lost.
    #[error("{0}")]
    Damaged(Damage),
    /// An option is out of range.
    #[error("{option} is {offered}, allowed is {allowed}")]
    InvalidOption {
        /// The name of the option.
        option: &'static str,
        /// The value that was given, in the option's unit.
        offered: u64,
        /// The range that is allowed, in words.
        allowed: String,
    },
    /// A thread could not be started.
    #[error("cannot start thread {name}: {source}")]
    Thread {
        /// The name under which the system lists the thread.
        name: &'static str,
        /// The operating system's answer.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// Says why an operation on `path` failed.
    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            operation,
            path: path.to_owned(),
            source: Arc::new(source),
        }
    }

    /// Says that `segment_bytes` is out of range.
    pub(crate) fn segment_bytes(offered: u64) -> Self {
        Self::InvalidOption {
            option: "segment_bytes",
            offered,
            allowed: format!("{MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES}, a multiple of 512"),
        }
    }

    /// Says that `spare_segments` is out of range.
    pub(crate) fn spare_segments(offered: usize) -> Self {
        Self::InvalidOption {
            option: "spare_segments",
            offered: offered as u64,
            allowed: format!("1 to {MAX_SPARE_SEGMENTS}"),
        }
    }

    /// Says that the header is too long.
    pub(crate) fn header(offered: usize) -> Self {
        Self::InvalidOption {
            option: "length of header",
            offered: offered as u64,
            allowed: format!("0 to {MAX_HEADER_BYTES} bytes"),
        }
    }
}

impl From<WalError> for OpenError {
    fn from(error: WalError) -> Self {
        match error {
            WalError::Io {
                operation,
                path,
                source,
            }
            | WalError::NotPrepared {
                operation,
                path,
                source,
            } => Self::Io {
                operation,
                path,
                source,
            },
            WalError::Damaged(damage) => Self::Damaged(damage),
            // Opening appends nothing of a caller, so only those above can come up.
            other => Self::Io {
                operation: "open",
                path: PathBuf::new(),
                source: Arc::new(io::Error::other(other)),
            },
        }
    }
}

fn no_space(source: &io::Error) -> bool {
    matches!(
        source.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// Returns true if there were no file descriptors left, in this process or on the machine: a sync
/// needs none, so whatever was to be synced was not even opened.
#[must_use]
pub fn lacks_descriptors(source: &io::Error) -> bool {
    /// `EMFILE` and `ENFILE`, which have no kind of their own.
    const CODES: [i32; 2] = [24, 23];
    source
        .raw_os_error()
        .is_some_and(|code| CODES.contains(&code))
}

/// What an operator can do about `source`.
fn next_step(source: &io::Error) -> &'static str {
    if no_space(source) {
        return "free space on this file system, then start again; nothing acknowledged is lost";
    }
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "let the user of this process read and write the directory, then start again"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "make the file system writable, then start again; look for the reason in the kernel's log"
        }
        _ => {
            "look for disk errors in the kernel's log, then start again; if it fails again, remove \
             the member, wipe its directory and let it join again"
        }
    }
}

/// Writes bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "(empty)".to_owned();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
