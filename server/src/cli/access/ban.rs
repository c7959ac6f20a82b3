//! `ringfence access ban` and `ringfence access unban`.

use std::process::ExitCode;

use ringfence_core::Principal;
use ringfence_proto::v1::access_change::Change;
use serde_json::json;

use super::change::{change, principal, read, remind_of_mode};
use crate::cli::Failure;
use crate::cli::context::Context;

/// Refuse a principal everything, keep-alives too: its sessions end with their TTL
///
/// A session that is bound to a Pod has no TTL, and lasts until its Pod ends; `session evict` ends it
/// now.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence access ban token:worker-7")]
pub(crate) struct Ban {
    /// Whom
    #[arg(value_parser = principal)]
    principal: Principal,
}

/// Take a ban back
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence access unban token:worker-7")]
pub(crate) struct Unban {
    /// Whom
    #[arg(value_parser = principal)]
    principal: Principal,
}

impl Ban {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        set(context, &self.principal, true).await
    }
}

impl Unban {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        set(context, &self.principal, false).await
    }
}

async fn set(context: &Context, principal: &Principal, banned: bool) -> Result<ExitCode, Failure> {
    let before = read(context).await?;
    let stands = before.bans.iter().any(|ban| ban == principal.as_str());
    let changed = stands != banned;
    let mut index = before.access_index;
    if changed {
        let of = principal.as_str().to_owned();
        let to = match banned {
            true => Change::Ban(of),
            false => Change::Unban(of),
        };
        index = change(context, &before, vec![to]).await?.access_index;
        remind_of_mode(context, before.mode());
    }
    let object = json!({
        "principal": principal.as_str(),
        "banned": banned,
        "changed": changed,
        "index": index,
    });
    let said = match (banned, changed) {
        (true, true) => "is banned",
        (true, false) => "was banned already",
        (false, true) => "is banned no more",
        (false, false) => "was not banned",
    };
    context
        .output
        .result(&object, format!("{principal} {said}"))?;
    Ok(ExitCode::SUCCESS)
}
