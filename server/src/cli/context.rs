//! What every command that talks to a cluster has: a connected client and a place for results.

use std::time::Duration;

use ringfence_client::{
    CallError, Client, Loss, OpenError, Refusal, Session, SessionHandle, SessionOptions, unstable,
};
use ringfence_core::{ClusterId, LeaseName};

use super::output::Output;
use super::{Failure, Global};

/// A connected command.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) output: Output,
}

impl Context {
    /// Connects to the cluster that `global` names.
    ///
    /// # Errors
    /// If an endpoint is malformed, or none answers within the timeout.
    pub(crate) async fn connect(global: &Global) -> Result<Self, Failure> {
        let builder = Client::builder()
            .endpoints(global.endpoints())
            .connect_timeout(global.timeout)
            .request_timeout(global.timeout);
        let builder = global.tls.set_up(builder).map_err(Failure::usage)?;
        let client = builder
            .connect()
            .await
            .map_err(|cause| Failure::connect(&cause, global))?;
        let context = Self {
            client,
            output: Output::new(global),
        };
        context.is_meant(global.cluster)?;
        Ok(context)
    }

    /// Refuses what is meant for another cluster than the one that answers. The client names the
    /// cluster that it belongs to in each call, so nothing is done at another one from here on either.
    ///
    /// # Errors
    /// `CLUSTER_CHANGED`; nothing was done.
    pub(crate) fn is_meant(&self, meant: Option<ClusterId>) -> Result<(), Failure> {
        let present = unstable::cluster(&self.client);
        let (Some(meant), Some(present)) = (meant, present) else {
            return Ok(());
        };
        match meant == present {
            true => Ok(()),
            false => {
                let refusal = ringfence_proto::Refusal::cluster_changed(meant, present);
                Err(refusal.into())
            }
        }
    }

    /// Opens a session that is to acquire this lease.
    ///
    /// # Errors
    /// As the client crate's; a caller that may acquire nothing at all learns the rule that this
    /// lease needs.
    pub(crate) async fn open_for(
        &self,
        name: &LeaseName,
        options: SessionOptions,
    ) -> Result<Session, Failure> {
        match self.client.open_session(options).await {
            Err(OpenError::Call(CallError::Refused(refusal))) => {
                Err(narrowed(*refusal, name).into())
            }
            opened => Ok(opened?),
        }
    }
}

/// Behind a loss by a window that has passed: why keep-alives were refused, if they were; else nothing.
pub(crate) fn why_silent(client: &Client, why: &Loss) -> String {
    let refusal = unstable::keep_alive_refusal(client).filter(|_| *why == Loss::WindowPassed);
    refusal.map_or_else(String::new, |refusal| {
        format!(
            "; the last answer to keep-alives was a refusal: {}",
            refusal.message
        )
    })
}

/// A session needs the right to acquire some lease, whichever; its caller wants this one.
fn narrowed(mut refusal: Refusal, name: &LeaseName) -> Refusal {
    let told = |key: &str| refusal.metadata.get(key).map(String::as_str);
    let wide = told("verb") == Some("acquire") && told("names") == Some("*");
    let Some(principal) = told("principal").filter(|_| wide) else {
        return refusal;
    };
    let rule = format!("{principal} acquire {name}");
    refusal.message = format!(
        "no rule allows {principal} to acquire {name}; ask an administrator for it: ringfence access \
         grant {rule}"
    );
    let names = name.to_string();
    refusal
        .metadata
        .extend([("names".to_owned(), names), ("rule".to_owned(), rule)]);
    refusal
}

/// How a session is opened: shared by all commands that open one.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct NewSession {
    /// How long the session outlives its last keep-alive
    #[arg(long, default_value = "15s", value_name = "DURATION", value_parser = super::duration::parse)]
    ttl: Duration,
    /// Who the holder is, for people, user@host unless said
    #[arg(long, value_name = "TEXT")]
    identity: Option<String>,
}

impl NewSession {
    /// What the client crate opens it with.
    pub(crate) fn options(&self) -> SessionOptions {
        let identity = self.identity.clone().unwrap_or_else(whoami);
        SessionOptions {
            ttl: self.ttl,
            identity,
        }
    }
}

/// The session a command acts for.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct OwnSession {
    /// The handle of the session to act for, as `session open` and `lease acquire` print it; give it in
    /// the environment where other accounts use the machine
    #[arg(
        long = "session",
        env = "RINGFENCE_SESSION",
        hide_env_values = true,
        value_name = "HANDLE"
    )]
    handle: Option<SessionHandle>,
}

impl OwnSession {
    /// The handle, if one was given.
    pub(crate) fn given(&self) -> Option<SessionHandle> {
        self.handle
    }
}

/// The session a command cannot do without.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ActingSession {
    /// The handle of the session to act for, as `session open` and `lease acquire` print it; give it in
    /// the environment where other accounts use the machine
    #[arg(
        long = "session",
        env = "RINGFENCE_SESSION",
        hide_env_values = true,
        value_name = "HANDLE",
        required = true
    )]
    pub(crate) handle: SessionHandle,
}

/// How fresh a read has to be.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Freshness {
    /// Be content with a node's own state if it is at most this old, up to 60s [default: the
    /// newest state]
    #[arg(long, value_name = "DURATION", value_parser = super::duration::parse)]
    max_staleness: Option<Duration>,
}

impl Freshness {
    /// As requests carry it.
    pub(crate) fn to_wire(&self) -> Option<ringfence_proto::v1::ReadOptions> {
        let max_staleness_ms = super::duration::millis(self.max_staleness?);
        Some(ringfence_proto::v1::ReadOptions { max_staleness_ms })
    }
}

/// `user@host`: what a person would look for.
pub(crate) fn whoami() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    let user = user
        .ok()
        .filter(|user| !user.is_empty())
        .unwrap_or_else(|| format!("uid{}", rustix::process::getuid().as_raw()));
    let host = rustix::system::uname();
    format!("{user}@{}", host.nodename().to_string_lossy())
}
