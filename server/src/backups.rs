//! `serve --backup-dir`: backups that a node takes on its own.
//!
//! ```text
//!   name ────── which file or object is a backup of which cluster, from when
//!   figures ─── the time of the last one, and how many failed
//!   directory ─ files of this machine, of which the oldest go
//!   object ──── objects of a bucket, which has rules of its own for old ones
//!   this file ─ one after the other
//! ```

mod directory;
mod figures;
mod name;
mod object;

use std::io;
use std::time::Duration;

use ringfence_core::{BackupDigest, ClusterId};
use ringfence_raft::Node;
use ringfence_services::since_epoch;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::bucket::Place;
use crate::config::Backups;
use crate::duration;

pub(crate) use self::figures::BackupFigures;
pub(crate) use self::name::BackupName;

/// How long after a failure the next attempt is made. After each further one it is twice as long.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// At most so long, and at most the time between two backups: what is over again is heard of before the
/// alarm that the backups are too old.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);
/// How far the clock of the node that took a backup may be ahead of this one's.
const AHEAD_MAX: Duration = Duration::from_secs(600);
/// How often it is looked whether the node belongs to a cluster.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Takes backups until the node stops. The newest one in the place counts as the last, so a node that
/// starts often does not take one at each start.
pub(crate) async fn take(
    node: Node,
    config: Backups,
    figures: BackupFigures,
    mut stopping: watch::Receiver<bool>,
) {
    let mut wait = LOOK_EVERY;
    let (mut begun, mut looked) = (false, false);
    let mut failures = 0;
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
            looked = look_for_others(&node, &config, cluster).await;
        }
        if !begun {
            begun = true;
            let last = last_taken(&config, cluster).await.unwrap_or_else(|error| {
                warn!(%error, "it is not known when the last backup was taken; one is taken now");
                None
            });
            figures.begun_with(last.map(|last| last.min(since_epoch())));
            let age = since_epoch().saturating_sub(last.unwrap_or_default());
            if age < config.every {
                wait = config.every - age;
                continue;
            }
        }
        wait = match one(&node, &config).await {
            Ok((path, digest)) => {
                failures = 0;
                figures.succeeded(since_epoch());
                info!(path, %digest, "backup taken, and its digest written to PATH.digest; keep the digest elsewhere, too");
                config.every
            }
            Err(error) => {
                figures.failed();
                let again = pause(failures, config.every);
                failures += 1;
                let (dir, again_in) = (&config.place, duration::show(duration::millis(again)));
                let next = next_step(&error);
                warn!(%error, %dir, again_in, "no backup was taken; it is tried again{next}");
                again
            }
        };
    }
}

/// Warns of backups of other clusters in the place: nodes of a cluster whose disks are lost form another one,
/// which is empty, if they are just started again. Says whether it could be looked; if not, it is looked
/// again before the next backup.
async fn look_for_others(node: &Node, config: &Backups, cluster: ClusterId) -> bool {
    let mut own = node.read(|machine| machine.lineage().to_vec());
    own.push(cluster);
    let place = &config.place;
    let other = match place {
        Place::Path(dir) => directory::newest_of_others(dir, &own),
        Place::Bucket(url) => {
            let other = object::one_of_others(url, &own).await;
            other.map_err(io::Error::other)
        }
    };
    match other {
        Ok(None) => true,
        Ok(Some(other)) => {
            warn!(
                %cluster, %place, backup = %other,
                "backups of another cluster lie where this one's are written; if this cluster was formed \
                 in the place of that one, see deploy/RECOVERY.md#it-was-formed-without-the-backup"
            );
            true
        }
        Err(error) => {
            warn!(%error, %place, "it is not known whether backups of other clusters lie there; it is looked again before the next backup");
            false
        }
    }
}

/// How long to wait after a failure that had so many right before it.
fn pause(failures: u32, every: Duration) -> Duration {
    let doubled = 2_u32.checked_pow(failures).unwrap_or(u32::MAX);
    let doubled = RETRY_AFTER.saturating_mul(doubled);
    doubled.min(RETRY_AFTER_MAX).min(every)
}

fn next_step(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; the account of this node has to be able to write there, and its service to be allowed to: \
             see deploy/RECOVERY.md#be-prepared"
        }
        _ => "",
    }
}

/// Takes one backup, and says where it is.
async fn one(node: &Node, config: &Backups) -> io::Result<(String, BackupDigest)> {
    let state = node.backup().await;
    let state = state.map_err(|error| io::Error::other(error.to_string()))?;
    let name = BackupName {
        cluster: state
            .cluster()
            .ok_or_else(|| io::Error::other("the node belongs to no cluster"))?,
        wall_ms: state.wall().0,
        index: state.index(),
    };
    match config.place.clone() {
        Place::Path(dir) => {
            let (path, keep) = (dir.join(name.to_string()), config.keep);
            let writing = move || directory::write(&state, name, &dir, keep);
            let written = tokio::task::spawn_blocking(writing).await;
            let digest = written.map_err(io::Error::other)??;
            Ok((path.display().to_string(), digest))
        }
        Place::Bucket(url) => {
            let digest = object::write(state, name, &url).await?;
            Ok((url.join(&name.to_string()).to_string(), digest))
        }
    }
}

/// When the newest backup of this cluster was taken, since the Unix epoch. A name from the future is none of
/// this cluster's: it would keep the alarm silent for ever.
async fn last_taken(config: &Backups, cluster: ClusterId) -> io::Result<Option<Duration>> {
    let now = since_epoch();
    match &config.place {
        Place::Path(dir) => directory::last_taken(dir, cluster, now + AHEAD_MAX),
        Place::Bucket(url) => {
            // One that is older counts as none: both are overdue.
            let times = now.saturating_sub(config.every * 2)..=now + AHEAD_MAX;
            let found = object::last_taken(url, cluster, times).await;
            found.map_err(io::Error::other)
        }
    }
}

#[cfg(test)]
mod tests;
