//! `serve --backup-dir`: backups that a node takes on its own.
//!
//! ```text
//!   name ───── which file is a backup of which cluster, from when
//!   figures ── the time of the last one, and how many failed
//!   this file ─ one after the other, and the oldest ones go
//! ```

mod figures;
mod name;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_core::{BackupDigest, ClusterId, Frozen};
use ringfence_raft::{BackupOutput, Node, write_backup};
use ringfence_services::since_epoch;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::config::Backups;

pub(crate) use self::figures::BackupFigures;
use self::name::BackupName;

/// How long after a failure the next attempt is made; sooner if backups are taken more often.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// How long nothing was written to an unfinished backup that no process writes any more.
const ABANDONED_AFTER: Duration = Duration::from_secs(3_600);
/// How often it is looked whether the node belongs to a cluster.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Takes backups until the node stops. The newest one in the directory counts as the last, so a node
/// that starts often does not take one at each start.
pub(crate) async fn take(
    node: Node,
    config: Backups,
    figures: BackupFigures,
    mut stopping: watch::Receiver<bool>,
) {
    let mut wait = LOOK_EVERY;
    let mut looked = false;
    loop {
        let stopped = stopping.wait_for(|stopping| *stopping);
        if tokio::time::timeout(wait, stopped).await.is_ok() {
            return;
        }
        let Some(cluster) = node.read(|machine| machine.cluster().filter(|_| machine.is_formed()))
        else {
            continue;
        };
        if !looked {
            looked = true;
            let last = last_taken(&config.dir, cluster);
            figures.begun_with(last);
            let age = since_epoch().saturating_sub(last.unwrap_or_default());
            if age < config.every {
                wait = config.every - age;
                continue;
            }
        }
        wait = match one(&node, &config).await {
            Ok((path, digest)) => {
                figures.succeeded(since_epoch());
                info!(path = %path.display(), %digest, "backup taken; keep the digest elsewhere");
                config.every
            }
            Err(error) => {
                figures.failed();
                let dir = config.dir.display();
                warn!(%error, %dir, "no backup was taken; it is tried again in a minute");
                RETRY_AFTER.min(config.every)
            }
        };
    }
}

/// Takes one backup, and removes the oldest ones.
async fn one(node: &Node, config: &Backups) -> io::Result<(PathBuf, BackupDigest)> {
    let state = node.backup().await;
    let state = state.map_err(|error| io::Error::other(error.to_string()))?;
    let config = config.clone();
    let written = tokio::task::spawn_blocking(move || write(&state, &config));
    written.await.map_err(io::Error::other)?
}

fn write(state: &Frozen, config: &Backups) -> io::Result<(PathBuf, BackupDigest)> {
    let cluster = state
        .cluster()
        .ok_or_else(|| io::Error::other("the node belongs to no cluster"))?;
    std::fs::create_dir_all(&config.dir)?;
    let name = BackupName {
        cluster,
        wall_ms: state.wall().0,
        index: state.index(),
    };
    // First: they may be what fills the file system.
    remove_abandoned(&config.dir, cluster, ABANDONED_AFTER)?;
    let path = config.dir.join(name.to_string());
    // The same index is the same state, so the file that is there already will do as well.
    let mut output = BackupOutput::create(&path, true)?;
    write_backup(state, &mut output)?;
    let digest = output.finish()?;
    rotate(&config.dir, cluster, config.keep)?;
    Ok((path, digest))
}

/// Removes the oldest backups of this cluster beyond so many. Other files, those of other clusters
/// among them, are never touched.
fn rotate(dir: &Path, cluster: ClusterId, keep: usize) -> io::Result<()> {
    let mut own = own_backups(dir, cluster)?;
    own.sort_unstable_by_key(|name| (name.wall_ms, name.index));
    let beyond = own.len().saturating_sub(keep);
    for name in &own[..beyond] {
        match std::fs::remove_file(dir.join(name.to_string())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Removes unfinished backups of this cluster to which nothing was written for so long: the process
/// that wrote them was killed.
fn remove_abandoned(dir: &Path, cluster: ClusterId, after: Duration) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let file = entry.file_name();
        let name = file.to_str().and_then(BackupOutput::partial_of);
        let name = name.and_then(BackupName::parse);
        if name.is_none_or(|name| name.cluster != cluster) {
            continue;
        }
        // A file that is gone by now has been finished, and one from the future is not old.
        let Ok(written) = entry.metadata().and_then(|file| file.modified()) else {
            continue;
        };
        if written.elapsed().is_ok_and(|age| age >= after) {
            std::fs::remove_file(entry.path())?;
            info!(file = %entry.path().display(), "an unfinished backup was removed");
        }
    }
    Ok(())
}

fn own_backups(dir: &Path, cluster: ClusterId) -> io::Result<Vec<BackupName>> {
    let mut own = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let name = name.to_str().and_then(BackupName::parse);
        own.extend(name.filter(|name| name.cluster == cluster));
    }
    Ok(own)
}

/// When the newest backup of this cluster was taken, since the Unix epoch.
fn last_taken(dir: &Path, cluster: ClusterId) -> Option<Duration> {
    let own = own_backups(dir, cluster).ok()?;
    let newest = own.into_iter().map(|name| name.wall_ms).max()?;
    Some(Duration::from_millis(newest))
}

#[cfg(test)]
mod tests;
