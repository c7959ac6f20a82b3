//! The course of a run: the cluster forms, is disturbed by schedule, and recovers.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_check::history::{Fault as SeenFault, Record};

use super::casting::cast;
use super::{RunError, Say, setup};
use crate::clock::{millis_between, now_ns};
use crate::faults::{Active, blank};
use crate::judge;
use crate::record::{FaultRecord, ViolationRecord};
use crate::roles::Roles;
use crate::schedule::{Planned, Schedule};
use crate::stage::Stage;
use crate::sys;
use crate::tally::Tally;

/// How often the run looks after everything.
const TICK: Duration = Duration::from_millis(40);
/// Ticks between two looks at nodes and lines for people.
const TICKS_PER_LINE: u64 = 5;
/// How long a cluster may take to form.
const FORM_LIMIT_NS: u64 = 30_000_000_000;
/// How long a cluster may take to be whole again, and to grant, once nothing disturbs it.
const HEAL_LIMIT_NS: u64 = 30_000_000_000;
/// A run that is itself so late, in ms, says nothing about how fast a cluster recovers.
const LATE_MS: u64 = 400;
/// Counters that tell of circumstances.
const NO_EFFECTS: [&str; 3] = ["seen", "free_bytes", "refilled"];
/// What a fault leaves of the time behind it, for showing that it is over.
const CALM_AFTER_MS: u64 = 3_000;

/// A run under way.
pub(super) struct Run<'a> {
    pub(super) stage: Stage,
    pub(super) schedule: Schedule,
    pub(super) roles: Roles,
    pub(super) active: Vec<Active>,
    pub(super) records: Vec<FaultRecord>,
    pub(super) say: &'a mut dyn FnMut(Say),
    pub(super) pause: Receiver<()>,
    /// No thread sends: waiting for it is a pause.
    pub(super) _quiet: Sender<()>,
    /// Since when nothing has disturbed the cluster, in ns.
    pub(super) calm_since: Option<u64>,
    pub(super) said_not_whole: bool,
    /// When everything was looked after last, in ns.
    pub(super) looked_at: u64,
    /// By how much the run itself was late since then at most.
    pub(super) late_ms: u64,
}

