//! What is left out of a page whose run was too long for it, and the sentences that say so.
//!
//! Stale writes, what had no answer, and everything around a stale write stay longest; keep-alives
//! and reads go first. What goes is spread evenly over the run.

use std::collections::{BTreeMap, BTreeSet};

use super::call::{Call, Fate};

/// The most operations on a page.
pub const OPERATIONS_MAX: usize = 120_000;
/// The most leases on a page; those with stale writes and with the most operations are shown.
pub const LEASES_MAX: usize = 200;
/// The most grants, and the most beliefs, on a page.
pub(super) const BANDS_MAX: usize = 60_000;
/// The most faults, and the most spans of roles, on a page.
pub(super) const FAULTS_MAX: usize = 5_000;
/// The most broken rules on a page.
pub(super) const ERRORS_MAX: usize = 500;
/// The most characters of a remark.
pub(super) const TEXT_CHARS_MAX: usize = 240;
/// The most characters of a reason for the verdict, and of what broke a rule.
pub(super) const REASON_CHARS_MAX: usize = 2_000;
/// The most remarks that differ, for operations.
pub(super) const TEXTS_MAX: usize = 10_000;

/// What is within this many nanoseconds of a stale write belongs to its story.
const NEAR_NS: u64 = 1_000_000_000;

/// What kinds of operations are called when some of them are left out, from the last to go to the
/// first.
const RANKS: [&str; 4] = [
    "stale writes",
    "operations near a stale write or without an answer",
    "other operations",
    "keep-alives, checks and reads",
];

/// Drops the calls that do not fit, says at each kind how many, and keeps the order of the rest.
pub(super) fn calls(calls: Vec<Call>, most: usize, said: &mut Vec<String>) -> Vec<Call> {
    if calls.len() <= most {
        return calls;
    }
    let moments = stale_moments(&calls);
    let ranks: Vec<usize> = calls.iter().map(|call| rank(call, &moments)).collect();
    let mut counts = [0_usize; RANKS.len()];
    for rank in &ranks {
        counts[*rank] += 1;
    }
    let mut room = most;
    let mut quotas = [0_usize; RANKS.len()];
    for (quota, count) in quotas.iter_mut().zip(counts) {
        *quota = count.min(room);
        room -= *quota;
    }
    for (rank, name) in RANKS.iter().enumerate() {
        let dropped = counts[rank] - quotas[rank];
        if dropped > 0 {
            said.push(format!("{dropped} of {} {name}.", counts[rank]));
        }
    }
    let mut seen = [0_usize; RANKS.len()];
    calls
        .into_iter()
        .zip(ranks)
        .filter(|(_, rank)| {
            let nth = seen[*rank];
            seen[*rank] += 1;
            // The nth is kept if the quota's share passes a whole number there.
            (nth + 1) * quotas[*rank] / counts[*rank] > nth * quotas[*rank] / counts[*rank]
        })
        .map(|(call, _)| call)
        .collect()
}

fn stale_moments(calls: &[Call]) -> Vec<u64> {
    let mut moments: Vec<u64> = calls
        .iter()
        .filter(|call| call.stale)
        .map(Call::moment)
        .collect();
    moments.sort_unstable();
    moments
}

fn rank(call: &Call, stale: &[u64]) -> usize {
    if call.stale {
        return 0;
    }
    let at = stale.partition_point(|moment| moment + NEAR_NS < call.moment());
    let near = stale
        .get(at)
        .is_some_and(|moment| *moment <= call.moment() + NEAR_NS);
    let often = matches!(call.kind, "keep-alive" | "check" | "get" | "read");
    match (near || call.fate == Fate::Unknown, often) {
        (true, _) => 1,
        (false, false) => 2,
        (false, true) => 3,
    }
}

