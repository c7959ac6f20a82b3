//! `ringfence session get NUMBER`.

use std::process::ExitCode;

use ringfence_core::SessionId;
use ringfence_proto::v1::sessions_client::SessionsClient;
use ringfence_proto::v1::{GetSessionRequest, GetSessionResponse, Session};
use serde_json::Value;

use crate::cli::context::{Context, Freshness};
use crate::cli::{Failure, duration, exit, parse, view};

/// Show a session and the leases it holds
#[derive(clap::Args, Debug)]
pub(crate) struct Get {
    /// The session's number, or its handle
    #[arg(value_parser = parse::session)]
    session: SessionId,
    #[command(flatten)]
    freshness: Freshness,
}

impl Get {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let number = self.session;
        let request = GetSessionRequest {
            session: number.get(),
            read: self.freshness.to_wire(),
        };
        let ask = move |channel| async move { SessionsClient::new(channel).get(request).await };
        let answer: GetSessionResponse = context.client.unary(ask).await?;
        let Some(session) = answer.session else {
            let message = format!("session {number} has ended, or never was");
            return Err(Failure::new(exit::NEGATIVE, "SESSION_EXPIRED", message)
                .hint("`session list` shows those that live"));
        };
        context
            .output
            .result(&Value::Object(view::session(&session)), text(&session))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn text(session: &Session) -> String {
    let mut lines = format!(
        "session {} of {}, {} left of {}, holds {}, waits for {}",
        session.session,
        session.identity,
        duration::show(session.remaining_ms),
        duration::show(session.ttl_ms),
        session.leases.len(),
        session.waits,
    );
    for held in &session.leases {
        lines.push_str(&format!("\n  {}#{}", held.name, held.token));
    }
    lines
}
