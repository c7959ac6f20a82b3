//! `ringfence lease revoke NAME TOKEN`.

use std::process::ExitCode;

use ringfence_client::unstable;
use ringfence_core::{FencingToken, LeaseName};
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::{RevokeRequest, RevokeResponse};
use serde_json::json;

use crate::cli::context::{Context, whoami};
use crate::cli::{Failure, parse};

/// End a grant as an operator; the reason is recorded
///
/// The next grant waits until the old holder knows, or one TTL of it has passed.
#[derive(clap::Args, Debug)]
#[command(after_help = r#"Example:
  ringfence lease revoke reports/daily 42 --reason "its host is gone""#)]
pub(crate) struct Revoke {
    /// The lease's name
    #[arg(value_parser = parse::name)]
    name: LeaseName,
    /// The token of the grant to end; no other one is ended
    #[arg(value_parser = parse::token)]
    token: FencingToken,
    /// Why, for the history
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Do not wait until the old holder knows: two may believe they hold the lease for a while
    #[arg(long)]
    now: bool,
    /// Who does it, for the history, user@host unless said
    #[arg(long, value_name = "TEXT")]
    operator: Option<String>,
}

impl Revoke {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let request = RevokeRequest {
            name: self.name.to_string(),
            token: self.token.get(),
            now: self.now,
            reason: self.reason,
            operator: self.operator.unwrap_or_else(whoami),
        };
        let ask = move |channel| {
            let request = request.clone();
            async move { LeasesClient::new(channel).revoke(request).await }
        };
        let _: RevokeResponse = unstable::unary(&context.client, ask).await?;
        let object =
            json!({ "name": self.name.as_str(), "token": self.token.get(), "cause": "REVOKED" });
        context
            .output
            .result(&object, format!("{}#{} is revoked", self.name, self.token))?;
        Ok(ExitCode::SUCCESS)
    }
}
