//! How large an entry may be: checked once, where it is proposed, against what the log of every
//! member can hold.
//!
//! An entry is replicated before this node's own log writes it, so a log that refuses one is too
//! late: the entry would end each node that tries. The limit is therefore the same on all nodes,
//! and no node starts with segments that are too small for it.

use prost::Message;
use ringfence_wal::MAX_SEGMENT_BYTES;

use crate::types::codec;
use crate::types::reply::ProposeError;
use crate::types::type_config::{Membership, Peer};

/// The longest entry, in bytes of its payload: a command with its times, or a list of members.
pub const ENTRY_BYTES_MAX: u64 = 32 * 1024;
/// The smallest segment of a node's log, in bytes: every segment from here on holds an entry of
/// [`ENTRY_BYTES_MAX`].
pub const WAL_SEGMENT_BYTES_MIN: u64 = 64 * 1024;
/// The largest segment of a node's log, in bytes.
pub const WAL_SEGMENT_BYTES_MAX: u64 = MAX_SEGMENT_BYTES;

/// Why a command may not be proposed.
#[derive(Debug)]
pub(crate) enum NotAdmitted {
    /// It may be later.
    ForNow(String),
    /// It may never be.
    ForGood(String),
}

impl From<NotAdmitted> for ProposeError {
    fn from(why: NotAdmitted) -> Self {
        match why {
            NotAdmitted::ForNow(why) => Self::not_done(why),
            NotAdmitted::ForGood(why) => Self::NotDone {
                why,
                leader: None,
                retry_after: None,
            },
        }
    }
}

/// Lets an entry of this many bytes pass, or says why it may not be proposed.
pub(crate) fn check(bytes: usize) -> Result<(), String> {
    if bytes as u64 <= ENTRY_BYTES_MAX {
        return Ok(());
    }
    Err(format!(
        "invalid entry: got {bytes} bytes, expected at most {ENTRY_BYTES_MAX}; split the request"
    ))
}

/// Lets a member pass if a list of the present members, of it, and of one that replaces any of
/// them fits in an entry; else says why it may not join.
pub(crate) fn check_members(present: &Membership, peer: &Peer) -> Result<(), String> {
    let own = codec::peer_to_pb(u64::MAX, peer).encoded_len();
    let bytes = codec::membership_to_pb(present).encoded_len() + 2 * own;
    if bytes as u64 * 2 <= ENTRY_BYTES_MAX {
        return Ok(());
    }
    let most = ENTRY_BYTES_MAX / 2;
    Err(format!(
        "invalid member: got {own} bytes of name and addresses, {bytes} with the present members, \
         expected at most {most} in all; use shorter names and addresses, or remove members"
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use ringfence_wal::sim::SimFs;
    use ringfence_wal::{Fs, FsFile, FsLock, Options, Wal};

    use super::*;

    /// Files on a device with blocks of this many bytes.
    struct Blocks(SimFs, u64);

    impl Fs for Blocks {
        fn block_bytes(&self, _dir: &Path) -> u64 {
            self.1
        }

        fn create(&self, path: &Path) -> std::io::Result<Arc<dyn FsFile>> {
            self.0.create(path)
        }

        fn open(&self, path: &Path) -> std::io::Result<Arc<dyn FsFile>> {
            self.0.open(path)
        }

        fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
            self.0.rename(from, to)
        }

        fn remove(&self, path: &Path) -> std::io::Result<()> {
            self.0.remove(path)
        }

        fn list(&self, dir: &Path) -> std::io::Result<Vec<String>> {
            self.0.list(dir)
        }

        fn sync_dir(&self, dir: &Path) -> std::io::Result<()> {
            self.0.sync_dir(dir)
        }

        fn make_dir(&self, dir: &Path) -> std::io::Result<()> {
            self.0.make_dir(dir)
        }

        fn remove_dir(&self, dir: &Path) -> std::io::Result<()> {
            self.0.remove_dir(dir)
        }

        fn has_dir(&self, dir: &Path) -> bool {
            self.0.has_dir(dir)
        }

        fn lock(&self, path: &Path) -> std::io::Result<FsLock> {
            self.0.lock(path)
        }
    }

    #[test]
    fn every_segment_size_holds_the_largest_entry() {
        let dir = Path::new("/wal");
        for block in [512, 4096, 65536] {
            for segment_bytes in [
                WAL_SEGMENT_BYTES_MIN,
                WAL_SEGMENT_BYTES_MIN + 512,
                1 << 20,
                (1 << 20) - 512,
            ] {
                let files = Blocks(SimFs::with_dir(dir), block);
                let options = Options {
                    segment_bytes,
                    ..Options::new("sizes")
                };
                let (wal, _) = Wal::open_in(Arc::new(files), dir, options).unwrap();
                assert!(
                    wal.entry_limit() >= ENTRY_BYTES_MAX,
                    "{segment_bytes}, {block}"
                );
            }
        }
    }
}
