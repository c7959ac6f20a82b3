//! `ringfence backup verify FILE`, or a URL.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringfence_core::{AccessRecord, BackupDigest};
use ringfence_raft::{Backup, BackupError};
use ringfence_services::since_epoch;
use serde_json::{Value, json};

use super::{no_place, of_bucket};
use crate::bucket::{self, Place, ReadError};
use crate::cli::output::Output;
use crate::cli::{Failure, Global, counted, duration, exit};

/// Read a backup to its end, check it, and show what a cluster restored from it would have
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence backup verify /backups/prod.backup --digest DIGEST
  ringfence backup verify s3://backups/prod/today.backup --digest DIGEST
  ringfence backup verify /backups/prod.backup --json | jq .age_ms")]
pub(super) struct Verify {
    /// The backup: a file, or a URL of an object
    #[arg(value_name = "FILE|URL")]
    file: PathBuf,
    /// The digest that was kept; another file is refused
    #[arg(long, value_name = "DIGEST")]
    digest: Option<BackupDigest>,
}

impl Verify {
    pub(super) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        let backup = match Place::of_one(&self.file).map_err(|why| no_place(&why))? {
            Place::Path(file) => read(&file, self.digest).map_err(|why| bad(&why))?,
            Place::Bucket(url) => {
                let read = bucket::read(&url, self.digest).await;
                read.map_err(|why| match why {
                    ReadError::Bucket(why) => of_bucket(&why),
                    ReadError::Backup(why) => bad(&why),
                })?
            }
        };
        let now = u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX);
        let age = now.saturating_sub(backup.contents.header.wall.0);
        Output::new(global).result(&object(&backup, age), text(&backup, age))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn read(file: &Path, digest: Option<BackupDigest>) -> Result<Backup, BackupError> {
    let backup = Backup::read(file)?;
    match digest {
        Some(digest) => backup.expect(file, digest),
        None => Ok(backup),
    }
}

/// A file that is no backup, or not the right one, is a negative answer; one that cannot be read is
/// this machine's.
fn bad(why: &BackupError) -> Failure {
    match why {
        BackupError::Io { source, .. } => {
            Failure::new(exit::SYSTEM, "FAULT", format!("{why}: {source}")).hint(
                "name a backup that this user may read: a file that `ringfence backup FILE` or \
                 `serve --backup-dir` has written",
            )
        }
        BackupError::OtherDigest { .. } => {
            Failure::new(exit::NEGATIVE, "OTHER_DIGEST", why.to_string())
        }
        BackupError::Damaged { .. } | BackupError::Newer { .. } => {
            Failure::new(exit::NEGATIVE, "BAD_BACKUP", why.to_string())
        }
    }
}

/// How many rules and bans there are, and the mode.
fn rights(backup: &Backup) -> (usize, usize, &'static str) {
    let (mut rules, mut bans, mut in_force) = (0, 0, "off");
    for part in &backup.contents.access {
        match part {
            AccessRecord::Mode { mode, .. } => in_force = mode.as_str(),
            AccessRecord::Rule(_) => rules += 1,
            AccessRecord::Ban(_) => bans += 1,
            AccessRecord::Token { .. } => {}
        }
    }
    (rules, bans, in_force)
}

fn object(backup: &Backup, age: u64) -> Value {
    let contents = &backup.contents;
    let header = &contents.header;
    let (rules, bans, mode) = rights(backup);
    let held = contents.pods.iter().map(|held| {
        json!({
            "name": held.name.as_str(),
            "token": held.token.get(),
            "pod": held.pod.to_string(),
        })
    });
    let lineage = header.lineage.iter().map(ToString::to_string);
    json!({
        "digest": backup.digest.to_string(),
        "bytes": backup.bytes,
        "cluster": header.cluster.to_string(),
        "lineage": lineage.collect::<Vec<_>>(),
        "index": header.index,
        "term": header.term,
        "at_unix_ms": header.wall.0,
        "age_ms": age,
        "level": header.level,
        "last_token": header.tokens.granted(),
        "token_floor": header.token_floor,
        "floors": contents.floors,
        "ttl_max_ms": header.settings.ttl_max.0,
        "ttl_greatest_ms": header.ttl_greatest.0,
        "access": mode,
        "rules": rules,
        "bans": bans,
        "held_by_pods": held.collect::<Vec<_>>(),
    })
}

fn text(backup: &Backup, age: u64) -> String {
    let contents = &backup.contents;
    let header = &contents.header;
    let (rules, bans, mode) = rights(backup);
    let mut lines = vec![
        format!("digest       {}", backup.digest),
        format!("bytes        {}", backup.bytes),
        format!("cluster      {}", header.cluster),
    ];
    lines.extend(
        header
            .lineage
            .iter()
            .map(|before| format!("  before it  {before}")),
    );
    lines.extend([
        format!("index        {} (term {})", header.index, header.term),
        format!("age          {}", duration::show(age)),
        format!("last token   {}", header.tokens.granted()),
        format!("names        {} with a floor", contents.floors),
        format!(
            "ttl          at most {}, of living sessions {}",
            duration::show(header.settings.ttl_max.0),
            duration::show(header.ttl_greatest.0)
        ),
        format!(
            "access       {mode}, {}, {}, no cluster tokens",
            counted(rules as u64, "rule"),
            counted(bans as u64, "ban")
        ),
    ]);
    if let Some(floor) = header.token_floor {
        lines.push(format!("token floor  {floor}; a restored cluster has none"));
    }
    lines.push(format!("held by Pods {}", contents.pods.len()));
    let held = contents.pods.iter();
    lines.extend(held.map(|held| format!("  {}#{} by {}", held.name, held.token, held.pod)));
    lines.join("\n")
}
