//! The verdict on one packet: when it is delivered, how often, or not at all.
//!
//! Chance is drawn per direction from the seed, so that the n-th packet of a direction meets the
//! same fate in each run with the same faults.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::rule::{Counters, Link, Rule};
use crate::clock::nanos;

/// What waits longer than this for its turn on a slow line is lost, as in a router.
const QUEUE_MAX: Duration = Duration::from_millis(500);
/// By how much a packet that is to be reordered is late where nothing else delays it.
const OVERTAKEN_BY: std::ops::Range<u64> = 2_000_000..20_000_000;

/// All that is done to packets now.
#[derive(Debug)]
pub(super) struct Rules {
    seed: u64,
    imposed: BTreeMap<u64, Imposed>,
    next: u64,
    chance: BTreeMap<Link, StdRng>,
}

/// What one fault does.
#[derive(Debug)]
struct Imposed {
    links: BTreeMap<Link, Line>,
    counters: Counters,
}

/// One direction under one fault.
#[derive(Debug)]
struct Line {
    rule: Rule,
    /// When the line is free for the next packet, if its rate is limited.
    free_at: u64,
    /// When the newest packet that keeps the order is delivered.
    last_at: u64,
}

/// When a packet is delivered: at no time, once or twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Deliveries {
    pub(super) first: Option<u64>,
    pub(super) second: Option<u64>,
}

impl Rules {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            imposed: BTreeMap::new(),
            next: 1,
            chance: BTreeMap::new(),
        }
    }

    /// Imposes a rule on each of these directions, on top of all others.
    pub(super) fn impose(&mut self, links: impl IntoIterator<Item = (Link, Rule)>) -> u64 {
        let links = links.into_iter().map(|(link, rule)| {
            let line = Line {
                rule,
                free_at: 0,
                last_at: 0,
            };
            (link, line)
        });
        let imposed = Imposed {
            links: links.collect(),
            counters: Counters::default(),
        };
        let number = self.next;
        self.next += 1;
        self.imposed.insert(number, imposed);
        number
    }

    pub(super) fn lift(&mut self, number: u64) -> Counters {
        self.imposed
            .remove(&number)
            .map(|imposed| imposed.counters)
            .unwrap_or_default()
    }

    pub(super) fn counters(&self, number: u64) -> Counters {
        let imposed = self.imposed.get(&number);
        imposed.map(|imposed| imposed.counters).unwrap_or_default()
    }

    /// Judges a packet of so many bytes that goes this way at `now`.
    pub(super) fn judge(&mut self, link: Link, bytes: usize, now: u64) -> Deliveries {
        let seed = self.seed;
        let chance = self.chance.entry(link).or_insert_with(|| {
            let own = (link.0 as u64) << 32 | link.1 as u64;
            StdRng::seed_from_u64(seed ^ own.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        });
        let (mut at, mut twice) = (now, false);
        for imposed in self.imposed.values_mut() {
            let Some(line) = imposed.links.get_mut(&link) else {
                continue;
            };
            imposed.counters.seen += 1;
            match line.pass(bytes, at, chance) {
                None => {
                    imposed.counters.dropped += 1;
                    return Deliveries::default();
                }
                Some(passed) => {
                    imposed.counters.delayed += u64::from(passed.at > at);
                    imposed.counters.duplicated += u64::from(passed.twice);
                    imposed.counters.reordered += u64::from(passed.overtakes);
                    at = passed.at;
                    twice |= passed.twice;
                }
            }
        }
        Deliveries {
            first: Some(at),
            second: twice.then_some(at),
        }
    }
}

struct Passed {
    at: u64,
    twice: bool,
    overtakes: bool,
}

