//! `ringfence access whoami`.

use std::process::ExitCode;

use serde_json::json;

use super::change::{mode_text, whoami};
use crate::cli::Failure;
use crate::cli::context::Context;

/// Show who the cluster takes this command for
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence access whoami --token-file /run/secrets/ringfence")]
pub(crate) struct Whoami {}

impl Whoami {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let me = whoami(context).await?;
        let mode = mode_text(me.mode());
        let object = json!({ "principal": me.principal, "mode": mode, "node": me.node_id });
        let text = format!("{}, as node {} says; mode {mode}", me.principal, me.node_id);
        context.output.result(&object, text)?;
        Ok(ExitCode::SUCCESS)
    }
}
