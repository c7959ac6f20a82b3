//! `ringfence lease release NAME TOKEN`.

use std::process::ExitCode;
use std::time::Duration;

use ringfence_core::{FencingToken, LeaseName};
use serde_json::json;

use crate::cli::context::{ActingSession, Context};
use crate::cli::{Failure, parse};

/// Give a lease back, for the session in RINGFENCE_SESSION or --session
#[derive(clap::Args, Debug)]
#[command(after_help = r#"Example:
  export RINGFENCE_SESSION="$HANDLE"   # other accounts can read arguments, and not this
  ringfence lease release reports/daily 42"#)]
pub(crate) struct Release {
    /// The lease's name
    #[arg(value_parser = parse::name)]
    name: LeaseName,
    /// The token of the grant; no other one is ended
    #[arg(value_parser = parse::token)]
    token: FencingToken,
    #[command(flatten)]
    session: ActingSession,
    /// Close the session, too; everything else that it holds ends with it
    #[arg(long)]
    close: bool,
}

impl Release {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let session = context
            .client
            .attach(self.session.handle, Duration::MAX)
            .await?;
        let released = session.release(&self.name, self.token).await;
        if self.close && released.is_ok() {
            session.close().await?;
        } else {
            session.detach();
        }
        released?;
        let object =
            json!({ "name": self.name.as_str(), "token": self.token.get(), "cause": "RELEASED" });
        context
            .output
            .result(&object, format!("{}#{} is released", self.name, self.token))?;
        Ok(ExitCode::SUCCESS)
    }
}
