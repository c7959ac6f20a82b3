//! How a command fails: an exit code, a reason for programs, a message and a next step for people.

use std::process::ExitCode;

use ringfence_client::{
    AcquireError, AttachError, Blocked, CallError, CloseError, ConnectError, Holder, Loss,
    OpenError, ReleaseError, TransferError,
};
use ringfence_proto::refusal::{Refusal, reason_name, reason_of_name};
use ringfence_proto::v1::Reason;
use serde_json::{Map, Value, json};

use super::stderr::complain;
use super::visible::visible_lines;
use super::{Global, duration, exit};

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
    /// What programs need beside the reason: holder, token, what is left of a block. It stands in
    /// the object that `--json` prints, under these names.
    pub(crate) details: Map<String, Value>,
}

impl Failure {
    /// A failure without a next step.
    pub(crate) fn new(exit: u8, reason: &str, message: impl Into<String>) -> Self {
        Self {
            exit,
            reason: reason.to_owned(),
            message: message.into(),
            hint: String::new(),
            details: Map::new(),
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

    /// The same with a detail for programs.
    #[must_use]
    pub(crate) fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// No client could be made.
    pub(crate) fn connect(cause: &ConnectError, global: &Global) -> Self {
        if let ConnectError::Refused(refusal) = cause {
            return (**refusal).clone().into();
        }
        let (exit, reason) = match cause {
            ConnectError::NoEndpoints
            | ConnectError::InvalidEndpoint { .. }
            | ConnectError::Tls { .. }
            | ConnectError::Token { .. } => (exit::USAGE, "INVALID_ARGUMENT"),
            _ => (exit::UNAVAILABLE, "UNAVAILABLE"),
        };
        let hint = match (exit, global.endpoints.is_empty()) {
            (exit::USAGE, _) if matches!(cause, ConnectError::Tls { .. }) => {
                "--cacert ca.pem, and --cert with --key if the servers ask for a certificate"
            }
            (exit::USAGE, _) if matches!(cause, ConnectError::Token { .. }) => {
                "name a file that holds the token alone: --token-file"
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

    /// A node's refusal of this caller: it shows nothing that proves who it is, or may not ask.
    pub(crate) fn denied(status: &tonic::Status) -> Option<Self> {
        let refused = || Refusal::from_status(status).map(Self::from);
        let refusal = Self::certificate_refused(status).or_else(refused);
        refusal.filter(|failure| failure.exit == exit::DENIED)
    }

    /// The same of a certificate in a handshake, which never comes as far as a call.
    pub(crate) fn certificate_refused(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let why = ringfence_tls::certificate_refused(error)?;
        Some(Self::unauthenticated(&why))
    }

    /// A refusal that was heard outside of a call.
    pub(crate) fn unauthenticated(why: &str) -> Self {
        Refusal::new(Reason::Unauthenticated, why).into()
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
            _ => "acquire the lease again; new work gets a new token",
        })
    }

    /// Prints the failure to stderr and gives the exit code.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        if self.exit == 0 {
            return ExitCode::SUCCESS;
        }
        if json {
            let mut error = self.details.clone();
            error.insert("reason".into(), self.reason.as_str().into());
            error.insert("message".into(), self.message.as_str().into());
            if !self.hint.is_empty() {
                error.insert("hint".into(), self.hint.as_str().into());
            }
            complain(json!({ "error": error }).to_string());
        } else {
            complain(format!("error: {}", visible_lines(&self.message)));
            if !self.hint.is_empty() {
                complain(format!("  try: {}", self.hint));
            }
        }
        ExitCode::from(self.exit)
    }
}

fn exit_of(reason: Reason) -> u8 {
    match reason {
        Reason::InvalidArgument => exit::USAGE,
        Reason::Unspecified | Reason::Unavailable | Reason::OutcomeUnknown | Reason::Fault => {
            exit::UNAVAILABLE
        }
        Reason::WaitTimeout => exit::NOT_OBTAINED,
        Reason::Unauthenticated | Reason::PermissionDenied => exit::DENIED,
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
        | Reason::StaleAccess
        | Reason::ClusterChanged
        | Reason::Compacted
        | Reason::PositionUnknown
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
        Reason::QuietTime => {
            "wait until holders of the cluster before it are gone: `cluster status` shows how long, \
             deploy/RECOVERY.md#all-disks-are-lost why"
        }
        Reason::StaleToken | Reason::NotHolder | Reason::Ended => {
            "`lease get NAME` shows the present holder and token"
        }
        Reason::NotWaiting => "the target has to wait: `lease acquire NAME --wait 30s`",
        Reason::SessionExpired => "open a new session; new work gets a new token",
        Reason::WrongSecret => "pass the whole handle, as `session open` printed it",
        Reason::Unauthenticated => {
            "show a credential that is valid: --token-file, --cert and --key; a restored cluster has none \
             of the old cluster tokens, and makes new ones at the admin socket of a node"
        }
        Reason::PermissionDenied => {
            "`access whoami` shows who you are taken for, `access test` what you may do"
        }
        Reason::StaleSettings | Reason::StaleAccess => {
            "repeat the command: it starts from the present settings"
        }
        Reason::ClusterChanged => {
            "another cluster stands here now: begin again with what it says, not with what the one \
             before it said; see deploy/RECOVERY.md#all-disks-are-lost"
        }
        Reason::Compacted | Reason::PositionUnknown => "start again, without --from",
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
        let field = refusal.metadata.get("field").map(String::as_str);
        let hint = match field {
            Some("ttl_ms") => {
                "`cluster configure` shows the shortest and the longest TTL, and sets them"
            }
            _ => hint_of(refusal.reason),
        };
        let reason = reason_name(refusal.reason);
        let denied = refusal.reason == Reason::PermissionDenied;
        let mut failure = Self::new(exit_of(refusal.reason), reason, refusal.message).hint(hint);
        if denied {
            for name in ["principal", "verb", "names", "rule"] {
                if let Some(value) = refusal.metadata.get(name) {
                    failure = failure.detail(name, value.as_str());
                }
            }
        }
        failure
    }
}

impl From<ringfence_client::Refusal> for Failure {
    fn from(refusal: ringfence_client::Refusal) -> Self {
        // A reason that only a newer client crate knows tells no outcome.
        let reason = reason_of_name(refusal.reason.as_str()).unwrap_or(Reason::Unspecified);
        Refusal {
            reason,
            message: refusal.message,
            metadata: refusal.metadata,
            retry_after: refusal.retry_after,
        }
        .into()
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let reason = match error {
            CallError::Refused(refusal) => return (*refusal).into(),
            CallError::Unavailable { .. } => Reason::Unavailable,
            // Of a kind that is newer than this, too, nothing is certain.
            _ => Reason::OutcomeUnknown,
        };
        Self::new(exit::UNAVAILABLE, reason_name(reason), error.to_string()).hint(hint_of(reason))
    }
}

/// A unary call made without the client crate.
impl From<tonic::Status> for Failure {
    fn from(status: tonic::Status) -> Self {
        if let Some(refusal) = Refusal::from_status(&status) {
            return refusal.into();
        }
        if let Some(refused) = Self::certificate_refused(&status) {
            return refused;
        }
        let reason = Reason::OutcomeUnknown;
        let message = format!("the outcome is unknown: {}", status.message());
        Self::new(exit::UNAVAILABLE, reason_name(reason), message).hint(hint_of(reason))
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::InvalidIdentity(_) => Self::usage(error.to_string()),
            OpenError::TooLate => Self::new(exit::UNAVAILABLE, "LOST", error.to_string())
                .hint("repeat the command, with a longer --ttl"),
            OpenError::Call(error) => error.into(),
            other => Self::new(exit::UNAVAILABLE, "LOST", other.to_string()),
        }
    }
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Self {
        match error {
            AttachError::Lost(why) => Self::lost("the session cannot be used", &why),
            AttachError::Call(error) => error.into(),
            other => Self::new(exit::UNAVAILABLE, "LOST", other.to_string()),
        }
    }
}

