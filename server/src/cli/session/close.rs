//! `ringfence session close`.

use std::process::ExitCode;

use ringfence_client::{SessionHandle, unstable};
use ringfence_proto::v1::sessions_client::SessionsClient;
use ringfence_proto::v1::{CloseRequest, CloseResponse};
use ringfence_proto::wire::session_handle_to_wire;
use serde_json::json;

use crate::cli::Failure;
use crate::cli::context::Context;

/// Close a session; its leases end with it
#[derive(clap::Args, Debug)]
#[command(after_help = r#"Example:
  export RINGFENCE_SESSION="$HANDLE"   # other accounts can read arguments, and not this
  ringfence session close"#)]
pub(crate) struct Close {
    /// The session's handle; give it in the environment where other accounts use the machine
    #[arg(env = "RINGFENCE_SESSION", hide_env_values = true)]
    handle: SessionHandle,
}

impl Close {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let handle = self.handle;
        context.is_meant(handle.cluster)?;
        let request = CloseRequest {
            session: Some(session_handle_to_wire(handle.session, &handle.secret)),
        };
        let ask = move |channel| {
            let request = request.clone();
            async move { SessionsClient::new(channel).close(request).await }
        };
        let answer: CloseResponse = unstable::unary(&context.client, ask).await?;
        let cause = answer.cause.map(|cause| cause.kind().as_str_name());
        let number = handle.session;
        let object = json!({
            "session": handle.to_string(),
            "session_number": number.get(),
            "cause": cause,
        });
        let text = match cause {
            Some("EXPIRED") => format!("session {number} had expired"),
            Some("EVICTED") => format!("session {number} had been evicted"),
            None => format!("session {number} is not known: it ended long ago, or never was"),
            Some(_) => format!("session {number} is closed"),
        };
        context.output.result(&object, text)?;
        Ok(ExitCode::SUCCESS)
    }
}
