//! What became of a request.

use kube::Error;
use ringfence_kube::policy::{REFUSAL, STALE};
use serde_json::Value;

/// What became of a request, by the words of the party that refused it.
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
    /// Refused by us: several fences.
    Several,
    /// Refused by us: no policy stamps.
    Unstamped,
    /// Refused by us: a mark that an account which is not fenced would lower.
    Falls,
    /// Refused by us: a fence that was never granted.
    Forged,
    /// Refused by us: a Binding that would change the mark of its Pod.
    Carried,
    /// Refused by the API server: another version than the one that was named.
    Outdated,
}

/// Our refusals, by words in them.
const WORDS: [(&str, Verdict); 12] = [
    (STALE, Verdict::Stale),
    (" carries no fence", Verdict::Missing),
    ("malformed fence ", Verdict::Malformed),
    // In a text that cannot be repeated.
    ("the fence is malformed", Verdict::Malformed),
    (" is of another lease", Verdict::Foreign),
    (" has not grown", Verdict::Inherited),
    (" names no version", Verdict::NoVersion),
    (" fences, expected one", Verdict::Several),
    (" is not stamped", Verdict::Unstamped),
    (" would fall ", Verdict::Falls),
    ("forged fence ", Verdict::Forged),
    ("a Binding has ", Verdict::Carried),
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
        // A policy's words, and a webhook's.
        let denied = ["denied request: ", "denied the request: "];
        let mut ours = denied.iter().filter_map(|denied| {
            let begins = format!("{denied}{REFUSAL}");
            status.message.split_once(&begins)
        });
        let (Some((_, words)), 403) = (ours.next(), status.code) else {
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
            Self::Several => "several",
            Self::Unstamped => "not stamped",
            Self::Falls => "mark falls",
            Self::Forged => "forged",
            Self::Carried => "carried",
            Self::Outdated => "409",
        }
    }
}
