//! Backups that a node takes on its own, and the backup that a cluster is restored from.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_core::{BackupDigest, Millis, Mode, QUIET_TIME_MAX};

use super::ConfigError;
use super::duration;
use super::given::Given;
use super::range::in_range;
use crate::bucket::{Place, UrlError};
use crate::unshown::is_content;

/// How often a node may take a backup, in milliseconds: a minute to a week.
const EVERY_MS: std::ops::RangeInclusive<u64> = 60_000..=7 * 24 * 3_600_000;
/// How many backups a directory may keep.
const KEPT: std::ops::RangeInclusive<u64> = 1..=100_000;
/// How many it keeps if that is not said: two days, by the hour.
const KEPT_STANDARD: u64 = 48;

/// Backups that a node takes on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backups {
    /// Where they are kept.
    pub(crate) place: Place,
    /// The time between two.
    pub(crate) every: Duration,
    /// How many a directory keeps; a bucket has rules of its own.
    pub(crate) keep: usize,
}

/// What a cluster is restored from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Restore {
    /// The backup.
    pub(crate) place: Place,
    /// The digest that it must have.
    pub(crate) digest: BackupDigest,
    /// Rules instead of those in the backup.
    pub(crate) rules: Option<PathBuf>,
    /// How much rights bind, instead of as in the backup.
    pub(crate) mode: Option<Mode>,
    /// Whether no store will ever be in front of it.
    pub(crate) drill: bool,
}

/// The backups that a node is to take.
pub(super) fn backups(given: &Given) -> Result<Option<Backups>, ConfigError> {
    let Some(dir) = given.backup_dir.clone() else {
        let alone = [
            ("backup-every", given.backup_every.clone()),
            (
                "backup-keep",
                given.backup_keep.map(|keep| keep.to_string()),
            ),
        ];
        return none_without("--backup-dir, which says where they are kept", alone);
    };
    let place = Place::of(&dir).map_err(|why| no_bucket("backup-dir", &dir, &why))?;
    if let (Place::Bucket(_), Some(keep)) = (&place, given.backup_keep) {
        let allowed = "only with a directory: what a bucket keeps, and for how long, is for its \
                       lifecycle rules to say";
        return Err(ConfigError::value("backup-keep", keep.to_string(), allowed));
    }
    let every = given.backup_every.as_deref().unwrap_or("1h");
    let every = in_range(
        "backup-every",
        duration::millis("backup-every", every)?,
        EVERY_MS,
    )?;
    let keep = given.backup_keep.unwrap_or(KEPT_STANDARD);
    let keep = in_range("backup-keep", keep, KEPT)?;
    Ok(Some(Backups {
        place,
        every: Duration::from_millis(every),
        keep: usize::try_from(keep).unwrap_or(usize::MAX),
    }))
}

/// What the cluster is to be restored from.
pub(super) fn restore(given: &Given, mode: Mode) -> Result<Option<Restore>, ConfigError> {
    let Some(file) = given.restore.clone() else {
        let alone = [
            ("digest", given.digest.clone()),
            (
                "rules",
                given
                    .rules
                    .as_ref()
                    .map(|rules| rules.display().to_string()),
            ),
            (
                "drill",
                given
                    .drill
                    .filter(|drill| *drill)
                    .map(|_| "true".to_owned()),
            ),
        ];
        return none_without("--restore FILE, which they belong to", alone);
    };
    if is_content(&file.to_string_lossy()) {
        let offered = file.display().to_string();
        return Err(ConfigError::value(
            "restore",
            offered,
            "the path of a backup, or its URL",
        ));
    }
    let place = Place::of_one(&file).map_err(|why| no_bucket("restore", &file, &why))?;
    let shown = place.to_string();
    let Some(digest) = &given.digest else {
        let allowed = "with --digest: the digest that `ringfence backup` printed, kept in another \
                       place than the file, which cannot prove itself";
        return Err(ConfigError::value("restore", shown, allowed));
    };
    let digest: BackupDigest = digest.parse().map_err(|_| {
        let allowed = "the 64 hexadecimal digits that `ringfence backup` printed";
        ConfigError::value("digest", digest, allowed)
    })?;
    if given.initial_cluster.is_empty() && !given.join.is_empty() {
        let allowed =
            "without --join: a cluster is restored by its first members, all of them empty";
        return Err(ConfigError::value("restore", shown, allowed));
    }
    // The settings of the backup are those of the restored cluster.
    let unused = [
        ("ttl-min", given.ttl_min.as_ref()),
        ("ttl-max", given.ttl_max.as_ref()),
    ];
    for (flag, offered) in unused {
        if let Some(offered) = offered {
            let allowed = "without --restore: a restored cluster has the settings of the backup; \
                           leave this out, and use `ringfence cluster configure` once it serves";
            return Err(ConfigError::value(flag, offered, allowed));
        }
    }
    let mode = given.access.is_some().then_some(mode);
    Ok(Some(Restore {
        place,
        digest,
        rules: given.rules.clone(),
        mode,
        drill: given.drill.unwrap_or(false),
    }))
}

/// A URL that names no bucket. What is behind its scheme may have a secret in it, and is not shown.
fn no_bucket(flag: &'static str, given: &Path, why: &UrlError) -> ConfigError {
    let given = given.to_string_lossy();
    let scheme = given.split("://").next().unwrap_or_default();
    ConfigError::Unusable {
        flag,
        offered: format!("{scheme}://…"),
        why: why.to_string(),
    }
}

/// For how long a new cluster grants nothing, if that is said.
pub(super) fn quiet_time(given: &Given) -> Result<Option<Millis>, ConfigError> {
    let Some(raw) = given.quiet_time.as_deref() else {
        return Ok(None);
    };
    if given.drill == Some(true) {
        let allowed =
            "without --drill: a drill has no quiet time, since no store admits its tokens";
        return Err(ConfigError::value("quiet-time", raw, allowed));
    }
    let millis = duration::millis("quiet-time", raw)?;
    in_range("quiet-time", millis, 0..=QUIET_TIME_MAX.0).map(|millis| Some(Millis(millis)))
}

/// A drill is for this machine alone: nothing else may take its tokens for those of a cluster.
pub(super) fn check_drill(
    restore: Option<&Restore>,
    ports: &[(&'static str, std::net::SocketAddr)],
) -> Result<(), ConfigError> {
    if !restore.is_some_and(|restore| restore.drill) {
        return Ok(());
    }
    let reachable = |address: &std::net::SocketAddr| !address.ip().to_canonical().is_loopback();
    match ports.iter().find(|(_, address)| reachable(address)) {
        None => Ok(()),
        Some((flag, address)) => {
            let allowed = "an address of loopback, as 127.0.0.1:7420: with --drill the tokens begin \
                           at 1, so no client beyond this machine may get one";
            Err(ConfigError::value(flag, address.to_string(), allowed))
        }
    }
}

/// Refuses the first flag that means nothing without another one.
fn none_without<T, const N: usize>(
    other: &str,
    flags: [(&'static str, Option<String>); N],
) -> Result<Option<T>, ConfigError> {
    for (flag, offered) in flags {
        if let Some(offered) = offered {
            return Err(ConfigError::value(
                flag,
                offered,
                format!("only with {other}"),
            ));
        }
    }
    Ok(None)
}
