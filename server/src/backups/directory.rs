//! Backups in a directory of this machine: the newest ones stay.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use ringfence_core::{BackupDigest, ClusterId, Frozen};
use ringfence_raft::{BackupOutput, write_backup};
use tracing::{info, warn};

use super::name::BackupName;

/// How long nothing was written to an unfinished backup that no process writes any more.
pub(super) const ABANDONED_AFTER: Duration = Duration::from_secs(3_600);
/// How many without a digest stay beside those that count. More than kills leave, and no more: an
/// operator may have moved all digests to another place.
pub(super) const UNCOUNTED_MAX: usize = 3;

/// Writes one, and removes the oldest beyond so many.
pub(super) fn write(
    state: &Frozen,
    name: BackupName,
    dir: &Path,
    keep: usize,
) -> io::Result<BackupDigest> {
    make(dir)?;
    // First: they may be what fills the file system.
    remove_abandoned(dir, name.cluster, ABANDONED_AFTER)?;
    let path = dir.join(name.to_string());
    // The same index is the same state, so the file that is there already will do as well.
    let mut output = BackupOutput::create(&path, true)?;
    write_backup(state, &mut output)?;
    let digest = output.finish()?;
    let mut output = BackupOutput::create(&dir.join(name.of_digest()), true)?;
    writeln!(output, "{digest}")?;
    output.finish()?;
    rotate(dir, name, keep)?;
    Ok(digest)
}

/// Makes the directory, if it is not there.
fn make(dir: &Path) -> io::Result<()> {
    if dir.is_dir() || !dir.exists() {
        return std::fs::create_dir_all(dir);
    }
    let why = "it is a file, and --backup-dir names a directory: name another one";
    Err(io::Error::new(io::ErrorKind::NotADirectory, why))
}

/// Removes the backups that are older than the newest so many, each with its digest. One without a digest
/// does not count: the node that wrote it was killed before its end. One with a later name than the backup
/// just taken does not, either, and stays: a wrong clock gave it that name, or the cluster was recovered
/// from an older state. Other files, those of other clusters among them, are never touched. What cannot be
/// removed is logged, and the rest goes.
pub(super) fn rotate(dir: &Path, newest: BackupName, keep: usize) -> io::Result<()> {
    let age = |name: &BackupName| (name.wall_ms, name.index);
    let mut own = own_backups(dir, newest.cluster)?;
    own.retain(|name| age(name) <= age(&newest));
    own.sort_unstable_by_key(|name| std::cmp::Reverse(age(name)));
    let mut counted = 0;
    let beyond = own.iter().enumerate().skip_while(|(place, name)| {
        let stays = counted < keep && *place < keep.saturating_add(UNCOUNTED_MAX);
        counted += usize::from(dir.join(name.of_digest()).is_file());
        stays
    });
    for (_, name) in beyond {
        let path = dir.join(name.to_string());
        // The backup last: while it is there, it is found again.
        match remove(&dir.join(name.of_digest())).and_then(|()| remove(&path)) {
            Ok(()) => {
                info!(file = %path.display(), keep, "an old backup was removed, with its digest");
            }
            Err(error) => {
                warn!(%error, "an old backup stays; remove by hand what cannot be removed");
            }
        }
    }
    Ok(())
}

/// Removes a file, if it is there. The error names it.
fn remove(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io::Error::new(
            error.kind(),
            format!("cannot remove {}: {error}", file.display()),
        )),
        _ => Ok(()),
    }
}

/// Removes unfinished backups of this cluster to which nothing was written for so long: the process
/// that wrote them was killed.
pub(super) fn remove_abandoned(dir: &Path, cluster: ClusterId, after: Duration) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let file = entry.file_name();
        let name = file.to_str().and_then(BackupOutput::partial_of);
        let name = name.and_then(BackupName::parse_either);
        if name.is_none_or(|name| name.cluster != cluster) {
            continue;
        }
        // A file that is gone by now has been finished, and one from the future is not old.
        let Ok(written) = entry.metadata().and_then(|file| file.modified()) else {
            continue;
        };
        if written.elapsed().is_ok_and(|age| age >= after) {
            match remove(&entry.path()) {
                Ok(()) => {
                    info!(file = %entry.path().display(), "an unfinished backup was removed");
                }
                Err(error) => warn!(%error, "an unfinished backup stays; remove it by hand"),
            }
        }
    }
    Ok(())
}

fn own_backups(dir: &Path, cluster: ClusterId) -> io::Result<Vec<BackupName>> {
    let mut own = backups(dir)?;
    own.retain(|name| name.cluster == cluster);
    Ok(own)
}

/// None if the directory is not there yet.
fn backups(dir: &Path) -> io::Result<Vec<BackupName>> {
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        // One that is gone by now is none.
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let name = entry.file_name();
        let name = name.to_str().and_then(BackupName::parse);
        found.extend(name);
    }
    Ok(found)
}

/// The newest backup of a cluster that is none of these.
pub(super) fn newest_of_others(dir: &Path, own: &[ClusterId]) -> io::Result<Option<BackupName>> {
    let mut others = backups(dir)?;
    others.retain(|name| !own.contains(&name.cluster));
    let age = |name: &BackupName| (name.wall_ms, name.index);
    Ok(others.into_iter().max_by_key(age))
}

/// When the newest backup of this cluster was taken, since the Unix epoch, if that is not behind `latest`.
pub(super) fn last_taken(
    dir: &Path,
    cluster: ClusterId,
    latest: Duration,
) -> io::Result<Option<Duration>> {
    let own = own_backups(dir, cluster)?;
    let times = own
        .into_iter()
        .map(|name| Duration::from_millis(name.wall_ms));
    Ok(times.filter(|time| *time <= latest).max())
}
