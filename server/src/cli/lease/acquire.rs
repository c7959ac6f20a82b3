//! `ringfence lease acquire NAME`.

use std::process::ExitCode;
use std::time::Duration;

use ringfence_client::{HeldLease, LeaseName, Session};
use serde_json::json;

use crate::cli::context::{Context, NewSession, OwnSession};
use crate::cli::{Failure, duration, parse, signals};

/// Acquire a lease, print its token and session handle, and leave
///
/// The lease lives until its TTL has passed, unless somebody keeps its session alive (`session
/// keep-alive`) or releases it. To hold a lease while a program runs, use `ringfence lock`.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence lease acquire reports/daily --ttl 1m
  ringfence lease acquire reports/daily --wait 30s --json   # token and session for a script")]
pub(crate) struct Acquire {
    /// The lease's name: segments of letters, digits and ._~:@- joined by slashes
    #[arg(value_parser = parse::name)]
    name: LeaseName,
    /// Stand in the queue for at most this long; without it, one try
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// Text that is published with the grant, an address for example; up to 1 KiB
    #[arg(long, value_name = "TEXT")]
    data: Option<String>,
    /// Grant the lease to nobody for this long if this grant ends by expiry or revoke; up to 60s
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    lock_delay: Option<Duration>,
    #[command(flatten)]
    session: OwnSession,
    #[command(flatten)]
    new: NewSession,
}

impl Acquire {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let session = match self.session.given() {
            Some(handle) => context.client.attach(handle, Duration::MAX).await?,
            None => context.client.open_session(self.new.options()).await?,
        };
        let opened = self.session.given().is_none();
        let lease = match self.send(&session).await {
            Ok(lease) => lease,
            Err(failure) if opened => {
                // Of no use to anybody: nobody was told its handle.
                session.close().await.ok();
                return Err(failure);
            }
            Err(failure) => {
                // Others keep it alive: what is not taken back now would be granted to nobody.
                let Err(error) = session.settle(&self.name).await else {
                    return Err(failure);
                };
                let message = format!(
                    "{}; session {} may wait for {} still, or be granted it: {error}",
                    failure.message,
                    session.id(),
                    self.name,
                );
                let hint = format!("look with `ringfence session get {}`", session.id());
                return Err(Failure { message, ..failure }.hint(hint));
            }
        };

        let ttl_ms = duration::millis(session.ttl());
        let name = self.name;
        // From here on the grant belongs to whoever reads the next line.
        let token = lease.forget();
        let handle = session.leave();
        let object = json!({
            "name": name.as_str(),
            "token": token.get(),
            "session": handle.to_string(),
            "session_number": handle.session.get(),
            "ttl_ms": ttl_ms,
        });
        let text = format!(
            "{name} is acquired: token {token}, for {} unless its session is kept alive\n\
             session {handle}",
            duration::show(ttl_ms),
        );
        context.output.result(&object, text)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Acquires within `session`; interrupted by a signal, it gives up its place in the queue.
    async fn send(&self, session: &Session) -> Result<HeldLease, Failure> {
        let mut acquire = session.acquire(self.name.as_str());
        if let Some(wait) = self.wait {
            acquire = acquire.wait(wait);
        }
        if let Some(data) = &self.data {
            acquire = acquire.data(data.clone().into_bytes());
        }
        if let Some(delay) = self.lock_delay {
            acquire = acquire.lock_delay(delay);
        }
        tokio::select! {
            lease = acquire.send() => Ok(lease?),
            signal = signals::stop() => Err(signals::interrupted(signal)),
        }
    }
}
