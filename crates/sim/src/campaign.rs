//! Many seeds, one after another on each core, with what became of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock::lock;
use crate::play::{self, Verdict};
use crate::runner;
use crate::trace::Trace;

/// How often progress is shown.
const SHOW_EVERY: Duration = Duration::from_secs(5);
/// A seed that runs longer than this on a real clock is taken to hang. It takes some seconds, but
/// others may want the machine too.
const HANGS_AFTER: Duration = Duration::from_secs(1_800);
/// How many of the last lines of a trace are shown with a failure.
const LINES_SHOWN: usize = 40;

/// Runs a seed; what happens goes into the trace.
pub type Scenario = fn(u64, Trace) -> Verdict;

/// What kind of run a seed means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A minute or two in which much happens.
    Brisk,
    /// An hour in which less happens.
    Long,
    /// A minute or two without faults: what the simulation costs where much happens.
    Calm,
    /// An hour without faults: what it costs where less happens.
    CalmLong,
}

impl Kind {
    fn scenario(self) -> Scenario {
        match self {
            Self::Brisk => play::scenario,
            Self::Long => play::long,
            Self::Calm => play::calm,
            Self::CalmLong => play::calm_long,
        }
    }

    /// The line that says what runs a seed of this kind again.
    #[must_use]
    pub fn reproduce(self, seed: u64) -> String {
        let kind = match self {
            Self::Brisk => "",
            Self::Long => " --long",
            Self::Calm => " --calm",
            Self::CalmLong => " --calm --long",
        };
        format!("REPRODUCE: cargo xtask sim{kind} --seed {seed}")
    }
}

/// What is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The first seed.
    pub from: u64,
    /// How many seeds there are.
    pub seeds: u64,
    /// No seed is begun after so much simulated time, in hours.
    pub hours: Option<u64>,
    /// How many run at a time.
    pub jobs: usize,
    /// Where traces and the list of failed seeds go.
    pub into: PathBuf,
    /// Whether to keep every trace as a file.
    pub traces: bool,
    /// What kind of runs these are.
    pub kind: Kind,
}

/// Where it reports what happens, one or more whole lines at a time.
type Tell<'a> = &'a (dyn Fn(&str) + Sync);

#[derive(Default)]
struct Tally {
    next: u64,
    done: u64,
    simulated: Duration,
    counts: BTreeMap<String, u64>,
    failed: Vec<u64>,
    /// What each job runs, and since when.
    running: BTreeMap<usize, (u64, Instant)>,
}

/// Runs the seeds and tells of them on standard output.
#[must_use]
pub fn run(options: &Options) -> ExitCode {
    let tell = |text: &str| println!("{text}");
    run_all(options, options.kind.scenario(), &tell)
}