/// A refused acquire with the holder as details. The names are those of `lease get --json`.
fn with_holder(failure: Failure, holder: &Holder) -> Failure {
    let mut failure = failure
        .detail("holder", holder.identity.as_str())
        .detail("mine", holder.mine);
    if let Some(token) = holder.token {
        failure = failure.detail("token", token.get());
    }
    if let Some(session) = holder.session {
        failure = failure.detail("session_number", session.get());
    }
    failure
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let message = error.to_string();
        let negative = |reason: Reason| {
            Self::new(exit_of(reason), reason_name(reason), message.clone()).hint(hint_of(reason))
        };
        match error {
            AcquireError::InvalidName(_) => Self::usage(message),
            AcquireError::Held(holder) => with_holder(negative(Reason::Held), &holder),
            AcquireError::Queued { waiters } => negative(Reason::Queued).detail("waiters", waiters),
            AcquireError::NotNow { why, remaining } => {
                let failure = negative(match why {
                    Blocked::LockDelay => Reason::LockDelay,
                    Blocked::Revoking => Reason::Revoking,
                    _ => Reason::QuietTime,
                });
                match remaining {
                    Some(left) => failure.detail("remaining_ms", duration::millis(left)),
                    None => failure,
                }
            }
            AcquireError::TimedOut => negative(Reason::WaitTimeout),
            AcquireError::Ended(_) => negative(Reason::Ended),
            AcquireError::SessionLost(why) => Self::lost("the session is over", &why),
            AcquireError::Call(error) => error.into(),
            AcquireError::Open(error) => error.into(),
            _ => Self::new(exit::UNAVAILABLE, "LOST", message),
        }
    }
}

impl From<ReleaseError> for Failure {
    fn from(error: ReleaseError) -> Self {
        match error {
            ReleaseError::Lost(why) => Self::lost("nothing was released", &why),
            ReleaseError::Call(error) => error.into(),
            other => Self::new(exit::UNAVAILABLE, "LOST", other.to_string()),
        }
    }
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::NotWaiting { .. } => Self::new(
                exit::NEGATIVE,
                reason_name(Reason::NotWaiting),
                error.to_string(),
            )
            .hint(hint_of(Reason::NotWaiting)),
            TransferError::Lost(why) => Self::lost("nothing was handed over", &why),
            TransferError::Call(error) => error.into(),
            other => Self::new(exit::UNAVAILABLE, "LOST", other.to_string()),
        }
    }
}

impl From<CloseError> for Failure {
    fn from(error: CloseError) -> Self {
        let CloseError(error) = error;
        error.into()
    }
}
