//! `ringfence check-history FILE`: whether a correct service can have shown this.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ringfence_chaos::report::write_offline;
use ringfence_check::blackbox::{self, Caps, STATES_MAX, coverage};
use ringfence_check::history::Reader;
use ringfence_check::log::DumpReader;
use ringfence_check::{Recording, Report, Verdict, witness};
use serde_json::json;

use super::output::Output;
use super::{Failure, Global, exit};
use crate::duration;

/// Judge a recorded history, offline: was every promise kept?
///
/// FILE holds what clients saw, a JSON object per line, as `ringfence chaos` and the simulation
/// write it. It is judged alone: operations must be linearizable per lease, tokens unique and
/// rising, beliefs and guards exclusive, sessions kept alive for as long as promised, queues first
/// in, first out, and watches without gaps. With --log it is also held against the committed log,
/// entry by entry. With --timeline all of it becomes a page that a browser shows, with the story of
/// each refused write.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Exit codes:
    0  valid
    1  invalid: a promise was broken; each is named with the operations and their times
    2  no verdict: unknown (a limit was reached, or --coverage misses something), a file that
       cannot be read, or a wrong command line

Examples:
  ringfence check-history run/history.jsonl
  ringfence check-history run/history.jsonl --timeline run.html
  ringfence log dump --data-dir /tmp/rf/n1 > n1.log && ringfence check-history history.jsonl --log n1.log")]
pub(crate) struct CheckHistory {
    /// The history
    file: PathBuf,
    /// The log of a stopped node that was caught up, as `ringfence log dump` writes it
    #[arg(long, value_name = "DUMP")]
    log: Option<PathBuf>,
    /// Call a history unknown that shows too little: every kind of operation that was tried
    /// succeeded once, a stale write was refused, each fault had an effect
    #[arg(long)]
    coverage: bool,
    /// Write a page that shows the history, one file that needs no network
    #[arg(long, value_name = "OUT.html")]
    timeline: Option<PathBuf>,
    /// How many states the search for one lease may look at before it is unknown
    #[arg(long, value_name = "N", default_value_t = STATES_MAX)]
    states: u64,
    /// How long the search may take before it is unknown
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    time: Duration,
}

impl CheckHistory {
    pub(crate) fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        let recording = read(&self.file)?;
        let black_box = self.search(&recording);
        let log = self.log.as_deref();
        let witness = log.map(|log| replay(&recording, log)).transpose()?;
        let missing = match self.coverage {
            true => coverage(&recording),
            false => Vec::new(),
        };

        let uncovered = match missing.is_empty() {
            true => Verdict::Valid,
            false => Verdict::Unknown,
        };
        let by_log = witness.as_ref().map_or(Verdict::Valid, Report::verdict);
        let verdict = black_box.verdict().max(by_log).max(uncovered);
        if let Some(page) = &self.timeline {
            let uncovered = Report {
                unknowns: missing.clone(),
                ..Report::default()
            };
            let found: Vec<&Report> = [&black_box, &uncovered]
                .into_iter()
                .chain(&witness)
                .collect();
            write_offline(&self.file, &found, page)
                .map_err(|cause| Failure::new(exit::NO_VERDICT, "NO_PAGE", cause.to_string()))?;
        }
        let cut_off = recording.cut_off.map(|cut_off| cut_off.line);
        let object = json!({
            "verdict": verdict,
            "black_box": black_box,
            "witness": witness,
            "not_covered": missing,
            "cut_off_line": cut_off,
        });
        let mut text = format!(
            "{verdict}\n\nby what clients saw: {}\n",
            black_box.verdict()
        );
        text += &black_box.to_string();
        if let Some(witness) = &witness {
            text += &format!("\nby the log: {}\n{witness}", witness.verdict());
        }
        for missing in &missing {
            text += &format!("not covered: {missing}\n");
        }
        if let Some(line) = cut_off {
            text +=
                &format!("line {line} is cut off: the recorder was stopped in the middle of it\n");
        }
        let code = ExitCode::from(match verdict {
            Verdict::Valid => 0,
            Verdict::Invalid => exit::NEGATIVE,
            Verdict::Unknown => exit::NO_VERDICT,
        });
        Output::new(global).verdict(&object, text.trim_end(), code)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "only bounds how long the search goes on"
    )]
    fn search(&self, recording: &Recording) -> Report {
        let begun = Instant::now();
        let out_of_time = || begun.elapsed() >= self.time;
        let caps = Caps {
            states: self.states,
            out_of_time: &out_of_time,
        };
        blackbox::check(recording, caps)
    }
}

fn read(path: &Path) -> Result<Recording, Failure> {
    let reader = Reader::open(path).map_err(|cause| unusable(path, &cause))?;
    Recording::read(reader).map_err(|cause| unusable(path, &cause))
}

fn replay(recording: &Recording, path: &Path) -> Result<Report, Failure> {
    let file = File::open(path).map_err(|cause| unusable(path, &cause))?;
    let reader = BufReader::with_capacity(1 << 20, file);
    let log = DumpReader::new(reader).map_err(|cause| unusable(path, &cause))?;
    witness::check(recording, log).map_err(|cause| unusable(path, &cause))
}

fn unusable(path: &Path, cause: &dyn std::error::Error) -> Failure {
    let message = format!("{}: {cause}", path.display());
    Failure::new(exit::NO_VERDICT, "UNUSABLE_FILE", message)
}