fn run_all(options: &Options, scenario: Scenario, tell: Tell<'_>) -> ExitCode {
    let begun = now();
    let tally = Arc::new(Mutex::new(Tally::default()));
    runner::be_quiet(true);
    std::thread::scope(|scope| {
        for job in 0..options.jobs {
            let tally = tally.clone();
            scope.spawn(move || work(job, options, scenario, &tally, tell));
        }
        watch(options, &tally, begun, tell);
    });
    runner::be_quiet(false);
    let tally = lock(&tally);
    tell(&line(&tally, options, begun));
    if tally.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Takes seeds until there are no more.
fn work(job: usize, options: &Options, scenario: Scenario, tally: &Mutex<Tally>, tell: Tell<'_>) {
    loop {
        let seed = {
            let mut tally = lock(tally);
            tally.running.remove(&job);
            let enough = options
                .hours
                .is_some_and(|hours| tally.simulated.as_secs() >= hours * 3_600);
            if tally.next >= options.seeds || enough {
                return;
            }
            let seed = options.from + tally.next;
            tally.next += 1;
            tally.running.insert(job, (seed, now()));
            seed
        };
        let trace = Trace::new(options.traces);
        let verdict = one(seed, scenario, &trace);
        let mut tally = lock(tally);
        tally.done += 1;
        tally.simulated += verdict.simulated;
        for (what, count) in &verdict.counts {
            *tally.counts.entry(what.clone()).or_default() += count;
        }
        if options.traces {
            let path = options.into.join(format!("{seed}.trace"));
            keep(&path, &trace.text(), tell);
        }
        if let Some(broken) = &verdict.broken {
            tally.failed.push(seed);
            let failed = &tally.failed;
            keep(&options.into.join("failed"), &numbers(failed), tell);
            tell(&failure(seed, broken, verdict.simulated, &trace));
            // Now, and not at the end: a person who stops the run has it too.
            tell(&options.kind.reproduce(seed));
        } else if options.seeds == 1 {
            tell(&format!("seed {seed} passed: trace {:016x}", verdict.hash));
        }
    }
}

/// Runs one seed; a panic is a failure like any other.
#[must_use]
pub fn one(seed: u64, scenario: Scenario, trace: &Trace) -> Verdict {
    let ran = catch_unwind(AssertUnwindSafe(|| scenario(seed, trace.clone())));
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = runner::take_panic().or(text);
        Verdict {
            broken: Some(text.unwrap_or_else(|| "a panic without a word".to_owned())),
            hash: trace.hash(),
            ..Verdict::default()
        }
    })
}

/// What is reported of a seed that failed: what broke, when, and the newest lines of its trace.
fn failure(seed: u64, broken: &str, simulated: Duration, trace: &Trace) -> String {
    let text = trace.text();
    let lines: Vec<&str> = text.lines().collect();
    let newest = lines.len().saturating_sub(LINES_SHOWN);
    // A panic leaves no verdict, but its last line has its time.
    let last = lines.last().and_then(|line| line.split_whitespace().next());
    let at = match last.and_then(|time| time.parse::<f64>().ok()) {
        Some(last) if simulated.is_zero() => last,
        _ => simulated.as_secs_f64(),
    };
    let mut told = format!("seed {seed} FAILED at {at:.1} s: {broken}");
    for line in &lines[newest..] {
        told.push_str("\n    ");
        told.push_str(line);
    }
    told
}

fn numbers(seeds: &[u64]) -> String {
    seeds.iter().map(|seed| format!("{seed}\n")).collect()
}

/// What cannot be kept is missed by a person, and changes no verdict.
fn keep(path: &Path, text: &str, tell: Tell<'_>) {
    let written = path
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(path, text));
    if let Err(error) = written {
        tell(&format!("cannot write {}: {error}", path.display()));
    }
}

/// Shows progress until every seed is done.
fn watch(options: &Options, tally: &Mutex<Tally>, begun: Instant, tell: Tell<'_>) {
    let mut shown = begun;
    loop {
        std::thread::park_timeout(Duration::from_millis(50));
        let tally = lock(tally);
        if tally.running.is_empty() && tally.next > 0 {
            return;
        }
        let hangs = |(_, since): &&(u64, Instant)| since.elapsed() > HANGS_AFTER;
        if let Some((seed, _)) = tally.running.values().find(hangs) {
            tell(&format!("seed {seed} FAILED: it hangs"));
            tell(&options.kind.reproduce(*seed));
            std::process::exit(1);
        }
        if shown.elapsed() > SHOW_EVERY {
            tell(&line(&tally, options, begun));
            shown = now();
        }
    }
}

fn line(tally: &Tally, options: &Options, begun: Instant) -> String {
    let simulated = tally.simulated.as_secs_f64();
    let took = begun.elapsed().as_secs_f64().max(0.001);
    let mut line = format!(
        "{} of {} seeds, {:.2} h simulated, {:.0} s per second and job",
        tally.done,
        options.seeds,
        simulated / 3_600.0,
        simulated / took / options.jobs as f64,
    );
    for (what, count) in &tally.counts {
        // Writing to a string cannot fail.
        write!(line, ", {what} {count}").ok();
    }
    write!(line, ", FAILED {}", tally.failed.len()).ok();
    if !tally.failed.is_empty() {
        let seeds: Vec<String> = tally.failed.iter().map(u64::to_string).collect();
        write!(line, ": {}", seeds.join(" ")).ok();
    }
    line
}

