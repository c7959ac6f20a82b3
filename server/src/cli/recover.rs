//! `ringfence recover`.

use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_core::ClusterId;
use ringfence_raft::{RecoverError, Recovered, recover};
use serde_json::json;

use super::output::Output;
use super::{Failure, Global, exit, parse};
use crate::own_files;

/// Make a backup of what a stopped node of a lost cluster holds, and retire the node for ever
///
/// For a cluster that has lost the majority of its disks for good. Stop every node of it first. Of
/// several survivors recover each, and restore from the backup with the greatest term, and among those
/// the greatest index. What only the lost nodes held is lost; the restored cluster is another one.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence recover --data-dir /var/lib/ringfence --accept-loss CLUSTER_ID n3.backup")]
pub(crate) struct Recover {
    /// The data directory of the stopped node
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// The cluster that is given up, as `cluster status` showed it and the node's log names it
    #[arg(long, value_name = "CLUSTER_ID", value_parser = parse::cluster_id)]
    accept_loss: ClusterId,
    /// Where the backup goes: a file that does not exist yet
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Recover {
    pub(crate) fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        own_files::keep();
        let done = recover(&self.data_dir, self.accept_loss, &self.file);
        let Recovered {
            node,
            cluster,
            term,
            index,
            digest,
        } = done.map_err(|why| failed(&why))?;
        let output = Output::new(global);
        output.remark(format!(
            "-- {node} of cluster {cluster} up to term {term}, index {index}; its directory is retired. \
             Recover the other survivors too, and restore from the one with the greatest term, and \
             among those the greatest index: see \
             deploy/RECOVERY.md#the-majority-is-lost-for-good"
        ));
        let object = json!({
            "file": self.file.display().to_string(),
            "digest": digest.to_string(),
            "node": node,
            "cluster": cluster.to_string(),
            "term": term,
            "index": index,
        });
        output.result(&object, digest.to_string())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn failed(why: &RecoverError) -> Failure {
    let causes = std::iter::successors(std::error::Error::source(why), |cause| cause.source());
    let message = causes.fold(why.to_string(), |text, cause| format!("{text}: {cause}"));
    let code = match why {
        RecoverError::NoMember { .. } | RecoverError::OtherCluster { .. } => exit::USAGE,
        _ => exit::SYSTEM,
    };
    Failure::new(code, "NOT_RECOVERED", message)
}
