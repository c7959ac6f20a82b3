//! Behind a run: what clients saw, shown to the two checkers that know nothing of the promises here.

use std::convert::Infallible;

use ringfence_check::blackbox::{self, Caps};
use ringfence_check::history::Header;
use ringfence_check::{Recording, Report, Rule, Verdict, witness};

use crate::observe::{Recorder, Violation};
use crate::plan::Plan;

/// How many states the search for one lease may look at. A correct run needs a few per operation;
/// what is left unknown here others have looked at.
const STATES_MAX: u64 = 2_000_000;

/// What the checkers say of a run.
///
/// # Errors
/// [`Violation`] if one of them says that a promise was broken; the other one may say nothing.
pub fn check(plan: &Plan, recorder: &Recorder) -> Result<u64, Violation> {
    // What was acknowledged before a rollback is gone, as far as clients are concerned.
    let Some(log) = recorder.take_log() else {
        return Ok(0);
    };
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
    let logged = log.into_iter().map(Ok::<_, Infallible>);
    let Ok(replayed) = witness::check(&recording, logged);
    judge(plan, "black box", &seen)?;
    judge(plan, "log witness", &replayed)?;
    let unknown = |report: &Report| u64::from(report.verdict() == Verdict::Unknown);
    Ok(unknown(&seen) + unknown(&replayed))
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