/// The leases that are shown, by number.
pub(super) fn leases(calls: &[Call], known: usize, said: &mut Vec<String>) -> BTreeSet<usize> {
    if known <= LEASES_MAX {
        return (0..known).collect();
    }
    let mut weights: BTreeMap<usize, (bool, usize)> = BTreeMap::new();
    for call in calls {
        if let Some(lease) = call.lease {
            let weight = weights.entry(lease).or_default();
            weight.0 |= call.stale;
            weight.1 += 1;
        }
    }
    let mut order: Vec<usize> = (0..known).collect();
    order.sort_by_key(|lease| std::cmp::Reverse(weights.get(lease).copied().unwrap_or_default()));
    order.truncate(LEASES_MAX);
    said.push(format!(
        "{} of {known} leases, with their grants and operations.",
        known - LEASES_MAX
    ));
    order.into_iter().collect()
}

/// Keeps every kth of `items` so that at most `most` stay, and says so.
pub(super) fn evenly<T>(items: Vec<T>, most: usize, name: &str, said: &mut Vec<String>) -> Vec<T> {
    if items.len() <= most {
        return items;
    }
    let all = items.len();
    said.push(format!("{} of {all} {name}.", all - most));
    let kept = |nth: usize| (nth + 1) * most / all > nth * most / all;
    items
        .into_iter()
        .enumerate()
        .filter(|(nth, _)| kept(*nth))
        .map(|(_, item)| item)
        .collect()
}

/// The first [`TEXT_CHARS_MAX`] characters of a remark.
pub(super) fn text(whole: &str) -> String {
    cut(whole, TEXT_CHARS_MAX)
}

/// The first [`REASON_CHARS_MAX`] characters of a reason.
pub(super) fn reason(whole: &str) -> String {
    cut(whole, REASON_CHARS_MAX)
}

fn cut(whole: &str, most: usize) -> String {
    if whole.chars().count() <= most {
        return whole.to_owned();
    }
    let mut cut: String = whole.chars().take(most).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(count: u64) -> Vec<Call> {
        (0..count)
            .map(|at| {
                let kind = if at % 10 == 0 {
                    "acquire"
                } else {
                    "keep-alive"
                };
                let mut call = Call::begun(1, kind, at * 1_000_000_000);
                call.end = Some(call.begin + 1);
                call.fate = Fate::Done;
                call.stale = at == 500;
                call
            })
            .collect()
    }

    #[test]
    fn what_fits_is_left_alone() {
        let mut said = Vec::new();
        assert_eq!(calls(run(100), 100, &mut said).len(), 100);
        assert_eq!(said, Vec::<String>::new());
    }

    #[test]
    fn common_calls_go_first_and_stale_writes_never_before_them() {
        let mut said = Vec::new();
        let kept = calls(run(1_000), 200, &mut said);

        assert_eq!(kept.len(), 200);
        assert_eq!(kept.iter().filter(|call| call.stale).count(), 1);
        let acquires = kept.iter().filter(|call| call.kind == "acquire").count();
        assert_eq!(acquires, 100);
        assert_eq!(said, ["800 of 898 keep-alives, checks and reads."]);
        let begins: Vec<u64> = kept.iter().map(|call| call.begin).collect();
        assert!(begins.is_sorted());
        let late = begins.iter().filter(|begin| **begin > 500_000_000_000);
        assert!((80..120).contains(&late.count()), "spread over the run");
    }

    #[test]
    fn leases_with_stale_writes_stay() {
        let mut calls: Vec<Call> = run(1_000);
        for (at, call) in calls.iter_mut().enumerate() {
            call.lease = Some(at % 300);
        }
        let mut said = Vec::new();
        let kept = leases(&calls, 300, &mut said);

        assert_eq!(kept.len(), LEASES_MAX);
        assert!(kept.contains(&(500 % 300)), "the one with the stale write");
        assert_eq!(
            said,
            ["100 of 300 leases, with their grants and operations."]
        );
    }

    #[test]
    fn a_long_remark_is_cut_between_characters() {
        let cut = text(&"ä".repeat(1_000));
        assert_eq!(cut.chars().count(), TEXT_CHARS_MAX + 1);
    }
}
