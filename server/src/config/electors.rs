//! What the Lease endpoint takes of electors beside the credentials of all callers.

use std::time::Duration;

use ringfence_access::process_of;
use ringfence_core::{PodUid, Principal, PrincipalPattern};

use super::given::Given;
use super::{ConfigError, duration};

/// How long an expired token renews, unless that is set: an API server that is away for a day ends no
/// election.
const TOKEN_GRACE_STANDARD: Duration = Duration::from_secs(24 * 3600);
/// And at most.
const TOKEN_GRACE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// The most patterns of principals that one process has.
const SINGLE_PROCESS_MAX: usize = 100;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Electors {
    /// For how long a JWT renews what its caller holds, once it has expired.
    pub(crate) token_grace: Duration,
    /// Principals that one process has at a time, though their credentials name no Pod.
    pub(crate) single_process: Vec<PrincipalPattern>,
}

impl Default for Electors {
    fn default() -> Self {
        Self {
            token_grace: TOKEN_GRACE_STANDARD,
            single_process: Vec::new(),
        }
    }
}

impl Electors {
    pub(super) fn of(given: &Given) -> Result<Self, ConfigError> {
        let token_grace = match given.lease_api_token_grace.as_deref() {
            None => TOKEN_GRACE_STANDARD,
            Some(raw) => {
                let grace = duration::millis("lease-api-token-grace", raw)?;
                let grace = Duration::from_millis(grace);
                if grace > TOKEN_GRACE_MAX || grace.subsec_millis() > 0 {
                    let allowed = "whole seconds, 0s to 168h";
                    return Err(ConfigError::value("lease-api-token-grace", raw, allowed));
                }
                grace
            }
        };
        let patterns = &given.lease_api_single_process;
        if patterns.len() > SINGLE_PROCESS_MAX {
            let allowed = format!("at most {SINGLE_PROCESS_MAX} patterns");
            let offered = format!("{} patterns", patterns.len());
            return Err(ConfigError::value(
                "lease-api-single-process",
                offered,
                allowed,
            ));
        }
        let patterns = patterns.iter().map(|raw| {
            let wrong =
                |allowed| ConfigError::value("lease-api-single-process", raw.clone(), allowed);
            let pattern = PrincipalPattern::parse(raw);
            let pattern = pattern.map_err(|invalid| wrong(invalid.to_string()))?;
            let shared = [Principal::anonymous(), Principal::local()];
            match shared.iter().any(|principal| pattern.covers(principal)) {
                false => Ok(pattern),
                true => {
                    let allowed = "principals that a credential names: `anonymous` and `local` are \
                                   whichever processes come so, and `*` covers them";
                    Err(wrong(allowed.to_owned()))
                }
            }
        });
        Ok(Self {
            token_grace,
            single_process: patterns.collect::<Result<_, _>>()?,
        })
    }

    /// What stands for the one process that has this principal, if one alone has it.
    pub(crate) fn process_of(&self, principal: &Principal) -> Option<PodUid> {
        let mut patterns = self.single_process.iter();
        patterns.find(|pattern| pattern.covers(principal))?;
        PodUid::parse(&process_of(principal)).ok()
    }
}
