//! What callers use: feed it, then write the page (`settle.rs`).

use ringfence_check::Report as Checked;
use ringfence_check::history::Record;

use super::data::{ControlFigures, Figures};
use super::gather::Gather;
use crate::record::{FaultRecord, Report, Verdict, ViolationRecord, WriteCounts};

/// The page of one run, while it is being gathered.
///
/// ```
/// use ringfence_chaos::record::Verdict;
/// use ringfence_chaos::report::Timeline;
///
/// let mut timeline = Timeline::new("a run of nothing");
/// timeline.judged(Verdict::Unknown, &["nothing was recorded".to_owned()], &[]);
/// let mut page = Vec::new();
/// timeline.write(&mut page)?;
/// assert!(page.starts_with(b"<!doctype html>"));
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "a timeline that is not written is not seen"]
pub struct Timeline {
    pub(super) title: String,
    pub(super) command: String,
    pub(super) gather: Gather,
    pub(super) faults: Vec<FaultRecord>,
    pub(super) verdict: Verdict,
    pub(super) reasons: Vec<String>,
    pub(super) broken: Vec<Broken>,
    pub(super) figures: Option<Figures>,
    pub(super) facts: Vec<(String, String)>,
    pub(super) began_ns: Option<u64>,
    pub(super) ended_ns: Option<u64>,
}

/// A broken rule, and the numbers of the operations that contradict each other.
#[derive(Clone, Debug)]
pub(super) struct Broken {
    pub(super) record: ViolationRecord,
    pub(super) operations: Vec<u64>,
}

impl Timeline {
    /// A page with this title, on which there is nothing yet and the verdict is *unknown*.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            command: String::new(),
            gather: Gather::default(),
            faults: Vec::new(),
            verdict: Verdict::Unknown,
            reasons: Vec::new(),
            broken: Vec::new(),
            figures: None,
            facts: Vec::new(),
            began_ns: None,
            ended_ns: None,
        }
    }

    /// Takes one record of the history. The order is the history's: an answer follows its question.
    pub fn record(&mut self, record: &Record) {
        self.gather.record(record);
    }

    /// Takes the faults as their maker saw them; those of the history are then left alone.
    pub fn faults(&mut self, faults: &[FaultRecord]) {
        self.faults.extend_from_slice(faults);
    }

    /// Takes the verdict, why it is so, and what was broken.
    pub fn judged(&mut self, verdict: Verdict, reasons: &[String], broken: &[ViolationRecord]) {
        self.verdict = verdict;
        self.reasons = reasons.to_vec();
        let broken = broken.iter().cloned().map(|record| Broken {
            record,
            operations: Vec::new(),
        });
        self.broken = broken.collect();
    }

    /// Takes what a checker found in the history alone, as `check-history` does.
    pub fn checked(&mut self, found: &Checked) {
        let mut reasons: Vec<String> = found.unknowns.clone();
        if found.violations.is_empty() && found.unknowns.is_empty() {
            let counts = found.looked_at.iter();
            let looked: Vec<String> = counts
                .map(|(what, many)| format!("{many} {what}"))
                .collect();
            reasons.push(format!("No promise was broken in {}.", looked.join(", ")));
        }
        if !found.violations.is_empty() {
            let all = found.violations.len() as u64 + found.more_violations;
            let listed = match found.more_violations {
                0 => String::new(),
                _ => format!(", of which the first {} are listed", found.violations.len()),
            };
            let told = match all {
                1 => "One promise was broken.".to_owned(),
                _ => format!("{all} promises were broken{listed}."),
            };
            reasons.insert(0, told);
        }
        reasons.extend(found.remarks.iter().cloned());
        self.reasons = reasons;
        self.verdict = match found.verdict() {
            ringfence_check::Verdict::Valid => Verdict::Valid,
            ringfence_check::Verdict::Invalid => Verdict::Invalid,
            ringfence_check::Verdict::Unknown => Verdict::Unknown,
        };
        let broken = found.violations.iter().map(|violation| Broken {
            record: ViolationRecord {
                invariant: format!("{:?}", violation.rule),
                what: violation.what.clone(),
                at_ns: Some(violation.t),
                lease: violation.lease.clone(),
            },
            operations: violation.operations.clone(),
        });
        self.broken = broken.collect();
    }

    /// Takes the whole report of a run, verdict included.
    pub fn report(&mut self, report: &Report) {
        self.judged(report.verdict, &report.reasons, &report.violations);
        self.command.clone_from(&report.reproduce);
        self.began_ns = Some(report.ran.begin_ns);
        self.ended_ns = Some(report.ran.end_ns);
        self.figures = Some(figures(report));
        self.facts = facts(report);
    }
}

fn figures(report: &Report) -> Figures {
    let sum = |count: fn(&WriteCounts) -> u64| report.guarded.values().map(count).sum();
    let operations = report.coverage.operations.values();
    Figures {
        operations: operations.flat_map(|ends| ends.values()).sum(),
        attempted: sum(|counts| counts.stale_attempted),
        refused: sum(|counts| counts.stale_refused),
        admitted: sum(|counts| counts.stale_admitted),
        control: report.unguarded.map(|counts| ControlFigures {
            attempted: counts.stale_attempted,
            admitted: counts.stale_admitted,
        }),
    }
}

fn facts(report: &Report) -> Vec<(String, String)> {
    let coverage = &report.coverage;
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let mut facts = vec![
        fact("seed", report.seed.to_string()),
        fact("nodes", report.nodes.to_string()),
        fact("clients", report.clients.to_string()),
        fact(
            "leaders",
            format!("changed {} times", coverage.leader_changes),
        ),
        fact("sessions", format!("{} expired", coverage.expiries)),
        fact("queues", format!("{} hand-overs", coverage.hand_overs)),
        fact(
            "recovery",
            format!("{} ms at most", report.slowest_recovery_ms),
        ),
    ];
    for (kind, count) in &coverage.effective {
        let without = coverage.without_effect.get(kind).copied().unwrap_or(0);
        let note = if without > 0 {
            format!(", {without} without effect")
        } else {
            String::new()
        };
        facts.push((kind.clone(), format!("{count} with effect{note}")));
    }
    let off = report.capabilities.iter().filter(|it| !it.available);
    facts.extend(off.map(|it| (it.name.clone(), format!("off: {}", it.why))));
    facts
}
