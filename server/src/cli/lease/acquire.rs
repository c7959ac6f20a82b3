//! `ringfence lease acquire NAME`.

use std::process::ExitCode;
use std::time::Duration;

use ringfence_client::{HeldLease, LeaseName, Session};
use serde_json::json;

use crate::cli::context::{Context, NewSession, OwnSession};
use crate::cli::{Failure, duration, parse, waiting};

/// Acquire a lease, print its token and session handle, and leave
///
/// The lease lives until its TTL has passed, unless a client keeps its session alive (`session
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
    /// Keep the lease blocked for this long if this grant ends by expiry or revoke; up to 60s
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
            None => context.open_for(&self.name, self.new.options()).await?,
        };
        let opened = self.session.given().is_none();
        let lease = match self.send(context, &session).await {
            Ok(lease) => lease,
            Err(failure) if opened => {
                // Of no use: no caller received its handle.
                session.close().await.ok();
                return Err(failure);
            }
            Err(failure) => {
                // Others keep it alive: what is not taken back now would be granted to no client.
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

        // Later ones are owed to keep-alives, which end when this process does.
        let window = context.client.sleep_until(lease.valid_until());
        let ttl_ms = duration::millis(session.ttl());
        let name = self.name;
        let (token, handle) = (lease.token(), session.handle());
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
        if let Err(failure) = context.output.receipt(&object, text, window).await {
            // No caller received it: it would be held for no client until its session ends.
            return Err(match taken_back(lease, session, opened).await {
                Ok(()) => failure.hint("the lease was given back"),
                Err(why) => failure.hint(format!("{name} may be held still: {}", why.message)),
            });
        }
        // From here on the grant belongs to the reader of the line.
        lease.forget();
        session.detach();
        Ok(ExitCode::SUCCESS)
    }

    /// Acquires within `session`; interrupted by a signal, it gives up its place in the queue.
    async fn send(&self, context: &Context, session: &Session) -> Result<HeldLease, Failure> {
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
        waiting::acquire(context, &self.name, acquire).await
    }
}

/// Gives a grant back that no caller received, with its session if that was opened for it.
async fn taken_back(lease: HeldLease, session: Session, opened: bool) -> Result<(), Failure> {
    let released = lease.release().await;
    if opened {
        session.close().await?;
        return Ok(());
    }
    session.detach();
    Ok(released?)
}
