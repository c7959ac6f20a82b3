//! The verdict: what was promised and not kept, and whether the run has seen enough to say.

mod stores;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_check::blackbox::{self, Caps, STATES_MAX};
use ringfence_check::history::Reader;
use ringfence_check::{Recording, RecordingError};
use rustix::time::{ClockId, clock_gettime};

use crate::clock::{millis_between, nanos, now_ns};
use crate::plan::{Kind, Plan};
use crate::record::{
    CapabilityRecord, Coverage, FaultRecord, Interval, Report, Verdict, ViolationRecord,
    WriteCounts,
};
use crate::report::Timeline;
use crate::stage::Stage;
use crate::tally::Tally;

/// How long the search for an order of the operations may take.
const SEARCH_LIMIT: Duration = Duration::from_secs(120);
/// Faults of these kinds hit leaders, so that others must follow them.
const DETHRONES: [Kind; 4] = [Kind::Kill, Kind::Isolate, Kind::Pause, Kind::Disk];

/// What the run knows beside its history.
pub(crate) struct Evidence<'a> {
    pub(crate) capabilities: Vec<CapabilityRecord>,
    pub(crate) off: Vec<(Kind, String)>,
    pub(crate) records: &'a [FaultRecord],
    pub(crate) leader_changes: u64,
    pub(crate) began_unix_ms: u64,
    pub(crate) interrupted: bool,
}

/// Wall time in milliseconds since the Unix epoch, for people.
pub(crate) fn unix_ms() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// What was found.
#[derive(Debug, Default)]
struct Findings {
    violations: Vec<ViolationRecord>,
    /// Why the verdict cannot be valid.
    open: Vec<String>,
    /// What was looked at.
    looked_at: Vec<String>,
}

/// Judges a run whose clients have stopped.
pub(crate) fn judge(stage: &mut Stage, evidence: Evidence<'_>) -> Report {
    let mut findings = Findings {
        violations: std::mem::take(&mut stage.violations),
        ..Findings::default()
    };
    findings.open.append(&mut stage.troubles);
    let tally = lock(stage);
    let mut writes = tally.writes.clone();
    drop(tally);
    stores::judge(stage, &mut writes, &mut findings);
    black_box(stage, &mut findings);
    let tally = lock(stage);
    let coverage = coverage(&tally, &evidence);
    let slowest_recovery_ms = slowest_recovery(&tally, evidence.records);
    drop(tally);
    let unguarded = writes.remove(crate::workload::UNGUARDED);
    enough(&stage.plan, &evidence, &coverage, unguarded, &mut findings);

    let verdict = match (findings.violations.is_empty(), findings.open.is_empty()) {
        (false, _) => Verdict::Invalid,
        (true, false) => Verdict::Unknown,
        (true, true) => Verdict::Valid,
    };
    let broken = findings.violations.iter();
    let broken = broken.map(|one| format!("{} was broken: {}", one.invariant, one.what));
    let reasons = match verdict {
        Verdict::Invalid => broken.chain(findings.open).collect(),
        Verdict::Unknown => findings.open,
        Verdict::Valid => findings.looked_at,
    };
    Report {
        verdict,
        reasons,
        violations: findings.violations,
        seed: stage.plan.seed,
        nodes: match stage.plan.target {
            Some(_) => 0,
            None => stage.plan.nodes,
        },
        clients: stage.plan.clients,
        ran: Interval {
            begin_ns: stage.began_ns,
            end_ns: now_ns(),
        },
        began_unix_ms: evidence.began_unix_ms,
        capabilities: evidence.capabilities,
        coverage,
        guarded: writes,
        unguarded: unguarded.filter(|_| stage.plan.control),
        slowest_recovery_ms,
        reproduce: reproduce(&stage.plan),
    }
}

fn lock(stage: &Stage) -> MutexGuard<'_, Tally> {
    stage.tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands the history to the checker that looks at what clients saw.
fn black_box(stage: &Stage, findings: &mut Findings) {
    if let Err(cause) = lock(stage).flush() {
        let why = format!("the history could not be written: {cause}");
        findings.open.push(why);
        return;
    }
    let unreadable = lock(stage).unreadable;
    if unreadable > 0 {
        let why = format!("{unreadable} lines of clients made no sense");
        findings.open.push(why);
    }
    let recording = match read(&stage.plan.report.join("history.jsonl")) {
        Ok(recording) => recording,
        Err(cause) => {
            findings.open.push(cause.to_string());
            return;
        }
    };
    let deadline = now_ns() + nanos(SEARCH_LIMIT);
    let checked = blackbox::check(
        &recording,
        Caps {
            states: STATES_MAX,
            out_of_time: &|| now_ns() > deadline,
        },
    );
    for violation in checked.violations {
        findings.violations.push(ViolationRecord {
            invariant: format!("{:?}", violation.rule),
            what: violation.what,
            at_ns: Some(violation.t),
            lease: violation.lease,
        });
    }
    findings.open.extend(checked.unknowns);
    findings.open.extend(blackbox::coverage(&recording));
    let looked = checked.looked_at.iter();
    let looked = looked.map(|(what, count)| format!("{count} {what}"));
    let looked = looked.collect::<Vec<_>>().join(", ");
    findings.looked_at.push(format!("looked at {looked}"));
}

