//! `ringfence backup FILE`, or a URL.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ringfence_client::unstable;
use ringfence_core::BackupDigest;
use ringfence_proto::refusal::Refusal;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::{BackupRequest, BackupResponse};
use ringfence_proto::wire;
use ringfence_raft::BackupOutput;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic::Status;

use super::{no_place, of_bucket};
use crate::backups::BackupName;
use crate::bucket::{BucketUrl, Place, Upload};
use crate::cli::context::Context;
use crate::cli::{Failure, Global, exit};

/// The file that stands for standard output.
const STDOUT: &str = "-";
/// How long the next part may take: a node that freezes a large state looks at all of it first.
const PART_TIME_MAX: Duration = Duration::from_secs(60);
/// How often a long backup says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

#[derive(clap::Args, Debug)]
pub(super) struct Take {
    /// Where the backup goes: a file or a URL of an object that does not exist yet, a URL with / at its
    /// end, or - for standard output
    #[arg(value_name = "FILE|URL", required = true)]
    file: Option<PathBuf>,
    /// Replace what is there
    #[arg(long)]
    force: bool,
}

/// Where the bytes go.
enum Target {
    Stdout,
    File(Box<BackupOutput>),
    Object(Box<Upload>),
    /// An object whose name is known when the first part has come. The same name is the same state, so one
    /// that is there may be replaced.
    Behind(BucketUrl),
}

/// A backup that has come to its end.
struct Taken {
    cluster: String,
    index: u64,
    unix_ms: u64,
    bytes: u64,
    digest: BackupDigest,
}

