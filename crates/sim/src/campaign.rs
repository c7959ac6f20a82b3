//! Many seeds, one after another on each core, with what became of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::machine::lock;
use crate::play;
use crate::runner;
use crate::trace::Trace;

/// How often progress is shown.
const SHOW_EVERY: Duration = Duration::from_secs(5);
/// A seed that runs longer than this on a real clock is taken to hang. It takes some seconds, but
/// others may want the machine too.
const HANGS_AFTER: Duration = Duration::from_secs(1_800);
/// How many of the last lines of a trace are shown with a failure.
const LINES_SHOWN: usize = 40;

/// What became of one seed.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// How much time was simulated.
    pub simulated: Duration,
    /// What happened how often: operations, faults by kind, changes of leader, ends by time.
    pub counts: BTreeMap<String, u64>,
    /// A number over the trace: the same for every run of the seed.
    pub hash: u64,
    /// Which promise was broken, and how.
    pub broken: Option<String>,
}

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

    /// What runs a seed of this kind again.
    fn reproduce(self, seed: u64) -> String {
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
    let begun = now();
    let tally = Arc::new(Mutex::new(Tally::default()));
    runner::be_quiet(true);
    std::thread::scope(|scope| {
        for job in 0..options.jobs {
            let tally = tally.clone();
            scope.spawn(move || work(job, options, &tally));
        }
        watch(options, &tally, begun);
    });
    runner::be_quiet(false);
    let tally = lock(&tally);
    println!("{}", line(&tally, options, begun));
    for seed in &tally.failed {
        println!("{}", options.kind.reproduce(*seed));
    }
    if tally.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Takes seeds until there are no more.
fn work(job: usize, options: &Options, tally: &Mutex<Tally>) {
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
        let verdict = one(seed, options.kind.scenario(), &trace);
        let mut tally = lock(tally);
        tally.done += 1;
        tally.simulated += verdict.simulated;
        for (what, count) in &verdict.counts {
            *tally.counts.entry(what.clone()).or_default() += count;
        }
        if options.traces {
            keep(&options.into.join(format!("{seed}.trace")), &trace.text());
        }
        if let Some(broken) = &verdict.broken {
            tally.failed.push(seed);
            let failed = &tally.failed;
            keep(&options.into.join("failed"), &numbers(failed));
            tell(options.kind, seed, broken, verdict.simulated, &trace);
        } else if options.seeds == 1 {
            println!("seed {seed} passed: trace {:016x}", verdict.hash);
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

fn tell(kind: Kind, seed: u64, broken: &str, simulated: Duration, trace: &Trace) {
    let text = trace.text();
    let lines: Vec<&str> = text.lines().collect();
    let newest = lines.len().saturating_sub(LINES_SHOWN);
    // A panic leaves no verdict, but its last line has its time.
    let last = lines.last().and_then(|line| line.split_whitespace().next());
    let at = match last.and_then(|time| time.parse::<f64>().ok()) {
        Some(last) if simulated.is_zero() => last,
        _ => simulated.as_secs_f64(),
    };
    println!("seed {seed} FAILED at {at:.1} s: {broken}");
    for line in &lines[newest..] {
        println!("    {line}");
    }
    println!("{}", kind.reproduce(seed));
}

fn numbers(seeds: &[u64]) -> String {
    seeds.iter().map(|seed| format!("{seed}\n")).collect()
}

/// What cannot be kept is missed by a person, and changes no verdict.
fn keep(path: &Path, text: &str) {
    let written = path
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(path, text));
    if let Err(error) = written {
        println!("cannot write {}: {error}", path.display());
    }
}

/// Shows progress until every seed is done.
fn watch(options: &Options, tally: &Mutex<Tally>, begun: Instant) {
    let mut shown = begun;
    loop {
        std::thread::park_timeout(Duration::from_millis(50));
        let tally = lock(tally);
        if tally.running.is_empty() && tally.next > 0 {
            return;
        }
        let hangs = |(_, since): &&(u64, Instant)| since.elapsed() > HANGS_AFTER;
        if let Some((seed, _)) = tally.running.values().find(hangs) {
            println!("seed {seed} FAILED: it hangs");
            println!("{}", options.kind.reproduce(*seed));
            std::process::exit(1);
        }
        if shown.elapsed() > SHOW_EVERY {
            println!("{}", line(&tally, options, begun));
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
        let _ = write!(line, ", {what} {count}");
    }
    let _ = write!(line, ", FAILED {}", tally.failed.len());
    line
}

#[expect(
    clippy::disallowed_methods,
    reason = "how fast the simulation is, for people"
)]
fn now() -> Instant {
    Instant::now()
}
