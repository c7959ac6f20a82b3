//! `ringfence session get NUMBER`.

use std::process::ExitCode;

use ringfence_client::{CallError, unstable};
use ringfence_core::SessionId;
use ringfence_proto::v1::sessions_client::SessionsClient;
use ringfence_proto::v1::{GetSessionRequest, GetSessionResponse, ReadOptions, Session};
use serde_json::Value;

use crate::cli::context::{Context, Freshness};
use crate::cli::{Failure, duration, exit, parse, view};

/// Show a session and the leases it holds
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence session get 17")]
pub(crate) struct Get {
    /// The session's number, or its handle
    #[arg(value_parser = parse::session)]
    session: SessionId,
    #[command(flatten)]
    freshness: Freshness,
}

impl Get {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let session = find(context, self.session, self.freshness.to_wire()).await?;
        context
            .output
            .result(&Value::Object(view::session(&session)), text(&session))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The living session of this number.
///
/// # Errors
/// If there is none.
pub(super) async fn find(
    context: &Context,
    session: SessionId,
    read: Option<ReadOptions>,
) -> Result<Session, Failure> {
    let session = session.get();
    let request = GetSessionRequest { session, read };
    let ask = move |channel| async move { SessionsClient::new(channel).get(request).await };
    let answer: GetSessionResponse = unstable::unary(&context.client, ask)
        .await
        .map_err(not_found)?;
    Ok(answer.session.unwrap_or_default())
}

fn not_found(error: CallError) -> Failure {
    let failure = Failure::from(error);
    match failure.exit {
        exit::NEGATIVE => failure.hint("`session list` shows those that live"),
        _ => failure,
    }
}

fn text(session: &Session) -> String {
    let lasts = match &session.pod {
        Some(pod) => format!("lasts as long as Pod {}", view::pod(pod)),
        None => format!(
            "{} left of {}",
            duration::show(session.remaining_ms),
            duration::show(session.ttl_ms)
        ),
    };
    let mut lines = format!(
        "session {} of {}, {lasts}, holds {}, waits for {}",
        session.session,
        session.identity,
        session.leases.len(),
        session.waits,
    );
    for held in &session.leases {
        lines.push_str(&format!("\n  {}#{}", held.name, held.token));
    }
    lines
}
