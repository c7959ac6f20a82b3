//! The run itself: everything is started, disturbed by schedule, healed, and judged.

mod casting;
mod course;
mod reach;

use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_check::history::Header;

use crate::capability::Ground;
use crate::clock::now_ns;
use crate::crew::Crew;
use crate::judge;
use crate::plan::{Kind, Plan};
use crate::record::Report;
use crate::roles::Roles;
use crate::schedule::{Means, Schedule, ScheduleError};
use crate::stage::Stage;
use crate::sys;
use crate::tally::Tally;
use course::Run;

/// What is shown to people while the run goes on.
#[derive(Clone, Debug)]
pub enum Say {
    /// A line that stays.
    Line(String),
    /// How things stand now; replaces what was said so before.
    Now(String),
}

/// Why there is no verdict at all.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The schedule cannot be had.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// None of the faults can be had on this machine.
    #[error("no fault can be had on this machine: {why}")]
    NoFaults {
        /// What is missing.
        why: String,
    },
    /// Something could not be made or started.
    #[error("cannot {what}: {cause}")]
    Setup {
        /// The step that failed: a verb and its object.
        what: &'static str,
        /// The error of the system.
        cause: io::Error,
    },
    /// The cluster that is there already cannot be worked on.
    #[error("the target does not serve: {cause}")]
    NotReached {
        /// The error of the connection.
        cause: io::Error,
    },
    /// The cluster did not form.
    #[error("the cluster does not serve: {why}")]
    NotFormed {
        /// How the nodes stand.
        why: String,
    },
}

fn setup(what: &'static str) -> impl FnOnce(io::Error) -> RunError {
    move |cause| RunError::Setup { what, cause }
}

/// Runs a plan and judges it. `say` receives what goes on. Everything that was started has ended
/// when it returns.
///
/// # Errors
/// [`RunError`] if the run did not come about.
pub fn run(plan: &Plan, ground: &Ground, say: &mut dyn FnMut(Say)) -> Result<Report, RunError> {
    if let Some(target) = &plan.target {
        reach::reach(target).map_err(|cause| RunError::NotReached { cause })?;
    }
    let mut plan = plan.clone();
    std::fs::create_dir_all(&plan.report).map_err(setup("make the report's directory"))?;
    plan.report = std::fs::canonicalize(&plan.report).map_err(setup("find the report"))?;
    let capabilities = ground.table();
    if plan.target.is_none() {
        say(Say::Line(shown(&capabilities)));
    }
    let (kinds, off) = split(&plan, ground);
    for (kind, why) in &off {
        say(Say::Line(format!("off: {kind}: {why}")));
    }
    if kinds.is_empty() && !plan.faults.is_empty() {
        let why = off.first().map(|(_, why)| why.clone());
        return Err(RunError::NoFaults {
            why: why.unwrap_or_default(),
        });
    }
    let schedule = schedule(&mut plan, ground, &kinds)?;
    schedule
        .write(&plan.report.join("schedule.json"))
        .map_err(setup("write the schedule"))?;

    let mut header = Header::new("chaos");
    header.seed = Some(plan.seed);
    header.nodes = (0..plan.nodes as usize)
        .map(crate::cluster::node_name)
        .collect();
    let began_unix_ms = judge::unix_ms();
    header.wall_ms = began_unix_ms.checked_sub(now_ns() / 1_000_000);
    let tally = Tally::create(&plan.report.join("history.jsonl"), &header)
        .map_err(setup("write the history"))?;
    let tally = Arc::new(Mutex::new(tally));

    sys::catch_interrupts();
    let (quiet, pause) = channel();
    let stage = Stage::set(&plan, ground, &kinds, Arc::clone(&tally));
    let mut run = Run {
        stage: stage.map_err(setup("set up the run"))?,
        schedule,
        roles: Roles::default(),
        active: Vec::new(),
        records: Vec::new(),
        say,
        pause,
        _quiet: quiet,
        calm_since: None,
        said_not_whole: false,
        looked_at: now_ns(),
        late_ms: 0,
    };
    run.form()?;
    run.disturb()?;
    if !sys::interrupted() {
        let late = run.stage.crew.stop();
        run.stage.troubles.extend(late);
    }
    run.stage.crew = Crew::default();
    run.keep_faults().map_err(setup("write the faults"))?;
    let evidence = judge::Evidence {
        capabilities,
        off,
        records: &run.records,
        leader_changes: run.roles.changes,
        began_unix_ms,
        interrupted: sys::interrupted(),
    };
    let report = judge::judge(&mut run.stage, evidence);
    judge::keep(&run.stage, &report, &run.records).map_err(setup("write the report"))?;
    Ok(report)
}

/// The kinds that can be had, and those that cannot.
fn split(plan: &Plan, ground: &Ground) -> (Vec<Kind>, Vec<(Kind, String)>) {
    let (mut kinds, mut off) = (Vec::new(), Vec::new());
    for kind in &plan.faults {
        match ground.lacks(*kind) {
            Some(why) if plan.target.is_none() => off.push((*kind, why.to_owned())),
            _ => kinds.push(*kind),
        }
    }
    (kinds, off)
}

/// The schedule of a file, which then says how many take part, or of the seed.
fn schedule(plan: &mut Plan, ground: &Ground, kinds: &[Kind]) -> Result<Schedule, ScheduleError> {
    let Some(path) = &plan.schedule else {
        let means = Means {
            power: ground.power.is_ok(),
            full: ground.mounts.is_ok(),
            network: ground.network.is_ok(),
        };
        return Schedule::make(plan, kinds, means);
    };
    let schedule = Schedule::read(path)?;
    plan.nodes = schedule.nodes;
    plan.clients = schedule.clients;
    plan.seed = schedule.seed;
    plan.duration = Duration::from_millis(schedule.duration_ms);
    Ok(schedule)
}

fn shown(capabilities: &[crate::record::CapabilityRecord]) -> String {
    let width = capabilities.iter().map(|row| row.name.len()).max();
    let width = width.unwrap_or_default();
    let rows = capabilities.iter().map(|row| {
        let state = if row.available { "yes" } else { "off" };
        format!("  {:width$}  {state}  {}", row.name, row.why)
    });
    format!(
        "what this machine offers:\n{}",
        rows.collect::<Vec<_>>().join("\n")
    )
}