impl Line {
    fn pass(&mut self, bytes: usize, now: u64, chance: &mut StdRng) -> Option<Passed> {
        let rule = self.rule;
        if rule.cut || (rule.loss > 0.0 && chance.random_bool(rule.loss.min(1.0))) {
            return None;
        }
        let twice = rule.duplicate > 0.0 && chance.random_bool(rule.duplicate.min(1.0));
        let overtakes = rule.reorder > 0.0 && chance.random_bool(rule.reorder.min(1.0));
        let mut at = now;
        if let Some(rate) = rule.bytes_per_second {
            let begin = self.free_at.max(now);
            if begin - now > nanos(QUEUE_MAX) {
                return None;
            }
            self.free_at = begin + (bytes as u64).saturating_mul(1_000_000_000) / rate.max(1);
            at = self.free_at;
        }
        let late = nanos(rule.delay) + draw(nanos(rule.jitter), chance);
        if overtakes && late == 0 {
            // Those behind it overtake it.
            at += chance.random_range(OVERTAKEN_BY);
        } else if !overtakes {
            at = (at + late).max(self.last_at);
            self.last_at = at;
        }
        Some(Passed {
            at,
            twice,
            overtakes,
        })
    }
}

fn draw(below: u64, chance: &mut StdRng) -> u64 {
    match below {
        0 => 0,
        below => chance.random_range(0..below),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn one(rule: Rule) -> Rules {
        let mut rules = Rules::new(7);
        rules.impose([((0, 1), rule)]);
        rules
    }

    #[test]
    fn a_cut_direction_passes_nothing_and_the_other_all() {
        let mut rules = one(Rule::CUT);

        assert_eq!(rules.judge((0, 1), 60, 5), Deliveries::default());
        assert_eq!(rules.judge((1, 0), 60, 5).first, Some(5));
        assert_eq!(rules.counters(1).dropped, 1);
    }

    #[test]
    fn what_is_lifted_has_no_effect_and_keeps_no_counters() {
        let mut rules = one(Rule::CUT);
        rules.judge((0, 1), 60, 5);

        assert_eq!(rules.lift(1).dropped, 1);
        assert_eq!(rules.judge((0, 1), 60, 6).first, Some(6));
        assert_eq!(rules.lift(1), Counters::default());
    }

    #[test]
    fn jitter_keeps_the_order() {
        let mut rules = one(Rule {
            delay: Duration::from_millis(10),
            jitter: Duration::from_millis(50),
            ..Rule::default()
        });
        let mut last = 0;
        for sent in 0..200 {
            let at = rules.judge((0, 1), 60, sent * MS).first.unwrap_or(0);
            assert!(at >= last && at >= sent * MS + 10 * MS, "{at} {last}");
            last = at;
        }
    }

    #[test]
    fn some_overtake_others_where_that_is_asked_for() {
        let mut rules = one(Rule {
            delay: Duration::from_millis(20),
            reorder: 0.2,
            ..Rule::default()
        });
        let arrivals: Vec<u64> = (0..100)
            .filter_map(|sent| rules.judge((0, 1), 60, sent * MS).first)
            .collect();

        assert!(!arrivals.is_sorted(), "{arrivals:?}");
        assert!(rules.counters(1).reordered > 5);
    }

    #[test]
    fn a_slow_line_takes_its_time_and_drops_what_waits_too_long() {
        let mut rules = one(Rule {
            bytes_per_second: Some(10_000),
            ..Rule::default()
        });
        let arrivals: Vec<Option<u64>> = (0..20)
            .map(|_| rules.judge((0, 1), 1_000, 0).first)
            .collect();

        assert_eq!(arrivals[0], Some(100 * MS));
        assert_eq!(arrivals[1], Some(200 * MS));
        assert!(arrivals[19].is_none());
    }

    #[test]
    fn a_direction_meets_the_same_fate_with_the_same_seed() {
        let rule = Rule {
            loss: 0.3,
            duplicate: 0.3,
            ..Rule::default()
        };
        let fate = |rules: &mut Rules| -> Vec<Deliveries> {
            (0..100).map(|at| rules.judge((0, 1), 60, at)).collect()
        };

        assert_eq!(fate(&mut one(rule)), fate(&mut one(rule)));
    }
}
