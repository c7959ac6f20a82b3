//! What a node is to restore: its flags, read and verified before it starts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringfence_core::{AccessRecord, BackupDigest, BackupHeader};
use ringfence_raft::{Backup, BackupError, IdentityError, belongs_to};
use tokio::time::timeout;
use tracing::{info, warn};

use crate::bucket::{self, Place, ReadError};
use crate::config::{Config, Restore};
use crate::rule_file;

/// How long a node that belongs to a cluster waits for a backup that it does not need.
const MEMBER_PATIENCE: Duration = Duration::from_secs(5);

/// What of it cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestoreError {
    /// The backup.
    #[error("--restore: {}", with_causes(.0))]
    Backup(ReadError),
    /// It has not come in time.
    #[error("--restore: the backup is not there after {MEMBER_PATIENCE:?}")]
    Late,
    /// The rules.
    #[error("--rules: {0}")]
    Rules(String),
    /// Whether the node belongs to a cluster already cannot be found out.
    #[error(transparent)]
    Identity(IdentityError),
}

/// An error and what caused it.
fn with_causes(error: &ReadError) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// What the node is to restore, if anything. A node that belongs to a cluster restores none, so the
/// file may be gone then.
///
/// # Errors
/// [`RestoreError`] if this node has to form a cluster from what cannot be used.
pub(crate) async fn restore(
    config: &Config,
) -> Result<Option<ringfence_raft::Restore>, RestoreError> {
    let Some(flags) = &config.restore else {
        return Ok(None);
    };
    let seated = belongs_to(&config.data_dir).map_err(RestoreError::Identity)?;
    // A member needs none of it, so it does not wait for a store.
    let read = match seated {
        None => read(flags).await,
        Some(_) => timeout(MEMBER_PATIENCE, read(flags))
            .await
            .unwrap_or(Err(RestoreError::Late)),
    };
    match (read, seated) {
        (Ok(restore), _) => {
            if seated.is_none() {
                announce(&flags.place, &restore);
            }
            Ok(Some(restore))
        }
        (Err(error), Some(cluster)) => {
            warn!(%error, %cluster, "--restore is ignored: this node belongs to a cluster; remove it");
            Ok(None)
        }
        (Err(error), None) => Err(error),
    }
}

async fn read(flags: &Restore) -> Result<ringfence_raft::Restore, RestoreError> {
    let read = match &flags.place {
        Place::Path(file) => read_file(file, flags.digest).map_err(ReadError::Backup),
        Place::Bucket(url) => {
            info!(%url, "reading the backup of --restore");
            bucket::read(url, Some(flags.digest)).await
        }
    };
    let backup = read.map_err(RestoreError::Backup)?;
    let rules = flags.rules.as_deref().map(|file| rules(file, &backup));
    Ok(ringfence_raft::Restore {
        rules: rules.transpose()?,
        mode: flags.mode,
        backup: Arc::new(backup),
        drill: flags.drill,
    })
}

fn read_file(file: &Path, digest: BackupDigest) -> Result<Backup, BackupError> {
    Backup::read(file)?.expect(file, digest)
}

/// The mode, limits and bans of the backup, with the rules of a file.
fn rules(file: &Path, backup: &Backup) -> Result<Vec<AccessRecord>, RestoreError> {
    let rules = rule_file::read(file).map_err(RestoreError::Rules)?;
    let rules = rules.into_iter().map(AccessRecord::Rule);
    let kept = backup.contents.access.iter();
    let kept = kept.filter(|part| !matches!(part, AccessRecord::Rule(_)));
    // The mode stays in front.
    let (modes, bans): (Vec<_>, Vec<_>) = kept
        .cloned()
        .partition(|part| matches!(part, AccessRecord::Mode { .. }));
    Ok(modes.into_iter().chain(rules).chain(bans).collect())
}

/// How old everything is that the new cluster begins with: rights and settings that were changed
/// since the backup are as they were before.
fn announce(place: &Place, restore: &ringfence_raft::Restore) {
    let contents = &restore.backup.contents;
    let BackupHeader {
        cluster,
        index,
        wall,
        ..
    } = &contents.header;
    let now = ringfence_services::since_epoch().as_millis();
    let age = u64::try_from(now)
        .unwrap_or(u64::MAX)
        .saturating_sub(wall.0);
    let rules = contents.access.iter();
    let rules = rules
        .filter(|part| matches!(part, AccessRecord::Rule(_)))
        .count();
    info!(
        file = %place,
        digest = %restore.backup.digest,
        %cluster,
        index,
        age = crate::duration::show(age),
        rules,
        mode = %restore.mode(),
        drill = restore.drill,
        "restoring: rules and settings are as old as the backup, and no cluster token is valid; \
         look at them while quiet time runs"
    );
}
