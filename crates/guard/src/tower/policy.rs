//! Which requests need a fence.

use http::HeaderMap;
use ringfence_core::LeaseName;
use ringfence_planted::{Bug, planted};

use super::TurnedAway;
use super::headers::fence_in;
use crate::Fence;

/// What a route demands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// A fence that the door admits. Which lease it may be of is the door's matter.
    #[default]
    Required,
    /// A request without a fence passes, without a fence in its extensions. One that shows a fence is
    /// judged by it.
    Optional,
    /// A fence of this lease that the door admits.
    Lease(LeaseName),
}

impl Policy {
    /// The fence that a request with these headers shows; `None` if it needs and shows none. Whether the
    /// fence is that of the present holder is not looked at here.
    ///
    /// # Errors
    /// [`TurnedAway::Missing`], [`TurnedAway::Malformed`], and another lease than the one demanded.
    pub fn fence_of(&self, headers: &HeaderMap) -> Result<Option<Fence>, TurnedAway> {
        let expected = match self {
            Self::Lease(name) => Some(name),
            Self::Required | Self::Optional => None,
        };
        let Some(fence) = fence_in(headers, expected)? else {
            return match self {
                Self::Optional => Ok(None),
                Self::Lease(_) if planted(Bug::FenceOptionalAtTheDoor) => Ok(None),
                Self::Required | Self::Lease(_) => Err(TurnedAway::Missing {
                    expected: expected.cloned(),
                }),
            };
        };
        if let Some(expected) = expected {
            fence.check_lease(expected)?;
        }
        Ok(Some(fence))
    }
}

/// The policies of all routes: see [`FenceLayer::route`](super::FenceLayer::route).
#[derive(Clone, Debug, Default)]
pub struct Routes {
    rules: Vec<(String, Policy)>,
    otherwise: Policy,
}

impl Routes {
    /// Sets what a route demands; the later policy of one pattern counts.
    pub fn add(&mut self, pattern: String, policy: Policy) {
        self.rules.retain(|(known, _)| *known != pattern);
        self.rules.push((pattern, policy));
        // The first that matches is then the most exact one: a whole path before a beginning, and a
        // long beginning before a short one.
        self.rules
            .sort_by_key(|(pattern, _)| (pattern.ends_with('*'), usize::MAX - pattern.len()));
    }

    pub(super) fn set_otherwise(&mut self, policy: Policy) {
        self.otherwise = policy;
    }

    /// What a path demands, as it comes, byte by byte.
    #[must_use]
    pub fn policy_of(&self, path: &str) -> &Policy {
        self.rule_of(path).unwrap_or(&self.otherwise)
    }

    /// The same, if a rule names the path.
    #[must_use]
    pub fn rule_of(&self, path: &str) -> Option<&Policy> {
        let mut rules = self.rules.iter();
        let rule = rules.find(|(pattern, _)| matches(pattern, path));
        rule.map(|(_, policy)| policy)
    }

    /// All rules.
    pub fn rules(&self) -> impl Iterator<Item = (&str, &Policy)> {
        self.rules
            .iter()
            .map(|(pattern, policy)| (pattern.as_str(), policy))
    }
}

fn matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => path.starts_with(beginning),
        None => path == pattern,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_most_exact_route_decides_in_whatever_order_they_were_named() {
        let fixed = Policy::Lease(LeaseName::parse("db").unwrap());
        let named = [
            ("/a/*", Policy::Optional),
            ("/a/b/*", fixed.clone()),
            ("/a/b/c", Policy::Optional),
        ];
        for turn in 0..named.len() {
            let mut routes = Routes::default();
            for (pattern, policy) in named.iter().cycle().skip(turn).take(named.len()) {
                routes.add((*pattern).to_owned(), policy.clone());
            }
            assert_eq!(routes.policy_of("/a/x"), &Policy::Optional);
            assert_eq!(routes.policy_of("/a/b/x"), &fixed);
            assert_eq!(routes.policy_of("/a/b/c"), &Policy::Optional);
            assert_eq!(routes.policy_of("/a/b/c/"), &fixed);
            assert_eq!(routes.policy_of("/A/x"), &Policy::Required);
            assert_eq!(routes.policy_of("/a"), &Policy::Required);
        }
    }

    #[test]
    fn the_later_policy_of_one_route_counts() {
        let mut routes = Routes::default();
        routes.add("/a".into(), Policy::Optional);
        routes.add("/a".into(), Policy::Required);
        assert_eq!(routes.policy_of("/a"), &Policy::Required);
    }
}
