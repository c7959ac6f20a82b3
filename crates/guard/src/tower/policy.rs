//! Which requests need a fence.

use ringfence_core::LeaseName;

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

/// The policies of all routes.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes {
    rules: Vec<(String, Policy)>,
    otherwise: Policy,
}

impl Routes {
    pub(super) fn add(&mut self, pattern: String, policy: Policy) {
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

    pub(super) fn policy_of(&self, path: &str) -> &Policy {
        let rule = self
            .rules
            .iter()
            .find(|(pattern, _)| matches(pattern, path));
        rule.map_or(&self.otherwise, |(_, policy)| policy)
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
