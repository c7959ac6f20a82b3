//! Runs from seeds that are kept.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringfence_sim::campaign::Kind;
use ringfence_sim::checked::Checked;
use ringfence_sim::observe::{Counts, Recorder, Violation};
use ringfence_sim::plan::Plan;
use ringfence_sim::play::{Played, play};
use ringfence_sim::trace::Trace;

use super::plan;

/// How many run at a time.
const JOBS: usize = 2;
/// Set by people: the one line that is run, instead of all that are kept.
const ONLY: &str = "RINGFENCE_SIM_KEPT";

/// A seed, and for how many seconds faults come and go; `None` is as long as its plan says.
type Line = (u64, Option<u64>);

fn parse(line: &str) -> Line {
    let mut words = line.split_whitespace();
    let mut number = || words.next().map(|word| word.parse().unwrap());
    (number().unwrap(), number())
}

fn kept() -> Vec<Line> {
    if let Ok(line) = std::env::var(ONLY) {
        return vec![parse(&line)];
    }
    let lines = include_str!("../../seeds.txt").lines();
    let lines = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(parse).collect()
}

/// What runs this line of the file again.
fn reproduce((seed, seconds): Line) -> String {
    match seconds {
        None => Kind::Brisk.reproduce(seed),
        Some(seconds) => format!(
            "REPRODUCE: {ONLY}=\"{seed} {seconds}\" cargo test -p ringfence-sim --test promises kept"
        ),
    }
}

/// What is wrong with the run of a line, and how to see it again. None of a run is a panic.
fn wrong(line: Line, played: Option<&Played>) -> Option<String> {
    let why = match played {
        None => "a panic, which is told above".to_owned(),
        Some(Played {
            broken: Some((violation, newest)),
            ..
        }) => format!("{violation}\n{newest}"),
        Some(played) if played.counts.grants == 0 => "nothing is granted".to_owned(),
        Some(played) if played.counts.admitted == 0 => "nothing is written".to_owned(),
        Some(_) => return None,
    };
    Some(format!("seed {}: {why}\n{}\n", line.0, reproduce(line)))
}

fn run(line: Line) -> Option<String> {
    let drawn = match line {
        (seed, None) => Plan::of(seed),
        (seed, Some(seconds)) => plan(seed, seconds),
    };
    let played = catch_unwind(AssertUnwindSafe(|| play(&drawn, Trace::new(false))));
    wrong(line, played.as_ref().ok())
}

#[test]
fn the_seeds_that_are_kept_break_no_promise() {
    let (kept, next) = (kept(), AtomicUsize::new(0));
    let job = || -> Vec<String> {
        let lines = std::iter::from_fn(|| kept.get(next.fetch_add(1, Ordering::Relaxed)));
        lines.filter_map(|line| run(*line)).collect()
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..JOBS).map(|_| scope.spawn(job)).collect();
        let wrong = jobs.into_iter().flat_map(|job| job.join().unwrap());
        wrong.collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

#[test]
fn a_kept_seed_that_fails_says_how_to_run_it_again() {
    let line = (1_082, None);
    let mut played = Played {
        simulated: Duration::from_secs(90),
        counts: Counts::default(),
        turns: 0,
        checked: Checked::default(),
        hash: 0,
        broken: None,
        recorder: Recorder::new(Plan::of(1_082).bounds),
    };
    let again = "\nREPRODUCE: cargo xtask sim --seed 1082\n";
    let ends = |wrong: Option<String>| wrong.is_some_and(|wrong| wrong.ends_with(again));
    assert!(ends(wrong(line, None)));
    assert!(ends(wrong(line, Some(&played))));
    (played.counts.grants, played.counts.admitted) = (1, 1);
    assert_eq!(wrong(line, Some(&played)), None);
    played.broken = Some((Violation::of("I4", "two believe"), String::new()));
    assert!(ends(wrong(line, Some(&played))));
    let short = reproduce((1, Some(12)));
    assert!(short.starts_with("REPRODUCE: RINGFENCE_SIM_KEPT=\"1 12\" cargo test"));
}
