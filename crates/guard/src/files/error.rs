//! What can go wrong, sorted by what the caller has to do.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ringfence_core::LeaseName;

use crate::mark_text::Unreadable;
use crate::{EndsBelief, Refused};

/// Why a call of [`FilesGuard`](super::FilesGuard) did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// The guard refused the fence; nothing was written.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Something else has written the file of the mark. Nothing was written now.
    #[error(
        "the mark in {} is damaged: {why}; restore the directory, or raise the mark with advance_to to \
         the lease's newest token before writes are served", directory.display()
    )]
    DamagedMark {
        /// The guarded directory.
        directory: PathBuf,
        /// What is wrong with the file.
        why: &'static str,
    },
    /// The mark has a version that this release does not know; nothing was written.
    #[error("the mark in {} has version `{found}`, expected 1: use a newer release", directory.display())]
    OtherVersion {
        /// The guarded directory.
        directory: PathBuf,
        /// The version, at most 19 characters of it.
        found: String,
    },
    /// The directory is guarded by another lease; nothing was written.
    #[error("the directory {} is guarded by lease `{found}`, not by `{expected}`", directory.display())]
    OtherLease {
        /// The guarded directory.
        directory: PathBuf,
        /// The lease of the guard.
        expected: LeaseName,
        /// The lease that the mark names.
        found: LeaseName,
    },
    /// A name that no guarded file can have; nothing was written.
    #[error(
        "invalid file name {name:?}: {why}; expected 1 to 255 of the characters A-Z a-z 0-9 . _ ~ : @ \
         + = , - and no . in front"
    )]
    InvalidName {
        /// The name, at most 64 characters of it.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A symbolic link, a directory or a device has the name of a guarded file; nothing was written.
    #[error("{name} is not a regular file: move it out of the guarded directory")]
    NotAFile {
        /// The name.
        name: String,
    },
    /// A file is larger than a guarded one may be; nothing was written.
    #[error("{name} has {offered} bytes, at most {max}")]
    TooLarge {
        /// The name.
        name: String,
        /// The bytes of the content.
        offered: u64,
        /// [`FILE_MAX`](super::FILE_MAX).
        max: u64,
    },
    /// A write changes more files than one may; nothing was written.
    #[error("{offered} files in one write, at most {max}: split the write")]
    TooMany {
        /// How many there are.
        offered: usize,
        /// [`CHANGES_MAX`](super::CHANGES_MAX).
        max: usize,
    },
    /// The directory is on a network file system, where neither locks nor renames hold what this guard
    /// needs; nothing was written.
    #[error(
        "{} is on a network file system ({kind}): its locks end without their holder learning of it; use a \
         directory of a local disk, or a guard in a database", directory.display()
    )]
    NetworkFileSystem {
        /// The directory.
        directory: PathBuf,
        /// Its kind.
        kind: &'static str,
    },
    /// Another process held the lock for all of the time that a call waits; nothing was written. A process
    /// that ended holds no lock, so it is stopped or slow.
    #[error("the lock of {} was not free within {waited:?}: a process that holds it is stopped or slow", directory.display())]
    Busy {
        /// The directory.
        directory: PathBuf,
        /// How long the call waited.
        waited: Duration,
    },
    /// The file system failed before the write was made: no such directory, no access, no space. Nothing
    /// was written.
    #[error("cannot {what}, and nothing was written")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The file system failed when the write may have been made. The next call of any guard of this
    /// directory finishes it if it was. Look at the data before repeating what is not harmless twice.
    #[error("cannot {what}: whether the write was made is not known")]
    Unknown {
        /// What was being done.
        what: &'static str,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}

impl FilesError {
    /// The guard's refusal, if it is one.
    #[must_use]
    pub const fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            _ => None,
        }
    }

    pub(super) fn unreadable(directory: PathBuf, name: &LeaseName, why: Unreadable) -> Self {
        match why {
            Unreadable::Damaged(why) => Self::DamagedMark { directory, why },
            Unreadable::OtherVersion(found) => Self::OtherVersion { directory, found },
            Unreadable::OtherLease(found) => Self::OtherLease {
                directory,
                expected: name.clone(),
                found,
            },
        }
    }

    /// The same failure when the write may have been made.
    pub(super) fn into_unknown(self) -> Self {
        match self {
            Self::Io { what, source } => Self::Unknown { what, source },
            other => other,
        }
    }
}

/// So that a client ends belief in a lease whose fence the store rejects as stale.
impl EndsBelief for FilesError {
    fn refused(&self) -> Option<&Refused> {
        Self::refused(self)
    }
}
