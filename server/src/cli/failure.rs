//! How a command fails: an exit code, a reason for programs, a message and a next step for people.

use std::process::ExitCode;

use ringfence_client::{
    AcquireError, AttachError, CallError, CloseError, ConnectError, Holder, Loss, OpenError,
    ReleaseError, TransferError,
};
use ringfence_proto::refusal::Refusal;
use ringfence_proto::v1::Reason;
use serde_json::json;

use super::{Global, exit};

/// A command that was not done.
#[derive(Debug)]
pub(crate) struct Failure {
    /// How the process ends; see [`exit`].
    pub(crate) exit: u8,
    /// One word for programs, in capitals.
    pub(crate) reason: String,
    /// What happened: what was offered, what was expected.
    pub(crate) message: String,
    /// What to do next; may be empty.
    pub(crate) hint: String,
}

impl Failure {
    /// A failure without a next step.
    pub(crate) fn new(exit: u8, reason: &str, message: impl Into<String>) -> Self {
        Self {
            exit,
            reason: reason.to_owned(),
            message: message.into(),
            hint: String::new(),
        }
    }

    /// A value on the command line that cannot be used.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(exit::USAGE, "INVALID_ARGUMENT", message)
    }

    /// Ends the process with code 0 and without a word: its reader has gone away.
    pub(crate) fn silent() -> Self {
        Self::new(0, "", "")
    }

    /// The same with a next step.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// No client could be made.
    pub(crate) fn connect(cause: &ConnectError, global: &Global) -> Self {
        let (exit, reason) = match cause {
            ConnectError::NoEndpoints
            | ConnectError::InvalidEndpoint { .. }
            | ConnectError::Tls { .. } => (exit::USAGE, "INVALID_ARGUMENT"),
            _ => (exit::UNAVAILABLE, "UNAVAILABLE"),
        };
        let hint = match (exit, global.endpoints.is_empty()) {
            (exit::USAGE, _) if matches!(cause, ConnectError::Tls { .. }) => {
                "--cacert ca.pem, and --cert with --key if the servers ask for a certificate"
            }
            (exit::USAGE, _) => "--endpoints host1:7420,host2:7420",
            (_, true) => "start a cluster with `ringfence dev`, or name yours with --endpoints",
            (_, false) => {
                "check the addresses in --endpoints or RINGFENCE_ENDPOINTS; `cluster status` shows \
                 what is wrong with each"
            }
        };
        let message = match exit {
            exit::USAGE => cause.to_string(),
            _ => format!("{cause}; asked: {}", global.endpoints().join(", ")),
        };
        Self::new(exit, reason, message).hint(hint)
    }

    /// A session or a grant that is over.
    pub(crate) fn lost(what: &str, why: &Loss) -> Self {
        let reason = match why {
            Loss::SessionEnded { .. } => "SESSION_EXPIRED",
            Loss::WrongSecret => "WRONG_SECRET",
            Loss::ClusterChanged => "CLUSTER_CHANGED",
            Loss::GrantEnded { .. } => "ENDED",
            _ => "LOST",
        };
        Self::new(exit::NEGATIVE, reason, format!("{what}: {why}")).hint(match why {
            Loss::WrongSecret => hint_of(Reason::WrongSecret),
            _ => "acquire the lease anew; new work gets a new token",
        })
    }

    /// Prints the failure to stderr and gives the exit code.
    pub(crate) fn report(&self, global: &Global) -> ExitCode {
        if self.exit == 0 {
            return ExitCode::SUCCESS;
        }
        if global.json {
            let error = json!({ "reason": self.reason, "message": self.message });
            eprintln!("{}", json!({ "error": error }));
        } else {
            eprintln!("error: {}", self.message);
            if !self.hint.is_empty() {
                eprintln!("  try: {}", self.hint);
            }
        }
        ExitCode::from(self.exit)
    }
}

/// A reason as programs read it: the proto's name without its prefix.
pub(crate) fn reason_word(reason: Reason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix("REASON_").unwrap_or(name)
}

fn exit_of(reason: Reason) -> u8 {
    match reason {
        Reason::InvalidArgument => exit::USAGE,
        Reason::Unspecified | Reason::Unavailable | Reason::OutcomeUnknown | Reason::Fault => {
            exit::UNAVAILABLE
        }
        Reason::WaitTimeout => exit::NOT_OBTAINED,
        Reason::Held
        | Reason::Queued
        | Reason::LockDelay
        | Reason::Revoking
        | Reason::QuietTime
        | Reason::StaleToken
        | Reason::NotHolder
        | Reason::NotWaiting
        | Reason::SessionExpired
        | Reason::WrongSecret
        | Reason::StaleRequest
        | Reason::RequestMismatch
        | Reason::RequestVoided
        | Reason::Limit
        | Reason::OpenTooOld
        | Reason::OpenIdUsed
        | Reason::StaleSettings
        | Reason::ClusterChanged
        | Reason::Compacted
        | Reason::Cancelled
        | Reason::Ended
        | Reason::Membership
        | Reason::NotFound => exit::NEGATIVE,
    }
}

