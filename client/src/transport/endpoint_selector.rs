//! Which member to talk to: pure choice, no I/O.
//!
//! Any member answers every request, so one that works is enough; the leader is preferred, since it
//! answers without a detour. Members name the leader in their greeting and in refusals. For a while
//! after a leader has died they go on naming it: a hint at an address that has just failed means
//! wait, not go.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Moment;
use crate::transport::endpoint::Endpoint;

/// How long an address that failed is not gone to on a hint, and stands last among the candidates.
const REST: Duration = Duration::from_secs(2);
/// The most addresses remembered beside those that the user gave.
const LEARNED_MAX: usize = 16;

/// What is known of the members' addresses.
#[derive(Debug)]
pub(crate) struct EndpointSelector {
    given: Vec<Endpoint>,
    learned: Vec<Endpoint>,
    leader: Option<Endpoint>,
    failed: HashMap<Endpoint, Moment>,
    /// Where the round of candidates begins.
    turn: usize,
}

impl EndpointSelector {
    /// Follows the leader among these addresses; there is at least one. `turn` says with which one
    /// to begin: clients that start together should not all begin with the same.
    pub(crate) fn new(given: Vec<Endpoint>, turn: usize) -> Self {
        Self {
            given,
            learned: Vec::new(),
            leader: None,
            failed: HashMap::new(),
            turn,
        }
    }

    /// The addresses to try, best first.
    pub(crate) fn candidates(&self, now: Moment) -> Vec<Endpoint> {
        let given = self.given.iter().cycle().skip(self.turn % self.given.len());
        let rest = given.take(self.given.len()).chain(&self.learned);
        let mut candidates: Vec<Endpoint> = Vec::new();
        for endpoint in self.leader.iter().chain(rest) {
            if !candidates.contains(endpoint) {
                candidates.push(endpoint.clone());
            }
        }
        // Stable: among those that rest, and among those that do not, the order stays.
        candidates.sort_by_key(|endpoint| self.rests(endpoint, now));
        candidates
    }

    /// A member names the leader's address. `Some` if it is worth going there from `current`.
    pub(crate) fn hint(
        &mut self,
        named: &str,
        current: Option<&Endpoint>,
        now: Moment,
    ) -> Option<Endpoint> {
        // By a node's own socket the client is `local`, by a port it is not: that node forwards.
        if self.given.iter().any(Endpoint::is_local) {
            return None;
        }
        let leader = Endpoint::parse(named).ok()?;
        self.learn(&leader);
        self.leader = Some(leader.clone());
        let elsewhere = current != Some(&leader);
        (elsewhere && !self.rests(&leader, now)).then_some(leader)
    }

    /// The address did not answer, or its connection broke.
    pub(crate) fn failed(&mut self, endpoint: &Endpoint, now: Moment) {
        self.failed.insert(endpoint.clone(), now);
        if self.leader.as_ref() == Some(endpoint) {
            self.leader = None;
        }
        if self.given.iter().cycle().nth(self.turn % self.given.len()) == Some(endpoint) {
            self.turn = (self.turn + 1) % self.given.len();
        }
    }

    /// The address answered: it is a candidate again, and the next round starts with it.
    pub(crate) fn greeted(&mut self, endpoint: &Endpoint) {
        self.failed.remove(endpoint);
        if let Some(at) = self.given.iter().position(|given| given == endpoint) {
            self.turn = at;
        }
    }

    fn rests(&self, endpoint: &Endpoint, now: Moment) -> bool {
        self.failed.get(endpoint).is_some_and(|&at| now < at + REST)
    }

    fn learn(&mut self, endpoint: &Endpoint) {
        if self.given.contains(endpoint) || self.learned.contains(endpoint) {
            return;
        }
        if self.learned.len() == LEARNED_MAX {
            let forgotten = self.learned.remove(0);
            self.failed.remove(&forgotten);
        }
        self.learned.push(endpoint.clone());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const START: Moment = Moment::from_boot(Duration::from_secs(1_000));

    fn endpoint(name: &str) -> Endpoint {
        Endpoint::parse(&format!("{name}:7420")).unwrap()
    }

    fn follow() -> EndpointSelector {
        EndpointSelector::new(vec![endpoint("a"), endpoint("b"), endpoint("c")], 0)
    }

    fn names(candidates: &[Endpoint]) -> String {
        candidates
            .iter()
            .filter_map(|endpoint| endpoint.to_string().chars().next())
            .collect()
    }

    #[test]
    fn the_leader_comes_first() {
        let mut follow = follow();
        assert_eq!(names(&follow.candidates(START)), "abc");

        let going = follow.hint("c:7420", Some(&endpoint("a")), START);

        assert_eq!(going, Some(endpoint("c")));
        assert_eq!(names(&follow.candidates(START)), "cab");
    }

    #[test]
    fn a_hint_at_what_has_just_failed_means_wait() {
        let mut follow = follow();
        follow.failed(&endpoint("a"), START);

        assert_eq!(
            follow.hint("a:7420", Some(&endpoint("b")), START + REST / 2),
            None
        );
        assert_eq!(names(&follow.candidates(START + REST / 2)), "bca");

        assert_eq!(
            follow.hint("a:7420", Some(&endpoint("b")), START + REST),
            Some(endpoint("a"))
        );
    }

    #[test]
    fn a_hint_at_where_we_are_is_no_reason_to_go() {
        assert_eq!(follow().hint("a:7420", Some(&endpoint("a")), START), None);
        assert_eq!(
            follow().hint("not an address", Some(&endpoint("a")), START),
            None
        );
    }

    #[test]
    fn the_round_goes_on_behind_what_failed() {
        let mut follow = follow();
        follow.failed(&endpoint("a"), START);
        assert_eq!(names(&follow.candidates(START)), "bca");

        follow.failed(&endpoint("b"), START);
        assert_eq!(names(&follow.candidates(START)), "cab");

        follow.greeted(&endpoint("a"));
        assert_eq!(names(&follow.candidates(START)), "acb");
    }

    #[test]
    fn addresses_that_hints_teach_are_bounded() {
        let mut follow = follow();
        for port in 1..=100 {
            follow.hint(&format!("x:{port}"), None, START);
        }
        assert_eq!(follow.candidates(START).len(), 3 + LEARNED_MAX);
    }
}
