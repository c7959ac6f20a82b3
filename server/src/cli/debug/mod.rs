//! `ringfence debug`: what explains a problem to someone who was not there.

mod archive;
mod bundle;
mod redact;

use std::process::ExitCode;

use super::{Failure, Global};

/// Commands that gather what explains a problem.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum DebugCommand {
    Bundle(bundle::Bundle),
}

impl DebugCommand {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        let Self::Bundle(bundle) = self;
        bundle.run(global).await
    }
}
