//! `ringfence lock NAME -- CMD`: a program that runs only while its lease is held.

mod group;
mod supervise;
mod terminal;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use ringfence_client::{HeldLease, LeaseName, Loss, Session};

use super::context::{Context, NewSession};
use super::{Failure, Global, duration, exit, parse, waiting};
use supervise::{Finished, Running};

const EXAMPLE: &str = r#"Example:
  ringfence lock reports/daily --wait 30s -- sh -c 'echo "token $RINGFENCE_TOKEN"; sleep 5'"#;

/// Run CMD while holding a lease
///
/// CMD finds its fencing token in RINGFENCE_TOKEN, the lease's name in RINGFENCE_LEASE and the
/// session's handle in RINGFENCE_SESSION. It shows token and name to the stores it writes to:
/// only their guards can stop a program that was itself paused. CMD has a process group of its
/// own, which has the terminal; SIGINT, SIGTERM and SIGHUP are forwarded to that group. Ctrl-Z
/// stops the whole job, and no process keeps its session alive: continued after its TTL, it is
/// ended. What CMD has left behind in its group when it ends gets SIGTERM, and SIGKILL up to 5 s
/// later, before the lease is given back.
///
/// If the lease is lost, the group gets SIGTERM and then SIGKILL, before the window ends in which
/// the lease is certainly held. A watchdog, a process of its own, kills the group at the window's
/// end if `lock` is stopped, and at once if `lock` is killed. What CMD starts in another process
/// group, or as a daemon, is outside of all this: only a guard in the store stops it.
#[derive(clap::Args, Debug)]
#[command(after_help = format!("{EXAMPLE}\n\n{}", super::EXIT_CODES_HELP))]
pub(crate) struct Lock {
    /// The lease's name: segments of letters, digits and ._~:@- joined by slashes
    #[arg(value_parser = parse::name)]
    name: LeaseName,
    /// Stand in the queue for at most this long; without it, one try
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// Keep the lease blocked for this long if it is lost while CMD runs; up to 60s
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    lock_delay: Option<Duration>,
    #[command(flatten)]
    new: NewSession,
    /// The program to run, and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Lock {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        let context = Context::connect(global).await?;
        let session = context.open_for(&self.name, self.new.options()).await?;
        let lease = match self.acquire(&context, &session).await {
            Ok(lease) => lease,
            Err(failure) => {
                session.close().await.ok();
                return Err(failure);
            }
        };
        let mut environment = vec![
            ("RINGFENCE_TOKEN", lease.token().to_string()),
            ("RINGFENCE_LEASE", lease.name().to_string()),
            ("RINGFENCE_SESSION", session.handle().to_string()),
            ("RINGFENCE_ENDPOINTS", global.endpoints().join(",")),
        ];
        environment.extend(global.tls.environment());
        // CMD ends some time after a loss. Until then the cluster does not hear that the loss of a
        // revoked grant is known, or it would grant the lease beside CMD.
        let working = lease.working();
        // Before that line the cluster may have heard that it is.
        let started = match lease.loss() {
            None => Running::start(&self.command, environment),
            Some(why) => Err(lost_early(&lease, &why)),
        };
        let finished = match started {
            Ok(running) => Ok(running.watch(&context.client, &lease, session.ttl()).await),
            Err(failure) => Err(failure),
        };
        drop(working);
        // CMD has ended: belief ends, and the next in the queue need not wait for the TTL.
        let given_back = give_back(lease, session).await;
        match finished? {
            Finished::Lost(failure) => Err(failure),
            Finished::Code(code) => {
                if let Err(failure) = given_back {
                    context.output.remark(format!(
                        "CMD is done, but the lease could not be released: {}; it ends with its TTL",
                        failure.message
                    ));
                }
                Ok(ExitCode::from(code))
            }
        }
    }

    /// Acquires the lease; interrupted by a signal, it gives up its place in the queue.
    async fn acquire(&self, context: &Context, session: &Session) -> Result<HeldLease, Failure> {
        // CMD gets the session's handle, and may end the lease with it.
        let mut acquire = session.acquire(self.name.as_str()).watched();
        if let Some(wait) = self.wait {
            acquire = acquire.wait(wait);
        }
        if let Some(delay) = self.lock_delay {
            acquire = acquire.lock_delay(delay);
        }
        waiting::acquire(context, &self.name, acquire).await
    }
}

fn lost_early(lease: &HeldLease, why: &Loss) -> Failure {
    let (name, token) = (lease.name(), lease.token());
    let message = format!("lease {name} with token {token} is lost: {why}; CMD was not started");
    Failure::new(exit::LOST, "LOST", message).hint("run it again: it gets a new token")
}

async fn give_back(lease: HeldLease, session: Session) -> Result<(), Failure> {
    if lease.is_valid() {
        lease.release().await?;
    }
    session.close().await?;
    Ok(())
}
