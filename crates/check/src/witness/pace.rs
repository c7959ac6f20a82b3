//! I22, the half that no pause can excuse: cluster time never moves faster than true time.

use super::matching::Matched;
use super::replay::Replay;
use crate::blackbox::Told;
use crate::lives::ROUNDING_NS;
use crate::recording::Recording;
use crate::verdict::{Report, Rule, Violation};

const NANOS_PER_MILLI: i128 = 1_000_000;
const MILLION: i128 = 1_000_000;

/// An entry whose cluster time and true time are both known to one side.
struct Moment {
    index: u64,
    /// Cluster time minus true time at the fastest rate allowed, in ns.
    lead: i128,
    /// True time, in ns.
    t: u64,
    cluster_ms: u64,
}

pub(super) fn check(
    recording: &Recording,
    matched: &Matched,
    replay: &Replay,
    told: &Told,
    report: &mut Report,
) {
    let rate = MILLION + i128::from(recording.header.rate_bound_ppm);
    let moment = |index: u64, t: u64| {
        let at = replay.times.partition_point(|&(since, _)| since <= index);
        let (_, cluster_ms) = *replay.times.get(at.checked_sub(1)?)?;
        let lead = i128::from(cluster_ms) * NANOS_PER_MILLI - i128::from(t) * rate / MILLION;
        Some(Moment {
            index,
            lead,
            t,
            cluster_ms,
        })
    };
    // An entry was stamped after its operation began, and before that returned.
    let mut earliest = Vec::new();
    let mut latest = Vec::new();
    for (place, operation) in matched.places.iter().zip(&recording.operations) {
        let (Some(place), Some(end)) = (place, operation.end) else {
            continue;
        };
        earliest.extend(moment(place.first, operation.begin));
        latest.extend(moment(place.answered, end));
    }
    earliest.sort_by_key(|moment| moment.index);
    latest.sort_by_key(|moment| moment.index);
    let mut earlier = earliest.iter().peekable();
    let mut least: Option<&Moment> = None;
    for later in &latest {
        while let Some(moment) = earlier.next_if(|moment| moment.index < later.index) {
            if least.is_none_or(|least| moment.lead < least.lead) {
                least = Some(moment);
            }
        }
        let Some(before) = least else { continue };
        let too_fast = later.lead - before.lead - i128::from(ROUNDING_NS);
        if too_fast > 0 {
            report.violated(Violation {
                rule: Rule::I22,
                t: later.t,
                lease: None,
                operations: Vec::new(),
                what: format!(
                    "cluster time moved from {} ms at entry {} (begun at {}) to {} ms at entry {} \
                     (answered by {}), {} µs more than true time can have",
                    before.cluster_ms,
                    before.index,
                    told.time(before.t),
                    later.cluster_ms,
                    later.index,
                    told.time(later.t),
                    too_fast / 1_000
                ),
            });
            // One jump shows in everything behind it.
            return;
        }
    }
}