impl Run<'_> {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.stage
            .tally
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the cluster serves, then starts the clients.
    pub(super) fn form(&mut self) -> Result<(), RunError> {
        let begin = now_ns();
        while !self.stage.is_whole() {
            let over = now_ns().saturating_sub(begin) > FORM_LIMIT_NS;
            if over || sys::interrupted() {
                let why = self.stage.not_whole();
                return Err(RunError::NotFormed { why });
            }
            self.pause.recv_timeout(TICK).ok();
            self.roles.look(&self.stage);
        }
        self.stage.began_ns = now_ns();
        let prefix = match self.stage.plan.target {
            // No other client's leases.
            Some(_) => format!("chaos/{}/", judge::unix_ms()),
            None => "chaos/".to_owned(),
        };
        self.stage.crew = cast(&self.stage, &prefix).map_err(setup("start the clients"))?;
        Ok(())
    }

    /// Lets the workload run, with the faults of the schedule, and then without.
    pub(super) fn disturb(&mut self) -> Result<(), RunError> {
        let (mut waiting, mut of_clients) = (VecDeque::new(), VecDeque::new());
        for planned in &self.schedule.faults {
            match planned.fault.is_of_clients() {
                true => of_clients.push_back(planned.clone()),
                false => waiting.push_back(planned.clone()),
            }
        }
        let ends_ns = self.stage.began_ns + self.schedule.duration_ms * 1_000_000;
        for tick in 0_u64.. {
            self.pause.recv_timeout(TICK).ok();
            let now = now_ns();
            if sys::interrupted() {
                // A caller that waits for the end is not kept waiting.
                break;
            }
            let over = now >= ends_ns;
            self.look_after(over);
            if !over {
                self.begin_due(&mut of_clients, now);
                self.begin_next(&mut waiting, now, ends_ns);
            }
            if tick % TICKS_PER_LINE == 0 {
                self.tell(now);
                // What a killed run has seen is there; what cannot be written is reported at the
                // end.
                self.tally().hand_over();
            }
            if over && self.active.is_empty() && self.is_over() {
                break;
            }
        }
        for planned in waiting.iter().chain(&of_clients) {
            let mut record = blank(planned, self.stage.began_ns);
            record.note = "no time was left for it".to_owned();
            self.records.push(record);
        }
        self.records.sort_by_key(|record| record.id);
        Ok(())
    }

    /// Looks after nodes, clients and faults; with `end_now` the faults end.
    fn look_after(&mut self, end_now: bool) {
        let now = now_ns();
        self.late_ms = self.late_ms.max(millis_between(self.looked_at, now));
        self.looked_at = now;
        for mut fault in std::mem::take(&mut self.active) {
            match fault.go_on(&mut self.stage, end_now) {
                None => self.active.push(fault),
                Some(record) => self.ended(record),
            }
        }
        self.stage.look_after_nodes();
        self.roles.look(&self.stage);
        let deserters = self.stage.crew.deserters();
        self.stage.troubles.extend(deserters);
        let disturbed = self.active.iter();
        let disturbed = disturbed
            .into_iter()
            .any(|fault| !fault.planned.fault.is_of_clients());
        match (disturbed, self.calm_since) {
            (true, _) => self.calm_since = None,
            (false, None) => {
                self.calm_since = Some(now);
                self.late_ms = 0;
            }
            (false, Some(since)) => self.expect_whole(since),
        }
    }

    /// A cluster that nothing disturbs must be whole before long.
    fn expect_whole(&mut self, since: u64) {
        let late = now_ns().saturating_sub(since) > HEAL_LIMIT_NS;
        if self.stage.is_whole() {
            self.said_not_whole = false;
        } else if late && !self.said_not_whole {
            self.said_not_whole = true;
            let what = format!(
                "30 s after the last fault the cluster was not whole: {}",
                self.stage.not_whole()
            );
            self.too_slow(what);
        }
    }

    /// A recovery that took too long, if that is to be laid at the cluster's door.
    fn too_slow(&mut self, what: String) {
        if self.late_ms > LATE_MS {
            self.stage.troubles.push(format!(
                "{what}; but this machine is too busy to tell: the run itself was {} ms late",
                self.late_ms
            ));
            return;
        }
        self.stage.violations.push(ViolationRecord {
            invariant: "I18".to_owned(),
            what,
            at_ns: Some(now_ns()),
            lease: None,
        });
    }

    fn ended(&mut self, record: FaultRecord) {
        let mark = if record.took_effect {
            ""
        } else {
            " (NO EFFECT)"
        };
        let mut line = format!("  {} {}: {}{mark}", record.id, record.kind, record.what);
        if !record.note.is_empty() {
            line.push_str(&format!(" [{}]", record.note));
        }
        (self.say)(Say::Line(line));
        self.tally().take(Record::Fault(seen(&record)));
        self.records.push(record);
    }

    /// Begins faults of clients at their times.
    fn begin_due(&mut self, waiting: &mut VecDeque<Planned>, now: u64) {
        while let Some(planned) = waiting.front() {
            if now < self.stage.began_ns + planned.begin_ms * 1_000_000 {
                return;
            }
            if let Some(planned) = waiting.pop_front() {
                self.begin(&planned);
            }
        }
    }

    /// Begins the next fault of the cluster, when its time has come and, unless the quorum may
    /// break, all nodes have recovered from the last one.
    fn begin_next(&mut self, waiting: &mut VecDeque<Planned>, now: u64, ends_ns: u64) {
        while let Some(planned) = waiting.front() {
            if now < self.stage.began_ns + planned.begin_ms * 1_000_000 {
                return;
            }
            if now + (planned.lasts_ms + CALM_AFTER_MS) * 1_000_000 > ends_ns {
                return;
            }
            if !self.stage.plan.break_quorum && !self.may_be_hit() {
                return;
            }
            if let Some(planned) = waiting.pop_front() {
                self.begin(&planned);
            }
        }
    }

    fn may_be_hit(&self) -> bool {
        let mut active = self.active.iter();
        active.all(|fault| fault.planned.fault.is_of_clients()) && self.stage.is_whole()
    }

    fn begin(&mut self, planned: &Planned) {
        match Active::begin(planned, &mut self.stage) {
            Ok(active) => self.active.push(active),
            Err(record) => {
                let line = format!(
                    "  {} {}: not begun: {}",
                    record.id, record.kind, record.note
                );
                (self.say)(Say::Line(line));
                self.records.push(*record);
            }
        }
    }

    /// Whether everything has recovered, or had time enough to.
    fn is_over(&mut self) -> bool {
        let Some(since) = self.calm_since else {
            return false;
        };
        let granted = |tally: &Tally| tally.grants.iter().any(|(begun, _)| *begun > since);
        if self.stage.is_whole() && granted(&self.tally()) {
            return true;
        }
        if now_ns().saturating_sub(since) <= HEAL_LIMIT_NS {
            return false;
        }
        if !granted(&self.tally()) {
            self.too_slow("30 s after the last fault nothing had been granted".to_owned());
        }
        true
    }

    fn tell(&mut self, now: u64) {
        let clock = |ms: u64| format!("{:02}:{:02}", ms / 60_000, ms / 1_000 % 60);
        let leader = match self.stage.views.leader() {
            Some((place, term)) => {
                format!("{} leads in term {term}", crate::cluster::node_name(place))
            }
            None if self.stage.plan.target.is_some() => "a node leads".to_owned(),
            None => "no node leads".to_owned(),
        };
        let faults: Vec<String> = self.active.iter().map(Active::short).collect();
        let faults = match faults.is_empty() {
            true => "none".to_owned(),
            false => faults.join(", "),
        };
        let (answered, refused) = {
            let tally = self.tally();
            (tally.answered, tally.refused())
        };
        let line = format!(
            "{} of {} · {answered} operations · {leader} · faults: {faults} · stale writes refused: {refused}",
            clock(millis_between(self.stage.began_ns, now)),
            clock(self.schedule.duration_ms),
        );
        (self.say)(Say::Now(line));
    }

    pub(super) fn keep_faults(&self) -> io::Result<()> {
        let mut file = io::BufWriter::new(std::fs::File::create(
            self.stage.plan.report.join("faults.jsonl"),
        )?);
        for record in &self.records {
            serde_json::to_writer(&mut file, record)?;
            file.write_all(b"\n")?;
        }
        file.flush()
    }
}

/// A fault as the history has it.
fn seen(record: &FaultRecord) -> SeenFault {
    let targets: Vec<&str> = record
        .nodes
        .iter()
        .chain(&record.clients)
        .map(String::as_str)
        .collect();
    let interval = record.effective.unwrap_or(record.planned);
    let counted: u64 = record
        .counters
        .iter()
        .filter(|(name, _)| !NO_EFFECTS.contains(&name.as_str()))
        .map(|(_, count)| count)
        .sum();
    SeenFault {
        kind: record.kind.clone(),
        target: targets.join(","),
        begin: interval.begin_ns,
        end: Some(interval.end_ns),
        effects: if record.took_effect {
            counted.max(1)
        } else {
            0
        },
        detail: record.what.clone(),
    }
}
