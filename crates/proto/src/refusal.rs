//! Refusals: why a request was not done, or what is known of its fate, for people and programs.

mod rejection;
mod status;
mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ringfence_core::{EndCause, FencingToken, LeaseName};

pub use table::{code, http_status, reason_name, reason_of_name};

use crate::v1::{self, Reason};

/// The domain of our `google.rpc.ErrorInfo`. Only a status that carries it says anything about
/// the outcome of a request.
pub const ERROR_DOMAIN: &str = "ringfence";

/// The longest advice of when to come back; whatever is longer is cut to it. Longer than a quiet
/// time can be, and short enough for a receiver to add to any clock.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The longest message of a refusal, in bytes; whatever is longer is cut, since it may hold what the
/// caller sent. With its details it fits the 8 KiB of headers that gRPC clients take.
pub const REFUSAL_MESSAGE_BYTES_MAX: usize = 1_024;
/// The longest detail of a refusal, and the most that is shown of a field, in bytes.
pub const REFUSAL_DETAIL_BYTES_MAX: usize = 256;

/// A refusal with everything a caller needs to decide what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why, for programs.
    pub reason: Reason,
    /// What was offered, what was expected, what to do: for people. Never shows a secret.
    pub message: String,
    /// Details for programs; which ones there are is said at each [`Reason`].
    pub metadata: BTreeMap<String, String>,
    /// Try again no sooner than after this time; at most [`RETRY_AFTER_MAX`].
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// A refusal without details.
    #[must_use]
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: shown(message.into(), REFUSAL_MESSAGE_BYTES_MAX),
            metadata: BTreeMap::new(),
            retry_after: None,
        }
    }

    /// Adds a detail.
    #[must_use = "the refusal is returned with the detail"]
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        let value = shown(value.to_string(), REFUSAL_DETAIL_BYTES_MAX);
        self.metadata.insert(key.into(), value);
        self
    }

    /// Adds the advice to try again no sooner than after this time, at least a millisecond and at
    /// most [`RETRY_AFTER_MAX`].
    #[must_use = "the refusal is returned with the advice"]
    pub fn retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(advice(time));
        self
    }

    /// A field of the request is missing, malformed or out of range. `offered` is shown: never
    /// hand a secret in.
    #[must_use]
    pub fn invalid(field: &str, offered: impl fmt::Display, allowed: impl fmt::Display) -> Self {
        let offered = shown(offered.to_string(), REFUSAL_DETAIL_BYTES_MAX);
        let message = format!("{field}: {offered} was offered, {allowed} is allowed; correct it");
        Self::new(Reason::InvalidArgument, message)
            .with("field", field)
            .with("offered", offered)
            .with("allowed", allowed)
    }

    /// A field that must be there is not.
    #[must_use]
    pub fn missing(field: &str, allowed: impl fmt::Display) -> Self {
        Self::invalid(field, "nothing", allowed)
    }

    /// This try was not carried out and will not be; another one, here or elsewhere, can succeed. It
    /// says nothing of earlier tries of the same request. `leader` is where clients reach the
    /// leader, if one is known.
    #[must_use]
    pub fn unavailable(why: impl fmt::Display, leader: Option<&str>, after: Duration) -> Self {
        let refusal = Self::new(
            Reason::Unavailable,
            format!("{why}; this try was not carried out, try again here or at another member"),
        );
        match leader {
            Some(leader) => refusal.with("leader", leader).retry_after(after),
            None => refusal.retry_after(after),
        }
    }

    /// The request may take effect, or may have.
    #[must_use]
    pub fn outcome_unknown(why: impl fmt::Display) -> Self {
        let message = format!(
            "{why}; whether the request takes effect is not known: repeat it with the same \
             number, or cancel it, while the session lives"
        );
        Self::new(Reason::OutcomeUnknown, message)
    }

    /// A fault of this node; what became of the request is not known.
    #[must_use]
    pub fn fault(why: impl fmt::Display) -> Self {
        let message = format!("this node has a fault: {why}; repeat the request at another member");
        Self::new(Reason::Fault, message)
    }

    /// There is no such thing.
    #[must_use]
    pub fn not_found(what: impl fmt::Display) -> Self {
        Self::new(
            Reason::NotFound,
            format!("there is no {what}; check what you asked for"),
        )
    }

    /// The wait for a lease is over and brought no grant.
    #[must_use]
    pub fn wait_timeout(name: &LeaseName) -> Self {
        let message = format!(
            "the wait for lease {name} is over and brought no grant; acquire it again, with a new \
             request number, to wait on"
        );
        Self::new(Reason::WaitTimeout, message).with("name", name)
    }

    /// The request was taken back by a `Cancel`; the lease it asked for may be forgotten.
    #[must_use]
    pub fn cancelled(name: Option<&LeaseName>) -> Self {
        let again = "use a new request number to ask again";
        match name {
            Some(name) => {
                let message = format!("the request for lease {name} was cancelled; {again}");
                Self::new(Reason::Cancelled, message).with("name", name)
            }
            None => Self::new(
                Reason::Cancelled,
                format!("the request was cancelled; {again}"),
            ),
        }
    }

    /// The grant that answered the request has ended since.
    #[must_use]
    pub fn ended(name: &LeaseName, token: FencingToken, cause: Option<&EndCause>) -> Self {
        let why = cause.map_or("for a reason that is forgotten", table::end_words);
        let message = format!(
            "lease {name} was granted with token {token}, and that grant has ended: {why}; stop \
             working under it, and acquire again with a new request number"
        );
        let refusal = Self::new(Reason::Ended, message)
            .with("name", name)
            .with("token", token);
        match cause {
            Some(cause) => table::with_end_cause(refusal, cause),
            None => refusal,
        }
    }

    /// The position offered is one of another cluster.
    #[must_use]
    pub fn cluster_changed(offered: impl fmt::Display, present: impl fmt::Display) -> Self {
        let message = format!(
            "this is cluster {present}, what was offered belongs to cluster {offered}; forget \
             what that one reported, and start again"
        );
        Self::new(Reason::ClusterChanged, message)
            .with("offered", offered)
            .with("present", present)
    }

    /// The history asked for is gone; `oldest` is the first log index that is still there.
    #[must_use]
    pub fn compacted(oldest: u64) -> Self {
        let message = format!(
            "the history asked for is gone, the oldest that is left is that of index {oldest}; \
             begin with the present state"
        );
        Self::new(Reason::Compacted, message).with("oldest", oldest)
    }

    /// The cluster never had the position `offered`; it has reached `newest`. Both are log indices.
    #[must_use]
    pub fn position_unknown(offered: u64, newest: u64) -> Self {
        let message = format!(
            "invalid position: got index {offered}, which this cluster's log never had in that \
             form; it has reached index {newest}. Its disks were rolled back to an older copy, or \
             the position is wrong: begin with the present state"
        );
        Self::new(Reason::PositionUnknown, message)
            .with("offered", offered)
            .with("newest", newest)
    }

    /// A membership change cannot be made now.
    #[must_use]
    pub fn membership(why: impl fmt::Display) -> Self {
        Self::new(Reason::Membership, why.to_string())
    }

    /// Whether this says for certain that the try that it answers had no effect and will have none.
    /// Of the request that is certain only if no earlier try of it is without an answer, or if the
    /// session remembers the refusal.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        table::is_certain(self.reason)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", reason_name(self.reason), self.message)
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for v1::Refusal {
    fn from(refusal: Refusal) -> Self {
        Self {
            reason: refusal.reason.into(),
            message: refusal.message,
            metadata: refusal.metadata,
            retry_after_ms: refusal.retry_after.map_or(0, millis_up),
        }
    }
}

