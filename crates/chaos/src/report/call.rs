//! One operation as the page shows it, and how the records of a history become one.

use ringfence_check::history::{Block, Checked, Op, Outcome};

/// What a write to a guarded store is called.
pub(super) const WRITE: &str = "write";

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    Refused,
    Unknown,
}

/// An operation, a keep-alive, or a visit to a guarded store. Times are nanoseconds of the history.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) client: u32,
    pub(super) kind: &'static str,
    pub(super) begin: u64,
    pub(super) end: Option<u64>,
    pub(super) fate: Fate,
    pub(super) lease: Option<usize>,
    pub(super) token: u64,
    /// What the guard had seen; 0 if that is not known.
    pub(super) mark: u64,
    pub(super) guard: Option<usize>,
    /// Its number in the history, if it is an operation.
    pub(super) number: Option<u64>,
    /// Its place among the commits of its store.
    pub(super) commit: Option<u64>,
    /// Its token was below the mark.
    pub(super) stale: bool,
    /// A copy of the store without a guard took it.
    pub(super) copy_took: bool,
    pub(super) text: String,
}

impl Call {
    /// A call of which nothing is known but that it began.
    pub(super) fn begun(client: u32, kind: &'static str, begin: u64) -> Self {
        Self {
            client,
            kind,
            begin,
            end: None,
            fate: Fate::Unknown,
            lease: None,
            token: 0,
            mark: 0,
            guard: None,
            number: None,
            commit: None,
            stale: false,
            copy_took: false,
            text: String::new(),
        }
    }

    /// When it is drawn: its answer, or its begin if none came.
    pub(super) fn moment(&self) -> u64 {
        self.end.unwrap_or(self.begin)
    }
}

/// How an operation is called, its lease, its token, and a remark.
pub(super) fn asked(op: &Op) -> (&'static str, Option<&str>, u64, String) {
    let plain = String::new;
    match op {
        Op::Open {
            ttl_ms, acquire, ..
        } => {
            let lease = acquire.as_ref().map(|acquire| acquire.lease.as_str());
            ("open", lease, 0, format!("TTL {ttl_ms} ms"))
        }
        Op::Acquire(acquire) => {
            let text = acquire
                .wait_ms
                .map_or_else(plain, |wait| format!("waits up to {wait} ms"));
            ("acquire", Some(&acquire.lease), 0, text)
        }
        Op::Cancel { request } => ("cancel", None, 0, format!("of request {request}")),
        Op::Release { lease, token, .. } => ("release", Some(lease), *token, plain()),
        Op::Transfer { lease, token, .. } => ("transfer", Some(lease), *token, plain()),
        Op::Close => ("close", None, 0, plain()),
        Op::Check { lease, token } => ("check", Some(lease), *token, plain()),
        Op::Get { lease } => ("get", Some(lease), 0, plain()),
        Op::Revoke { lease, token, .. } => ("revoke", Some(lease), *token, plain()),
        Op::Evict { session } => ("evict", None, 0, format!("of session {session}")),
    }
}

/// What an outcome means, the token that it names if that is the caller's own, and a remark.
pub(super) fn answered(outcome: &Outcome) -> (Fate, Option<u64>, String) {
    let done = |text: &str| (Fate::Done, None, text.to_owned());
    let refused = |text: String| (Fate::Refused, None, text);
    match outcome {
        Outcome::Done | Outcome::Released | Outcome::Closed | Outcome::Removed => done(""),
        Outcome::Opened {
            session, acquired, ..
        } => {
            let (_, token, _) = acquired
                .as_deref()
                .map_or((Fate::Done, None, String::new()), answered);
            (Fate::Done, token, format!("session {session}"))
        }
        Outcome::Granted { token } | Outcome::StillGranted { token, .. } => {
            (Fate::Done, Some(*token), String::new())
        }
        Outcome::Ended { token } => {
            let text = "it was granted, and has ended since".to_owned();
            (Fate::Refused, Some(*token), text)
        }
        Outcome::Transferred { to, token } => {
            done(&format!("to session {to}, which has token {token}"))
        }
        Outcome::Settled => done("it had been answered before"),
        Outcome::Voided => done("it never came, and will be refused"),
        Outcome::Checked(worth) => done(&worth_of(*worth)),
        Outcome::Lease { token, .. } => done(&token.map_or_else(
            || "no session holds it".to_owned(),
            |token| format!("held with token {token}"),
        )),
        Outcome::TimedOut => refused("the wait brought no grant".to_owned()),
        Outcome::Cancelled => refused("it was taken back".to_owned()),
        Outcome::Held { token, mine, .. } => refused(if *mine {
            format!("it holds it already, with token {token}")
        } else {
            format!("held by another, with token {token}")
        }),
        Outcome::Queued { .. } => refused("others wait for it".to_owned()),
        Outcome::Blocked(block) => refused(
            match block {
                Block::LockDelay => "its lock-delay runs",
                Block::Revoking => "it was revoked, and its holder may not know",
                Block::QuietTime => "the cluster was restored, and is quiet",
            }
            .to_owned(),
        ),
        Outcome::StaleToken { current } => refused(current.map_or_else(
            || "that grant has ended".to_owned(),
            |token| format!("that grant has ended; token {token} is in force"),
        )),
        Outcome::NotHolder => refused("the grant is another session's".to_owned()),
        Outcome::NotWaiting => refused("no session waits for it".to_owned()),
        Outcome::SessionExpired => refused("its session has ended".to_owned()),
        Outcome::Refused { reason } => refused(reason.clone()),
        Outcome::NotDone { error } => refused(format!("not done: {error}")),
        Outcome::Unknown { error } => (Fate::Unknown, None, error.clone()),
    }
}

fn worth_of(worth: Checked) -> String {
    match worth {
        Checked::Current => "current".to_owned(),
        Checked::Superseded(newest) => format!("superseded by token {newest}"),
        Checked::Ended => "ended".to_owned(),
        Checked::Unknown => "never granted".to_owned(),
    }
}