fn hint_of(reason: Reason) -> &'static str {
    match reason {
        Reason::Held | Reason::Queued | Reason::LockDelay | Reason::Revoking => {
            "wait for it: --wait 30s"
        }
        Reason::QuietTime => "wait: a restored cluster grants nothing until old holders are gone",
        Reason::StaleToken | Reason::NotHolder | Reason::Ended => {
            "`lease get NAME` shows the present holder and token"
        }
        Reason::NotWaiting => "the target has to wait: `lease acquire NAME --wait 30s`",
        Reason::SessionExpired => "open a new session; new work gets a new token",
        Reason::WrongSecret => "pass the whole handle, as `session open` printed it",
        Reason::StaleSettings => "repeat the command: it starts from the present settings",
        Reason::ClusterChanged | Reason::Compacted => "start anew, without --from",
        Reason::WaitTimeout => "wait longer, or see who holds it: `lease get NAME`",
        Reason::Membership => "`cluster members` shows the present members",
        Reason::NotFound => "`lease list` shows the names that are known",
        Reason::Limit => "release what is not needed, or raise the limit: `cluster configure`",
        Reason::Unavailable | Reason::OutcomeUnknown => {
            "`cluster status` shows which nodes answer; repeat, or give it longer: --timeout 30s"
        }
        Reason::Fault => "look at the node's log",
        Reason::InvalidArgument => "give a value that is allowed; --help tells what each means",
        Reason::StaleRequest | Reason::RequestMismatch | Reason::RequestVoided => {
            "another program uses this session at the same time; open one of its own for each"
        }
        Reason::OpenTooOld | Reason::OpenIdUsed | Reason::Cancelled => "repeat the command",
        Reason::Unspecified => "repeat the command with a newer `ringfence`: see --version",
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let Refusal {
            reason,
            message,
            metadata,
            ..
        } = refusal;
        let hint = match metadata.get("field").map(String::as_str) {
            Some("ttl_ms") => {
                "`cluster configure` shows the shortest and the longest TTL, and sets them"
            }
            _ => hint_of(reason),
        };
        Self::new(exit_of(reason), reason_word(reason), message).hint(hint)
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let reason = match error {
            CallError::Refused(refusal) => return (*refusal).into(),
            CallError::Unavailable { .. } => Reason::Unavailable,
            CallError::Unknown { .. } => Reason::OutcomeUnknown,
        };
        Self::new(exit::UNAVAILABLE, reason_word(reason), error.to_string()).hint(hint_of(reason))
    }
}

/// A unary call made without the client crate.
impl From<tonic::Status> for Failure {
    fn from(status: tonic::Status) -> Self {
        if let Some(refusal) = Refusal::from_status(&status) {
            return refusal.into();
        }
        let reason = Reason::OutcomeUnknown;
        let message = format!("the outcome is unknown: {}", status.message());
        Self::new(exit::UNAVAILABLE, reason_word(reason), message).hint(hint_of(reason))
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::InvalidIdentity(_) => Self::usage(error.to_string()),
            OpenError::TooLate => Self::new(exit::UNAVAILABLE, "LOST", error.to_string())
                .hint("repeat the command, with a longer --ttl"),
            OpenError::Call(error) => error.into(),
        }
    }
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Self {
        match error {
            AttachError::Lost(why) => Self::lost("the session cannot be used", &why),
            AttachError::Call(error) => error.into(),
        }
    }
}

/// Who holds a lease that was refused.
fn held(holder: &Holder) -> String {
    let mut text = match (holder.mine, holder.identity.as_str()) {
        (true, _) => "the lease is held already, by this very session".to_owned(),
        (false, "") => "the lease is held".to_owned(),
        (false, identity) => format!("the lease is held by {identity}"),
    };
    if let (false, Some(session)) = (holder.mine, holder.session) {
        text.push_str(&format!(" (session {session})"));
    }
    if let Some(token) = holder.token {
        text.push_str(&format!(" with token {token}"));
    }
    text
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let message = match &error {
            AcquireError::Held(holder) => held(holder),
            other => other.to_string(),
        };
        let negative = |reason: Reason| {
            Self::new(exit_of(reason), reason_word(reason), message.clone()).hint(hint_of(reason))
        };
        match error {
            AcquireError::InvalidName(_) => Self::usage(message),
            AcquireError::Held(_) => negative(Reason::Held),
            AcquireError::Queued { .. } => negative(Reason::Queued),
            AcquireError::NotNow { why, .. } => negative(match why {
                ringfence_client::Blocked::LockDelay => Reason::LockDelay,
                ringfence_client::Blocked::Revoking => Reason::Revoking,
                ringfence_client::Blocked::QuietTime => Reason::QuietTime,
            }),
            AcquireError::TimedOut => negative(Reason::WaitTimeout),
            AcquireError::Ended(_) => negative(Reason::Ended),
            AcquireError::SessionLost(why) => Self::lost("the session is over", &why),
            AcquireError::Call(error) => error.into(),
        }
    }
}

impl From<ReleaseError> for Failure {
    fn from(error: ReleaseError) -> Self {
        match error {
            ReleaseError::Lost(why) => Self::lost("nothing was released", &why),
            ReleaseError::Call(error) => error.into(),
        }
    }
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::NotWaiting { .. } => Self::new(
                exit::NEGATIVE,
                reason_word(Reason::NotWaiting),
                error.to_string(),
            )
            .hint(hint_of(Reason::NotWaiting)),
            TransferError::Lost(why) => Self::lost("nothing was handed over", &why),
            TransferError::Call(error) => error.into(),
        }
    }
}

impl From<CloseError> for Failure {
    fn from(error: CloseError) -> Self {
        let CloseError(error) = error;
        error.into()
    }
}
