//! `ringfence access limits`.

use std::process::ExitCode;

use ringfence_proto::v1::PrincipalLimits;
use ringfence_proto::v1::access_change::Change;
use serde_json::json;

use super::change::{change, read};
use crate::cli::Failure;
use crate::cli::context::Context;

/// Show how much one principal may have at a time in the mode `enforced`, or change it
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence access limits
  ringfence access limits --sessions 1000")]
pub(crate) struct Limits {
    /// The most sessions of a principal
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    sessions: Option<u64>,
    /// The most leases and waits of a principal's sessions together, with the idle names that it used
    /// last; those make room for new ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    leases: Option<u64>,
}

impl Limits {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let read = read(context).await?;
        let before = read.limits.unwrap_or_default();
        let after = PrincipalLimits {
            sessions: self.sessions.unwrap_or(before.sessions),
            leases: self.leases.unwrap_or(before.leases),
        };
        let mut index = read.access_index;
        if after != before {
            let changed = change(context, &read, vec![Change::SetLimits(after)]).await?;
            index = changed.access_index;
        }
        let (sessions, leases) = (after.sessions, after.leases);
        let object = json!({ "sessions": sessions, "leases": leases, "index": index });
        let text = format!("sessions of a principal: {sessions}\nits leases and waits: {leases}");
        context.output.result(&object, text)?;
        Ok(ExitCode::SUCCESS)
    }
}
