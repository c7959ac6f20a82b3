//! What became of a request.

use kube::Error;
use ringfence_kube::policy::{REFUSAL, STALE};
use serde_json::Value;

/// What became of a request, by the words of whoever refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Done.
    Admitted,
    /// Refused by us: an older fence.
    Stale,
    /// Refused by us: no fence.
    Missing,
    /// Refused by us: no fence of any lease.
    Malformed,
    /// Refused by us: another lease's fence.
    Foreign,
    /// Refused by us: the stamp of an earlier write.
    Inherited,
    /// Refused by us: a deletion that names no version.
    NoVersion,
    /// Refused by the API server: another version than the one that was named.
    Outdated,
}

/// Our refusals, by words in them.
const WORDS: [(&str, Verdict); 6] = [
    (STALE, Verdict::Stale),
    (" carries no fence", Verdict::Missing),
    ("malformed fence ", Verdict::Malformed),
    (" is of another lease", Verdict::Foreign),
    (" has not grown", Verdict::Inherited),
    (" names no version", Verdict::NoVersion),
];

impl Verdict {
    /// What this answer says; in words if it is none that was thought of.
    pub(crate) fn of(answer: &Result<Value, Error>) -> Result<Self, String> {
        let status = match answer {
            Ok(_) => return Ok(Self::Admitted),
            Err(Error::Api(status)) => status,
            Err(error) => return Err(error.to_string()),
        };
        let said = format!("{}: {}", status.code, status.message);
        if status.code == 409 {
            return Ok(Self::Outdated);
        }
        let ours = status
            .message
            .split_once(&format!("denied request: {REFUSAL}"));
        let (Some((_, words)), 403) = (ours, status.code) else {
            return Err(said);
        };
        let known = WORDS.iter().find(|(known, _)| words.contains(known));
        known.map(|(_, verdict)| *verdict).ok_or(said)
    }

    /// In a table.
    pub(crate) fn shown(self) -> &'static str {
        match self {
            Self::Admitted => "ADMITTED",
            Self::Stale => "stale",
            Self::Missing => "no fence",
            Self::Malformed => "malformed",
            Self::Foreign => "other lease",
            Self::Inherited => "inherited",
            Self::NoVersion => "no version",
            Self::Outdated => "409",
        }
    }
}
