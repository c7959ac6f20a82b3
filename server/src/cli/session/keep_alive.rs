//! `ringfence session keep-alive HANDLE`.

use std::process::ExitCode;
use std::time::Duration;

use ringfence_client::{Session, SessionHandle, SessionState};
use serde_json::json;

use crate::cli::context::Context;
use crate::cli::{Failure, duration, signals};

/// Keep a session alive until it ends, or until Ctrl-C
///
/// After Ctrl-C the session lives for its TTL. If it ends by itself the exit code is 1.
#[derive(clap::Args, Debug)]
#[command(after_help = r#"Examples:
  ringfence session keep-alive "$HANDLE" &
  ringfence session keep-alive "$HANDLE" --once"#)]
pub(crate) struct KeepAlive {
    /// The session's handle
    #[arg(env = "RINGFENCE_SESSION", hide_env_values = true)]
    handle: SessionHandle,
    /// One keep-alive only
    #[arg(long, conflicts_with = "lasting")]
    once: bool,
    /// Stop after this long
    #[arg(long = "for", id = "lasting", value_name = "DURATION", value_parser = duration::parse)]
    lasting: Option<Duration>,
}

impl KeepAlive {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        // Resuming a session is a keep-alive, and so is the first thing that the client does.
        let session = context.client.attach(self.handle, Duration::MAX).await?;
        let lasting = match (self.once, self.lasting) {
            (true, _) => Some(Duration::ZERO),
            (false, lasting) => lasting,
        };
        report(context, &session, "LIVE")?;
        let end = async {
            match lasting {
                Some(lasting) => tokio::time::sleep(lasting).await,
                None => std::future::pending().await,
            }
        };
        let done = tokio::select! {
            failure = follow(context, &session) => Err(failure),
            () = end => Ok(ExitCode::SUCCESS),
            _ = signals::stop() => Ok(ExitCode::SUCCESS),
        };
        session.leave();
        done
    }
}

/// Tells of each change until the session is over.
async fn follow(context: &Context, session: &Session) -> Failure {
    let mut states = session.state();
    let mut in_jeopardy = false;
    loop {
        let state = states.borrow_and_update().clone();
        let told = match state {
            SessionState::Lost { why } => return Failure::lost("the session is over", &why),
            SessionState::Jeopardy { .. } if !in_jeopardy => {
                in_jeopardy = true;
                report(context, session, "JEOPARDY")
            }
            SessionState::Live if in_jeopardy => {
                in_jeopardy = false;
                report(context, session, "LIVE")
            }
            SessionState::Live | SessionState::Jeopardy { .. } => Ok(()),
        };
        if let Err(failure) = told {
            return failure;
        }
        if states.changed().await.is_err() {
            return Failure::lost("the session is over", &ringfence_client::Loss::Closed);
        }
    }
}

fn report(context: &Context, session: &Session, kind: &str) -> Result<(), Failure> {
    let left = duration::millis(session.valid_until().saturating_since(context.client.now()));
    let object = json!({
        "kind": kind,
        "session": session.handle().to_string(),
        "session_number": session.id().get(),
        "ttl_ms": duration::millis(session.ttl()),
        "remaining_ms": left,
    });
    let number = session.id();
    let text = match kind {
        "LIVE" => format!("session {number} is kept alive"),
        _ => format!(
            "session {number} is in jeopardy: no answer for half its window, lost in {}",
            duration::show(left)
        ),
    };
    context.output.result(&object, text)
}
