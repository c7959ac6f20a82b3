//! What a node writes belongs to its own user: sessions' secrets and names are in its log, its
//! snapshots and its history.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::Mode;
use rustix::process::umask;
use tracing::warn;

/// The permissions that no file of a node gives: those of the group and of others.
const OTHERS: u32 = 0o077;

/// Lets no file that this process makes be read by other users. It counts for the whole process, so it
/// comes before there are threads.
pub(crate) fn keep() {
    umask(Mode::from_raw_mode(OTHERS));
}

/// Warns of a data directory that is there and that other users may enter: what an older release made
/// in it, or an operator, may be open to them.
pub(crate) fn warn_of_others(data_dir: &Path) {
    let Ok(metadata) = fs::metadata(data_dir) else {
        return;
    };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & OTHERS != 0 {
        warn!(
            "other users may enter --data-dir {dir} (mode {mode:04o}), and the node's files hold \
             secrets of sessions: chmod -R go= {dir}",
            dir = data_dir.display()
        );
    }
}
