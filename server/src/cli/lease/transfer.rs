//! `ringfence lease transfer NAME TOKEN`.

use std::process::ExitCode;
use std::time::Duration;

use ringfence_core::{FencingToken, LeaseName, SessionId};
use serde_json::json;

use crate::cli::context::{ActingSession, Context};
use crate::cli::{Failure, parse};

/// Hand a lease to a session that waits for it, in one step, with a new token
#[derive(clap::Args, Debug)]
#[command(after_help = r#"Examples:
  export RINGFENCE_SESSION="$HANDLE"   # other accounts can read arguments, and not this
  ringfence lease transfer reports/daily 42
  ringfence lease transfer reports/daily 42 --to 17"#)]
pub(crate) struct Transfer {
    /// The lease's name
    #[arg(value_parser = parse::name)]
    name: LeaseName,
    /// The token of the grant to hand over
    #[arg(value_parser = parse::token)]
    token: FencingToken,
    /// The number of the waiting session [default: the head of the queue]
    #[arg(long, value_name = "NUMBER", value_parser = parse::session)]
    to: Option<SessionId>,
    #[command(flatten)]
    session: ActingSession,
}

impl Transfer {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let session = context
            .client
            .attach(self.session.handle, Duration::MAX)
            .await?;
        let transferred = session.transfer(&self.name, self.token, self.to).await;
        session.detach();
        let transferred = transferred?;
        let object = json!({
            "name": self.name.as_str(),
            "token": transferred.token.get(),
            "session_number": transferred.to.get(),
        });
        let text = format!(
            "{} is handed to session {}; its token is {}",
            self.name, transferred.to, transferred.token
        );
        context.output.result(&object, text)?;
        Ok(ExitCode::SUCCESS)
    }
}
