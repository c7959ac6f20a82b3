//! `ringfence session evict NUMBER`.

use std::process::ExitCode;

use ringfence_client::unstable;
use ringfence_core::SessionId;
use ringfence_proto::v1::sessions_client::SessionsClient;
use ringfence_proto::v1::{EvictRequest, EvictResponse};
use serde_json::json;

use crate::cli::context::{Context, whoami};
use crate::cli::{Failure, exit, parse};

/// End a session as an operator, with a reason; its leases are free after its TTL, in which its client
/// may still believe that it holds them
#[derive(clap::Args, Debug)]
#[command(after_help = r#"Example:
  ringfence session evict 17 --reason "its host is gone""#)]
pub(crate) struct Evict {
    /// The session's number
    #[arg(value_parser = parse::session)]
    session: SessionId,
    /// Why, for the history
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Who does it, for the history, user@host unless said
    #[arg(long, value_name = "TEXT")]
    operator: Option<String>,
}

impl Evict {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let number = self.session;
        // To evict one that has ended is no error to the cluster, but maybe a slip of the pen here. Who
        // may not look at sessions may evict all the same.
        let lived = match super::get::find(context, number, None).await {
            Ok(_) => true,
            Err(denied) if denied.exit == exit::DENIED => false,
            Err(failure) => return Err(failure),
        };
        let request = EvictRequest {
            session: number.get(),
            reason: self.reason,
            operator: self.operator.unwrap_or_else(whoami),
        };
        let ask = move |channel| {
            let request = request.clone();
            async move { SessionsClient::new(channel).evict(request).await }
        };
        let _: EvictResponse = unstable::unary(&context.client, ask).await?;
        let cause = lived.then_some("EVICTED");
        let object = json!({ "session_number": number.get(), "cause": cause });
        let text = match lived {
            true => format!("session {number} is evicted"),
            false => format!("session {number} is evicted, unless it had ended before"),
        };
        context.output.result(&object, text)?;
        Ok(ExitCode::SUCCESS)
    }
}
