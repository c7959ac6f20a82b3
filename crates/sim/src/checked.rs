//! Behind a run: what clients saw, shown to the two checkers that know nothing of the promises here.

use std::convert::Infallible;
use std::time::Duration;

use ringfence_check::blackbox::{self, Caps};
use ringfence_check::history::Header;
use ringfence_check::{Recording, Report, Rule, Verdict, witness};

use crate::observe::{Recorder, Violation};
use crate::plan::Plan;

/// How many states the search for one lease may look at. A correct run needs a few per operation;
/// what is left unknown here others have looked at.
const STATES_MAX: u64 = 2_000_000;

/// What the checkers made of a run that breaks no promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// How many of them could not say whether it was right.
    pub unknown: u64,
    /// How many of them were shown a part of it: what was seen before all disks were set back.
    pub partial: u64,
    /// How much of its time, behind that, they were not shown.
    pub unchecked: Duration,
}

/// What the checkers say of a run that took so much time.
///
/// What was acknowledged before a rollback of all disks is gone behind it, and there is another log,
/// so that they can be asked of what was seen before. That is the whole history of a run that ended
/// there: what had no answer yet may or may not have been done.
///
/// # Errors
/// [`Violation`] if one of them says that a promise was broken; the other one may say nothing.
pub fn check(plan: &Plan, recorder: &Recorder, lasted: Duration) -> Result<Checked, Violation> {
    let rolled_back = recorder.rolled_back();
    let mut header = Header::new("sim");
    header.seed = Some(plan.seed);
    header.rate_bound_ppm = plan.bounds.node_ppm.max(plan.bounds.client_ppm);
    let recording = Recording::of(header, recorder.take_history())
        .map_err(|error| Violation::of("recording", error.to_string()))?;
    let caps = Caps {
        states: STATES_MAX,
        ..Caps::default()
    };
    let seen = blackbox::check(&recording, caps);
    let logged = recorder.take_log().into_iter().map(Ok::<_, Infallible>);
    let Ok(replayed) = witness::check(&recording, logged);
    judge(plan, "black box", &seen)?;
    judge(plan, "log witness", &replayed)?;
    let reports = [seen, replayed];
    let unknown = |report: &&Report| report.verdict() == Verdict::Unknown;
    Ok(Checked {
        unknown: reports.iter().filter(unknown).count() as u64,
        partial: rolled_back.map_or(0, |_| reports.len() as u64),
        unchecked: rolled_back.map_or(Duration::ZERO, |at| lasted.saturating_sub(at)),
    })
}

fn judge(plan: &Plan, who: &str, report: &Report) -> Result<(), Violation> {
    let exclusive = plan.bounds.beliefs_are_exclusive();
    let mut counts = report.violations.iter().filter(|violation| {
        // Clocks beyond the bound lift this one promise.
        violation.rule != Rule::I4 || exclusive
    });
    match counts.next() {
        Some(first) => Err(Violation::of(
            "checker",
            format!("{who}, {:?}: {}", first.rule, first.what),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringfence_check::history::{self, BeliefEnd, Invoked, Op, Outcome, Returned};

    use super::*;
    use crate::observe::{Belief, Observation};

    const LASTED: Duration = Duration::from_secs(3_600);

    /// What the checkers say of a run in which this was seen.
    fn checked(told: impl FnOnce(&Recorder)) -> Result<Checked, Violation> {
        let plan = Plan::with(1, Duration::from_secs(5));
        let recorder = Recorder::new(plan.bounds);
        told(&recorder);
        check(&plan, &recorder, LASTED)
    }

    fn opens(recorder: &Recorder, id: u64, session: u64) {
        let op = Op::Open {
            ttl_ms: 2_000,
            open_id: Some("6f".to_owned()),
            acquire: None,
        };
        recorder.see(Observation::Asked(Invoked {
            id,
            t: id * 1_000,
            client: 1,
            session: None,
            request: None,
            op,
        }));
        let outcome = Outcome::Opened {
            session,
            ttl_ms: 2_000,
            acquired: None,
        };
        recorder.see(Observation::Answered(Returned {
            id,
            t: id * 1_000 + 1,
            outcome,
            index: None,
        }));
    }

    #[test]
    fn the_black_box_checker_sees_what_was_before_a_rollback() {
        let two_answers = checked(|recorder| {
            opens(recorder, 1, 1);
            opens(recorder, 2, 7);
            recorder.see(Observation::RolledBack);
        });
        let why = two_answers.unwrap_err().why;
        assert!(why.starts_with("black box, I5"), "{why}");
    }

    #[test]
    fn the_log_witness_sees_what_was_before_a_rollback() {
        let never_in_the_log = checked(|recorder| {
            opens(recorder, 1, 1);
            recorder.see(Observation::RolledBack);
        });
        let why = never_in_the_log.unwrap_err().why;
        assert!(why.starts_with("log witness, I5"), "{why}");
    }

    #[test]
    fn what_is_behind_a_rollback_is_counted_as_unchecked() {
        let behind = |recorder: &Recorder| {
            recorder.see(Observation::RolledBack);
            opens(recorder, 1, 1);
            opens(recorder, 2, 7);
        };
        let seen = checked(behind).unwrap();
        assert_eq!((seen.unknown, seen.partial), (0, 2));
        assert!(seen.unchecked > LASTED / 2, "{seen:?}");
        assert_eq!(checked(|_| ()), Ok(Checked::default()));
    }

    #[test]
    fn beliefs_are_cut_off_at_a_rollback_and_end_when_they_ended() {
        let recorder = Recorder::new(Plan::with(1, Duration::from_secs(5)).bounds);
        let belief = |token| Belief {
            client: 1,
            session: 1,
            lease: "db".to_owned(),
            token,
        };
        let (earlier, later) = (belief(1), belief(2));
        recorder.believe(&earlier);
        recorder.believe(&later);
        let before = recorder.now();
        recorder.see(Observation::RolledBack);
        let cut = recorder.rolled_back().unwrap();
        // Reported behind the rollback, both of them.
        recorder.doubt(&earlier, before, BeliefEnd::Window);
        recorder.doubt(&later, cut + LASTED, BeliefEnd::Window);
        let ends = recorder.take_history().into_iter().map(|record| {
            let history::Record::Belief(belief) = record else {
                panic!("{record:?}");
            };
            (u128::from(belief.until), belief.why)
        });
        let expected = [
            (before.as_nanos(), BeliefEnd::Window),
            (cut.as_nanos(), BeliefEnd::RecordingEnded),
        ];
        assert_eq!(ends.collect::<Vec<_>>(), expected);
    }
}
