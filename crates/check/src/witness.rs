//! The second checker: it replays the committed log on the naive reference model and holds what
//! clients saw against that.
//!
//! - Each acknowledged answer is the answer that the model gives to that request.
//! - What had returned before another thing began stands before it in the log; each read shows the
//!   state at an index that it can have been taken at.
//! - Each acknowledged keep-alive stands in the log, between what returned before it was sent and what
//!   began after it was acknowledged.
//! - A session that ended by time in the log had the time that was promised, by its client's clock;
//!   and cluster time never moved faster than true time.
//! - Watches reported what the log says, all of it, in its order.
//!
//! It takes linear time and finds what the search of [`crate::blackbox`] cannot afford to; but it
//! believes the log.

mod answers;
mod matching;
mod order;
mod pace;
mod reads;
mod replay;
mod watches;

use crate::blackbox::Told;
use crate::lives::Lives;
use crate::log::Logged;
use crate::recording::Recording;
use crate::verdict::{Report, Rule, Violation};
use order::Order;
use replay::Replay;

/// Holds a history against a log.
///
/// The log must be that of a node that has everything that was ever acknowledged: one that was caught
/// up when it was stopped. It must begin at the beginning; if it was purged the verdict is unknown,
/// also with the snapshot at hand: what was answered before is in no snapshot, and a state that is
/// taken for given would hide how it came about.
///
/// # Errors
/// Those of `log`.
pub fn check<E>(
    recording: &Recording,
    log: impl IntoIterator<Item = Result<Logged, E>>,
) -> Result<Report, E> {
    let mut report = Report::default();
    let mut replay = Replay::of(recording);
    for logged in log {
        if let Err(unknown) = replay.apply(logged?) {
            report.unknowns.push(unknown);
            return Ok(report.finish());
        }
    }
    let told = Told::of(recording);
    let lives = Lives::of(recording);
    let matched = matching::check(recording, &replay, &told, &mut report);
    let order = Order::of(recording, &matched);
    order.check(recording, &matched, &told, &mut report);
    reads::check(recording, &replay, &order, &told, &mut report);
    keep_alives(recording, &replay, &order, &told, &mut report);
    ends(&replay, &order, &lives, &told, &mut report);
    pace::check(recording, &matched, &replay, &told, &mut report);
    watches::check(recording, &replay, &told, &mut report);
    report.looked_at.extend([
        ("entries", replay.entries),
        ("operations found in the log", matched.found),
        ("keep-alives", recording.keep_alives.len() as u64),
        ("sessions that ran out of time", replay.expired.len() as u64),
    ]);
    Ok(report.finish())
}

/// An acknowledgement is a commit.
fn keep_alives(
    recording: &Recording,
    replay: &Replay,
    order: &Order,
    told: &Told,
    report: &mut Report,
) {
    for keep_alive in &recording.keep_alives {
        let (after, before) = order.window(keep_alive.sent, keep_alive.acked);
        let signs = replay.signs.get(&keep_alive.session);
        let signs = signs.map_or(&[][..], Vec::as_slice);
        let first = signs.partition_point(|&index| index <= after);
        if signs.get(first).is_some_and(|&index| index < before) {
            continue;
        }
        report.violated(Violation {
            rule: Rule::I5,
            t: keep_alive.acked,
            lease: None,
            operations: Vec::new(),
            what: format!(
                "a keep-alive of session {} was acknowledged ({}), and no entry after {after}{} \
                 extends that session",
                keep_alive.session,
                told.span(keep_alive.sent, Some(keep_alive.acked)),
                match before {
                    u64::MAX => String::new(),
                    before => format!(" and before {before}"),
                }
            ),
        });
    }
}

/// Who ran out of time had it.
fn ends(replay: &Replay, order: &Order, lives: &Lives, told: &Told, report: &mut Report) {
    for (&session, &index) in &replay.expired {
        // The entry was applied when something behind it had been answered.
        let Some(by) = order.applied_by(index) else {
            continue;
        };
        let not_before = lives.expires_not_before(session);
        let Some(life) = lives.get(session).filter(|_| by < not_before) else {
            continue;
        };
        report.violated(Violation {
            rule: Rule::I7,
            t: by,
            lease: None,
            operations: Vec::new(),
            what: format!(
                "entry {index} ended session {session} by time, by {}; but what it sent at {} was \
                 acknowledged, so its {} ms were not over before {}",
                told.time(by),
                told.time(life.last_sign),
                life.ttl_ms.unwrap_or_default(),
                told.time(not_before)
            ),
        });
    }
}
