//! `ringfence access mode`.

use std::process::ExitCode;

use ringfence_core::Mode;
use ringfence_proto::v1::access_change::Change;
use ringfence_proto::wire;
use serde_json::json;

use super::change::{change, mode_text, read, whoami};
use crate::cli::context::Context;
use crate::cli::{Failure, parse};

/// Show how much rights bind, or set it
///
/// `off`: nothing is proven and nothing refused. `permissive`: callers are proven and judged,
/// refusals are counted, and nothing is refused. `enforced`: what no rule allows is refused.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence access mode
  ringfence access mode permissive   # then look who would be refused
  ringfence access mode enforced")]
pub(crate) struct SetMode {
    /// The new mode: off, permissive or enforced
    #[arg(value_parser = parse::mode)]
    mode: Option<Mode>,
}

impl SetMode {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let Some(mode) = self.mode else {
            let mode = mode_text(whoami(context).await?.mode());
            context.output.result(&json!({ "mode": mode }), mode)?;
            return Ok(ExitCode::SUCCESS);
        };
        let before = read(context).await?;
        let wired = wire::mode_to_wire(mode);
        let changed = before.mode() != wired;
        let mut index = before.access_index;
        if changed {
            let to = Change::SetMode(wired.into());
            index = change(context, &before, vec![to]).await?.access_index;
        }
        let object = json!({ "mode": mode.as_str(), "changed": changed, "index": index });
        let text = match changed {
            true => format!("the mode is {mode}"),
            false => format!("the mode was {mode} already"),
        };
        context.output.result(&object, text)?;
        Ok(ExitCode::SUCCESS)
    }
}
