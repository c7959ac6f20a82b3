//! `ringfence session keep-alive`.

use std::process::ExitCode;
use std::time::Duration;

use ringfence_client::{Loss, Session, SessionHandle, SessionState};
use serde_json::json;

use crate::cli::context::{Context, why_silent};
use crate::cli::stderr::aside;
use crate::cli::{Failure, duration, output, signals};

/// Keep a session alive until it ends, or until Ctrl-C
///
/// After Ctrl-C the session lives for its TTL. If it ends on its own the exit code is 1. It is kept
/// alive also if no program reads the output.
#[derive(clap::Args, Debug)]
#[command(after_help = r#"Examples:
  export RINGFENCE_SESSION="$HANDLE"   # other accounts can read arguments, and not this
  ringfence session keep-alive &
  ringfence session keep-alive --once"#)]
pub(crate) struct KeepAlive {
    /// The session's handle; give it in the environment where other accounts use the machine
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
        let end = async {
            match self.lasting {
                Some(lasting) => tokio::time::sleep(lasting).await,
                None => std::future::pending().await,
            }
        };
        let done = tokio::select! {
            biased;
            done = follow(context, &session, self.once) => done,
            () = end => Ok(ExitCode::SUCCESS),
            _ = signals::stop() => Ok(ExitCode::SUCCESS),
        };
        session.detach();
        done
    }
}

/// Tells of each change until the session is over, or `once`. A session is kept alive also if no
/// program reads of it: a reader that has gone away ends nothing, and one that does not read holds
/// up nothing, but hears less.
async fn follow(context: &Context, session: &Session, once: bool) -> Result<ExitCode, Failure> {
    let mut states = session.state();
    let (mut told, mut warned) = (None, false);
    loop {
        let kind = match states.borrow_and_update().clone() {
            SessionState::Lost { why } => {
                let mut lost = Failure::lost("the session is over", &why);
                lost.message.push_str(&why_silent(&context.client, &why));
                return Err(lost);
            }
            SessionState::Jeopardy { .. } => "JEOPARDY",
            SessionState::Live => "LIVE",
        };
        let changed = tokio::select! {
            biased;
            () = output::writable(), if told != Some(kind) => {
                told = Some(kind);
                let written = report(context, session, kind);
                if once {
                    return written;
                }
                if let Err(failure) = written && !warned {
                    warned = true;
                    aside(format!(
                        "warning: {}; the session is kept alive",
                        failure.message
                    ));
                }
                Ok(())
            }
            changed = states.changed() => changed,
        };
        if changed.is_err() {
            return Err(Failure::lost("the session is over", &Loss::Closed));
        }
    }
}

fn report(context: &Context, session: &Session, kind: &str) -> Result<ExitCode, Failure> {
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
    context.output.verdict(&object, text, ExitCode::SUCCESS)
}
