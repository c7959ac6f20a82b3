//! `ringfence backup`: a backup of the cluster in a file or a bucket, and what is in one.

mod take;
mod verify;

use std::process::ExitCode;

use clap::Subcommand;

use super::{Failure, Global, exit};
use crate::bucket::{BucketError, Means, UrlError};

/// Back the cluster up into a file or a bucket, and look into backups
///
/// A backup has everything that the cluster acknowledged before the command began: settings, rules,
/// the greatest tokens and the names that Pods hold. It has no sessions, no secrets and no cluster
/// tokens. Keep its digest in another place than the file: a restore needs both.
///
/// A URL names an object: s3://BUCKET/KEY, gs://BUCKET/KEY or az://CONTAINER/KEY. Behind one that ends
/// with / the backup gets the name that a node would give it. Credentials come from
/// the variables that the tools of the store take: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION
/// and, for other servers of S3, AWS_ENDPOINT_URL; GOOGLE_APPLICATION_CREDENTIALS; AZURE_STORAGE_ACCOUNT_NAME and
/// AZURE_STORAGE_ACCOUNT_KEY.
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = r"Examples:
  ringfence backup /backups/prod.backup
  ringfence backup s3://backups/prod/
  ringfence backup - | age -r KEY > prod.backup.age
  ringfence backup verify /backups/prod.backup --digest DIGEST"
)]
pub(crate) struct Backup {
    #[command(subcommand)]
    command: Option<BackupCommand>,
    #[command(flatten)]
    take: take::Take,
}

#[derive(Subcommand, Debug)]
enum BackupCommand {
    Verify(verify::Verify),
}

impl Backup {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        match self.command {
            Some(BackupCommand::Verify(command)) => command.run(global).await,
            None => self.take.run(global).await,
        }
    }
}

/// A URL that names no bucket, or no object where one is wanted.
fn no_place(why: &UrlError) -> Failure {
    Failure::usage(why.to_string())
}

/// A bucket's refusal, as that of a file where there is one of the same kind.
fn of_bucket(why: &BucketError) -> Failure {
    let message = why.to_string();
    match why.means() {
        Means::Exists => Failure::new(exit::SYSTEM, "FAULT", message)
            .hint("name another object, or replace this one with --force"),
        Means::NoBucket | Means::NoObject => Failure::new(exit::SYSTEM, "FAULT", message),
        Means::Denied | Means::NoCredentials => {
            Failure::new(exit::DENIED, "PERMISSION_DENIED", message)
        }
        Means::Elsewhere
        | Means::Untrusted
        | Means::Unreachable
        | Means::OtherDigest
        | Means::Settings
        | Means::Failed => Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", message),
    }
}