#[expect(
    clippy::disallowed_methods,
    reason = "how fast the simulation is, for people"
)]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Every third seed breaks a promise, and seed 5 panics.
    fn breaks_some(seed: u64, trace: Trace) -> Verdict {
        trace.line(Duration::from_secs(seed), format_args!("seed {seed} ran"));
        assert_ne!(seed, 5, "seed 5 cannot go on");
        Verdict {
            simulated: Duration::from_secs(3_600),
            counts: [
                ("grants", 7),
                ("verdicts partial", 2),
                ("verdicts unknown", 0),
            ]
            .map(|(what, count)| (what.to_owned(), count))
            .into(),
            hash: trace.hash(),
            broken: seed
                .is_multiple_of(3)
                .then(|| "I7 is broken: on purpose".to_owned()),
        }
    }

    /// What a campaign tells, a line each.
    fn told(from: u64, seeds: u64, kind: Kind) -> (Vec<String>, ExitCode) {
        let into = std::env::temp_dir().join(format!(
            "ringfence-sim-campaign-{}-{from}",
            std::process::id()
        ));
        let options = Options {
            from,
            seeds,
            hours: None,
            jobs: 2,
            into: into.clone(),
            traces: false,
            kind,
        };
        let told = Mutex::new(Vec::new());
        let tell = |text: &str| lock(&told).extend(text.lines().map(str::to_owned));
        let code = run_all(&options, breaks_some, &tell);
        if code == ExitCode::FAILURE {
            std::fs::remove_dir_all(into).unwrap();
        }
        (told.into_inner().unwrap(), code)
    }

    #[test]
    fn each_seed_that_fails_is_told_to_be_reproduced_once() {
        let (told, code) = told(1, 7, Kind::Brisk);
        assert_eq!(code, ExitCode::FAILURE);
        let mut again: Vec<&String> = told
            .iter()
            .filter(|line| line.contains("REPRODUCE"))
            .collect();
        again.sort();
        let expected = [3, 5, 6].map(|seed| format!("REPRODUCE: cargo xtask sim --seed {seed}"));
        assert_eq!(again, expected.iter().collect::<Vec<_>>(), "{told:#?}");
        for begin in [
            "seed 3 FAILED at 3600.0 s: I7 is broken: on purpose",
            "    3.000000 seed 3 ran",
            "seed 5 FAILED at 5.0 s: ",
        ] {
            assert!(told.iter().any(|line| line.starts_with(begin)), "{told:#?}");
        }
    }

    #[test]
    fn a_seed_is_reproduced_by_a_run_of_its_kind() {
        let (told, _) = told(30, 1, Kind::Long);
        let again = "REPRODUCE: cargo xtask sim --long --seed 30".to_owned();
        assert!(told.contains(&again), "{told:#?}");
    }

    #[test]
    fn the_last_line_sums_up_and_names_the_seeds_that_failed() {
        let (mut lines, _) = told(11, 2, Kind::Brisk);
        let last = lines.pop().unwrap();
        assert!(
            last.starts_with("2 of 2 seeds, 2.00 h simulated, "),
            "{last}"
        );
        let counted = ", grants 14, verdicts partial 4, verdicts unknown 0, FAILED 1: 12";
        assert!(last.ends_with(counted), "{last}");
    }

    #[test]
    fn a_campaign_in_which_no_seed_fails_succeeds() {
        let (mut told, code) = told(7, 2, Kind::Brisk);
        assert_eq!(code, ExitCode::SUCCESS);
        assert!(told.pop().unwrap().ends_with(", FAILED 0"), "{told:#?}");
        assert_eq!(told, [""; 0]);
    }
}
