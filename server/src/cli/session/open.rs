//! `ringfence session open`.

use std::process::ExitCode;

use serde_json::json;

use crate::cli::context::{Context, NewSession};
use crate::cli::{Failure, duration};

/// Open a session, print its handle, and leave
///
/// It lives until its TTL has passed, unless a client keeps it alive.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence session open --ttl 1m --identity worker-1")]
pub(crate) struct Open {
    #[command(flatten)]
    new: NewSession,
}

impl Open {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let options = self.new.options();
        let holder = options.identity.clone();
        let session = context.client.open_session(options).await?;
        let window = context.client.sleep_until(session.valid_until());
        let ttl_ms = duration::millis(session.ttl());
        let handle = session.handle();
        let object = json!({
            "session": handle.to_string(),
            "session_number": handle.session.get(),
            "holder": holder,
            "ttl_ms": ttl_ms,
        });
        let text = format!(
            "session {} is open for {} unless kept alive\nsession {handle}",
            handle.session,
            duration::show(ttl_ms)
        );
        if let Err(failure) = context.output.receipt(&object, text, window).await {
            // No client knows its handle.
            return Err(match session.close().await {
                Ok(()) => failure.hint("the session was closed"),
                Err(why) => failure.hint(format!("it may be open until its TTL has passed: {why}")),
            });
        }
        session.detach();
        Ok(ExitCode::SUCCESS)
    }
}