fn read(path: &Path) -> Result<Recording, RecordingError> {
    Recording::read(Reader::open(path)?)
}

fn coverage(tally: &Tally, evidence: &Evidence<'_>) -> Coverage {
    let mut coverage = Coverage {
        leader_changes: evidence.leader_changes,
        expiries: tally.expiries(),
        hand_overs: tally.hand_overs(),
        operations: tally.operations.clone(),
        ..Coverage::default()
    };
    for record in evidence.records {
        let counts = match record.took_effect {
            true => &mut coverage.effective,
            false => &mut coverage.without_effect,
        };
        *counts.entry(record.kind.clone()).or_default() += 1;
    }
    coverage
}

/// The longest time from the end of a fault of the cluster to the end of an acquire that began
/// behind it.
fn slowest_recovery(tally: &Tally, records: &[FaultRecord]) -> u64 {
    let of_cluster = records.iter().filter(|record| record.clients.is_empty());
    let ends = of_cluster.filter_map(|record| record.effective.map(|during| during.end_ns));
    let recoveries = ends.filter_map(|end| {
        let behind = tally.grants.iter().filter(|(begun, _)| *begun >= end);
        let first = behind.map(|(_, granted)| *granted).min()?;
        Some(millis_between(end, first))
    });
    recoveries.max().unwrap_or(0)
}

/// Whether the run has shown what it was to show.
fn enough(
    plan: &Plan,
    evidence: &Evidence<'_>,
    coverage: &Coverage,
    unguarded: Option<WriteCounts>,
    findings: &mut Findings,
) {
    let mut open = Vec::new();
    if evidence.interrupted {
        open.push("it was interrupted".to_owned());
    }
    if plan.named {
        let off = evidence.off.iter();
        open.extend(off.map(|(kind, why)| format!("{kind} was asked for and is off: {why}")));
    }
    for kind in &plan.faults {
        let is_off = evidence.off.iter().any(|(off, _)| off == kind);
        if !is_off && !coverage.effective.contains_key(kind.name()) {
            open.push(format!("no fault of the kind {kind} took effect"));
        }
    }
    for record in evidence.records {
        let begun = record.effective.is_some();
        if begun && !record.took_effect {
            open.push(format!(
                "fault {} ({}) had no effect: {}",
                record.id, record.kind, record.note
            ));
        }
    }
    let hits_leaders = plan.faults.iter().any(|kind| DETHRONES.contains(kind));
    if plan.target.is_none() && hits_leaders && coverage.leader_changes == 0 {
        open.push("no leader followed another".to_owned());
    }
    if coverage.expiries == 0 {
        open.push("no session was seen to run out of time".to_owned());
    }
    if unguarded.is_some_and(|counts| counts.stale_admitted == 0) && plan.control {
        open.push("even the store without a guard admitted no stale write".to_owned());
    }
    findings.open.extend(open);
    findings.open.dedup();
}

fn reproduce(plan: &Plan) -> String {
    let schedule = plan.report.join("schedule.json");
    let mut command = format!("ringfence chaos --schedule {}", schedule.display());
    if plan.break_quorum {
        command.push_str(" --break-quorum");
    }
    for client in &plan.foreign {
        command.push_str(&format!(" --client '{client}'"));
    }
    command
}

/// Writes the report and the page.
pub(crate) fn keep(stage: &Stage, report: &Report, records: &[FaultRecord]) -> io::Result<()> {
    let dir = &stage.plan.report;
    let mut text = serde_json::to_vec_pretty(report)?;
    text.push(b'\n');
    std::fs::write(dir.join("report.json"), text)?;
    let data = dir.join("data");
    std::fs::remove_dir_all(&data).ok();
    if report.verdict == Verdict::Invalid {
        for node in &stage.nodes {
            // What can be had of it; a disk may be full or gone.
            copy(&node.disk.data(), &data.join(&node.name)).ok();
        }
        copy(&stage.scratch.path("stores"), &data.join("stores")).ok();
    }
    let mut page = Timeline::new(format!("ringfence chaos, seed {}", report.seed));
    let mut history = Reader::open(&dir.join("history.jsonl")).map_err(io::Error::other)?;
    for record in &mut history {
        page.record(&record.map_err(io::Error::other)?);
    }
    page.faults(records);
    page.report(report);
    let file = File::create(dir.join("timeline.html"))?;
    page.write(&mut BufWriter::new(file)).map(drop)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&entry.path(), &to)?;
        } else if kind.is_file() {
            // A node that was killed leaves its admin socket behind.
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Counts by the name of the store.
type Writes = BTreeMap<String, WriteCounts>;