impl Take {
    pub(super) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        let Some(file) = self.file else {
            return Err(Failure::usage(
                "missing FILE: expected a path, a URL of an object, or - for standard output",
            ));
        };
        let place = match file.as_os_str() == STDOUT {
            true => None,
            false => Some(Place::of(&file).map_err(|why| no_place(&why))?),
        };
        let context = &Context::connect(global).await?;
        let mut target = match place {
            None => Target::Stdout,
            Some(Place::Path(file)) => Target::File(Box::new(create(&file, self.force)?)),
            Some(Place::Bucket(url)) if url.is_prefix() => Target::Behind(url),
            Some(Place::Bucket(url)) => Target::begin(url, self.force).await?,
        };
        let taken = match receive(context, &mut target).await {
            Ok(taken) => taken,
            Err(failure) => {
                target.give_up().await;
                return Err(failure);
            }
        };
        let text = format!("{}", taken.digest);
        let about = format!(
            "-- backup of cluster {} at index {}: {} bytes",
            taken.cluster, taken.index, taken.bytes
        );
        match target {
            Target::Stdout => {
                // Results go to standard output, which has the bytes.
                context.output.remark(format!("{about}, digest {text}"));
            }
            Target::File(output) => {
                let written = output.finish().map_err(|cause| unwritten(&file, &cause))?;
                if written != taken.digest {
                    return Err(torn("the file has another digest than the node has sent"));
                }
                context.output.remark(about);
                context.output.result(&taken.object(&file), text)?;
            }
            Target::Object(upload) => {
                let url = PathBuf::from(upload.url().to_string());
                let finished = upload.finish(taken.digest).await;
                finished.map_err(|why| of_bucket(&why))?;
                context
                    .output
                    .remark(format!("{about}, in {}", url.display()));
                context.output.result(&taken.object(&url), text)?;
            }
            // It has come to its end, so it has begun.
            Target::Behind(_) => return Err(torn("no part of the backup came")),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Taken {
    fn object(&self, file: &Path) -> Value {
        json!({
            "file": file.display().to_string(),
            "digest": self.digest.to_string(),
            "cluster": self.cluster,
            "index": self.index,
            "at_unix_ms": self.unix_ms,
            "bytes": self.bytes,
        })
    }
}

/// Takes all parts, and checks that the last one came.
async fn receive(context: &Context, target: &mut Target) -> Result<Taken, Failure> {
    let channel = unstable::channel(&context.client).await?;
    let mut client =
        ClusterClient::new(channel).max_decoding_message_size(unstable::MESSAGE_BYTES_MAX);
    let begun = timeout(PART_TIME_MAX, client.backup(BackupRequest {})).await;
    let begun = begun.map_err(|_| silent())?.map_err(refused)?;
    let mut parts = begun.into_inner();
    let mut progress = interval(PROGRESS_EVERY);
    progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
    progress.reset();
    let mut first: Option<BackupResponse> = None;
    let mut bytes = 0;
    loop {
        let part = tokio::select! {
            part = timeout(PART_TIME_MAX, parts.message()) => part,
            _ = progress.tick() => {
                context.output.remark(format!("-- {} MiB so far", bytes >> 20));
                continue;
            }
        };
        let Some(part) = part.map_err(|_| silent())?.map_err(refused)? else {
            return Err(torn("the stream ended before its last part"));
        };
        bytes += part.data.len() as u64;
        if first.is_none() {
            target.begun(&part).await?;
        }
        target.write(&part.data).await?;
        let about = first.get_or_insert_with(|| part.clone());
        if let Ok(digest) = <[u8; 32]>::try_from(&part.digest[..]) {
            let cluster = wire::cluster_id_from_wire(&about.cluster_id).ok().flatten();
            return Ok(Taken {
                cluster: crate::acts::text_of(cluster),
                index: about.index,
                unix_ms: about.unix_ms,
                bytes,
                digest: BackupDigest::new(digest),
            });
        }
    }
}

impl Target {
    async fn begin(url: BucketUrl, replace: bool) -> Result<Self, Failure> {
        let upload = Upload::begin(url, replace).await;
        Ok(Self::Object(Box::new(
            upload.map_err(|why| of_bucket(&why))?,
        )))
    }

    /// The first part has come, which says what the backup is of.
    async fn begun(&mut self, first: &BackupResponse) -> Result<(), Failure> {
        let Self::Behind(url) = self else {
            return Ok(());
        };
        let cluster = wire::cluster_id_from_wire(&first.cluster_id).ok().flatten();
        let name = BackupName {
            cluster: cluster.ok_or_else(|| torn("the node does not say whose backup it is"))?,
            wall_ms: first.unix_ms,
            index: first.index,
        };
        *self = Self::begin(url.join(&name.to_string()), true).await?;
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = match self {
            Self::Stdout => io::stdout().lock().write_all(bytes),
            Self::File(output) => output.write_all(bytes),
            Self::Object(upload) => {
                let written = upload.write(bytes).await;
                return written.map_err(|why| of_bucket(&why));
            }
            Self::Behind(_) => Ok(()),
        };
        written.map_err(|cause| {
            Failure::new(
                exit::SYSTEM,
                "FAULT",
                format!("cannot write the backup: {cause}"),
            )
        })
    }

    /// Leaves nothing of it; a file goes when it is dropped.
    async fn give_up(self) {
        if let Self::Object(upload) = self {
            upload.abort().await;
        }
    }
}

fn create(file: &Path, force: bool) -> Result<BackupOutput, Failure> {
    BackupOutput::create(file, force).map_err(|cause| unwritten(file, &cause))
}

fn unwritten(file: &Path, cause: &io::Error) -> Failure {
    let failure = |message| Failure::new(exit::SYSTEM, "FAULT", message);
    match cause.kind() {
        io::ErrorKind::AlreadyExists => failure(format!("{} exists already", file.display()))
            .hint("name another file, or replace this one with --force"),
        _ => failure(format!("cannot write {}: {cause}", file.display()))
            .hint("name a file in a directory that exists and that you may write"),
    }
}

fn silent() -> Failure {
    let message = format!("no part of the backup came within {PART_TIME_MAX:?}");
    Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", message).hint("try again, or name another node")
}

fn torn(why: &str) -> Failure {
    let message = format!("{why}; nothing was kept");
    Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", message).hint("take the backup again")
}

fn refused(status: Status) -> Failure {
    match Refusal::from_status(&status) {
        Some(refusal) => refusal.into(),
        None => torn(status.message()),
    }
}