impl Refusal {
    /// The refusal in a message of a stream. `None` if its reason is none that this version knows:
    /// then nothing is known of the request's fate.
    #[must_use]
    pub fn from_wire(refusal: v1::Refusal) -> Option<Self> {
        let reason = Reason::try_from(refusal.reason).ok()?;
        if reason == Reason::Unspecified {
            return None;
        }
        let retry_after = match refusal.retry_after_ms {
            0 => None,
            millis => Some(advice(Duration::from_millis(millis))),
        };
        Some(Self {
            reason,
            message: refusal.message,
            metadata: refusal.metadata,
            retry_after,
        })
    }
}

/// A text of which at most `max` bytes are shown, with its length if it was longer.
fn shown(mut text: String, max: usize) -> String {
    if text.len() > max {
        let rest = format!("… ({} bytes)", text.len());
        text.truncate(text.floor_char_boundary(max - rest.len()));
        text.push_str(&rest);
    }
    text
}

/// A time to come back that all ways of telling it can express: in streams, 0 means no advice.
fn advice(time: Duration) -> Duration {
    time.clamp(Duration::from_millis(1), RETRY_AFTER_MAX)
}

/// Whole milliseconds, rounded up: no client may come back too early.
fn millis_up(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_echoed_the_refusal_stays_short() {
        let long = "\u{e9}".repeat(50_000);
        let refusals = [
            Refusal::invalid("page_token", format!("{long:?}"), "a page token"),
            Refusal::membership(&long),
            Refusal::not_found(&long),
            Refusal::unavailable(&long, Some(&long), Duration::ZERO),
        ];
        for refusal in refusals {
            assert!(
                refusal.message.len() <= REFUSAL_MESSAGE_BYTES_MAX,
                "{refusal}"
            );
            let details = refusal.metadata.values();
            assert!(
                details
                    .clone()
                    .all(|detail| detail.len() <= REFUSAL_DETAIL_BYTES_MAX)
            );
            assert!(refusal.message.contains(" bytes)"), "{refusal}");
        }
    }

    #[test]
    fn what_fits_is_shown_whole() {
        let refusal = Refusal::invalid("name", "x".repeat(REFUSAL_DETAIL_BYTES_MAX), "less");
        assert_eq!(refusal.metadata["offered"].len(), REFUSAL_DETAIL_BYTES_MAX);
        assert!(!refusal.message.contains('\u{2026}'));
    }
}
