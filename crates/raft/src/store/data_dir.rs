//! What a node's data directory may hold: every file has a rule that names it, so that nothing is
//! left behind unseen.

use std::io;
use std::path::{Path, PathBuf};

use ringfence_wal::{Fs, names_log_file};

use crate::store::snapshot_file;

/// The folder of the log.
pub(crate) const WAL_DIR: &str = "wal";
/// The folder of the snapshots.
pub(crate) const SNAPSHOT_DIR: &str = "snapshots";
/// Keeps other processes out.
pub(crate) const LOCK_FILE: &str = "lock";
/// Files beside the folders.
const FILES: [&str; 2] = ["identity", LOCK_FILE];
/// The history's folder; what is in it is the history's affair.
const HISTORY_DIR: &str = "history";

/// A file that no rule names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unexpected {
    /// Where it is.
    pub path: PathBuf,
    /// Why it should not be there.
    pub why: &'static str,
}

/// Lists the files in a data directory that no rule names: none may be there while no snapshot is
/// being taken or received and no identity is being saved, or after a node has stopped cleanly.
///
/// # Errors
/// The file system's refusal to list a directory that is there.
pub fn unexpected_files(files: &dyn Fs, data_dir: &Path) -> io::Result<Vec<Unexpected>> {
    let mut found = Vec::new();
    let mut report = |path: PathBuf, why| found.push(Unexpected { path, why });
    let list = |dir: &Path| match files.has_dir(dir) {
        true => files.list(dir),
        false => Ok(Vec::new()),
    };
    for name in list(data_dir)? {
        let known = [WAL_DIR, SNAPSHOT_DIR, HISTORY_DIR].contains(&name.as_str())
            || FILES.contains(&name.as_str());
        match name.as_str() {
            "identity.tmp" => report(data_dir.join(name), "an identity that was not finished"),
            _ if known => {}
            _ => report(data_dir.join(name), "no file of a node has this name"),
        }
    }
    let wal = data_dir.join(WAL_DIR);
    for name in list(&wal)? {
        if !names_log_file(&name) {
            report(wal.join(name), "no file of a log has this name");
        }
    }
    let snapshots = data_dir.join(SNAPSHOT_DIR);
    let mut finished = 0;
    for name in list(&snapshots)? {
        if snapshot_file::names_partial(&name) {
            report(snapshots.join(name), "a snapshot that was not finished");
        } else if !snapshot_file::names_snapshot(&name) {
            report(snapshots.join(name), "no snapshot has this name");
        } else {
            finished += 1;
            if finished > 1 {
                report(snapshots.join(name), "one snapshot is enough");
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use ringfence_wal::sim::SimFs;

    use super::*;

    #[test]
    fn a_file_that_no_rule_names_is_reported() {
        let data = Path::new("/data");
        let fs = SimFs::with_dir(data);
        assert_eq!(unexpected_files(&fs, data).unwrap(), []);
        let snapshot = "00000000000000000009-00000000000000000002.snapshot";
        let newer = "00000000000000000010-00000000000000000002.snapshot";
        for dir in ["wal", "snapshots", "history"] {
            fs.make_dir(&data.join(dir)).unwrap();
        }
        let make = |name: &str| drop(fs.create(&data.join(name)).unwrap());
        for named in ["identity", "lock", "wal/lock", "wal/free-3", "history/conf"] {
            make(named);
        }
        make("wal/0000000000000001.wal");
        make(&format!("snapshots/{snapshot}"));
        assert_eq!(unexpected_files(&fs, data).unwrap(), []);
        for (extra, why) in [
            ("notes", "no file of a node has this name"),
            ("identity.tmp", "an identity that was not finished"),
            ("wal/0001.wal", "no file of a log has this name"),
            ("wal/new-4", "no file of a log has this name"),
            (
                "snapshots/building.partial",
                "a snapshot that was not finished",
            ),
            (
                "snapshots/incoming-0a.partial",
                "a snapshot that was not finished",
            ),
            ("snapshots/notes", "no snapshot has this name"),
            (&format!("snapshots/{newer}"), "one snapshot is enough"),
        ] {
            make(extra);
            let found = unexpected_files(&fs, data).unwrap();
            let path = data.join(extra);
            assert_eq!(
                found,
                [Unexpected {
                    path: path.clone(),
                    why
                }]
            );
            fs.remove(&path).unwrap();
        }
    }
}
