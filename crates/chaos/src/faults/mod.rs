//! Faults: begun, watched, healed, and asked for their effect.

mod disks;
mod full;
mod members;
mod packets;
mod processes;

use std::collections::BTreeMap;

use crate::clock::now_ns;
use crate::record::{FaultRecord, Interval};
use crate::schedule::{Fault, Planned, Victim};
use crate::stage::Stage;

/// A fault under way.
pub(crate) struct Active {
    pub(crate) planned: Planned,
    pub(crate) record: FaultRecord,
    begun_ns: u64,
    running: Box<dyn Running>,
    /// It is to end, and has not yet.
    healing: bool,
}

/// What a fault does while it lasts.
pub(crate) trait Running {
    /// Looks after it; called a few times a second.
    fn watch(&mut self, stage: &mut Stage) {
        let _ = stage;
    }

    /// Ends it, or goes on ending it. Says what it did once it has ended.
    fn heal(&mut self, stage: &mut Stage) -> Option<Effect>;
}

/// What a fault did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effect {
    pub(crate) took_effect: bool,
    pub(crate) counters: BTreeMap<String, u64>,
    pub(crate) note: String,
}

/// What a fault is about to do, and to whom.
pub(crate) struct Begun {
    pub(crate) running: Box<dyn Running>,
    /// For people.
    pub(crate) what: String,
    /// The places of the nodes.
    pub(crate) nodes: Vec<usize>,
    /// The numbers of the clients.
    pub(crate) clients: Vec<u32>,
}

impl Active {
    /// Begins a fault. What cannot be begun is a record without effect.
    pub(crate) fn begin(planned: &Planned, stage: &mut Stage) -> Result<Self, Box<FaultRecord>> {
        let mut record = blank(planned, stage.began_ns);
        let begun_ns = now_ns();
        match begin(&planned.fault, planned, stage) {
            Ok(begun) => {
                record.what = begun.what;
                record.nodes = begun
                    .nodes
                    .into_iter()
                    .map(crate::cluster::node_name)
                    .collect();
                let clients = begun.clients.iter();
                record.clients = clients.map(|number| format!("c{number}")).collect();
                Ok(Self {
                    planned: planned.clone(),
                    record,
                    begun_ns,
                    running: begun.running,
                    healing: false,
                })
            }
            Err(why) => {
                record.note = why;
                Err(Box::new(record))
            }
        }
    }

    /// Looks after it, ends it when its time has come, and gives its record when it has ended.
    pub(crate) fn go_on(&mut self, stage: &mut Stage, end_now: bool) -> Option<FaultRecord> {
        let lasts_ns = self.planned.lasts_ms * 1_000_000;
        if !self.healing && (end_now || now_ns() >= self.begun_ns + lasts_ns) {
            self.healing = true;
        }
        if !self.healing {
            self.running.watch(stage);
            return None;
        }
        let effect = self.running.heal(stage)?;
        let mut record = self.record.clone();
        record.effective = Some(Interval {
            begin_ns: self.begun_ns,
            end_ns: now_ns(),
        });
        record.took_effect = effect.took_effect;
        record.counters = effect.counters;
        record.note = effect.note;
        Some(record)
    }

    /// For the line that shows what goes on.
    pub(crate) fn short(&self) -> String {
        let who = self.record.nodes.iter().chain(&self.record.clients);
        let who: Vec<&str> = who.map(String::as_str).collect();
        format!("{} {}", self.record.kind, who.join("+"))
            .trim_end()
            .to_owned()
    }
}

/// The record of a fault of which nothing has happened yet.
pub(crate) fn blank(planned: &Planned, began_ns: u64) -> FaultRecord {
    let begin_ns = began_ns + planned.begin_ms * 1_000_000;
    FaultRecord {
        id: planned.id,
        kind: planned.kind.name().to_owned(),
        what: String::new(),
        nodes: Vec::new(),
        clients: Vec::new(),
        planned: Interval {
            begin_ns,
            end_ns: begin_ns + planned.lasts_ms * 1_000_000,
        },
        effective: None,
        took_effect: false,
        counters: BTreeMap::new(),
        note: String::new(),
    }
}

fn begin(fault: &Fault, planned: &Planned, stage: &mut Stage) -> Result<Begun, String> {
    match fault {
        Fault::Partition {
            shape,
            order,
            clients_too,
        } => packets::partition(stage, *shape, order, *clients_too),
        Fault::Oneway {
            victim,
            direction,
            clients_too,
        } => packets::oneway(stage, *victim, *direction, *clients_too),
        Fault::Isolate {
            victim,
            clients_too,
        } => packets::isolate(stage, *victim, *clients_too),
        Fault::CutClient { client, direction } => packets::cut_client(stage, *client, *direction),
        Fault::Slow { victim, .. } => packets::slow(stage, *victim, fault),
        Fault::Kill { victims } => processes::kill(stage, victims),
        Fault::Pause { victims } => processes::pause(stage, victims),
        Fault::PauseClient { client } => processes::pause_client(stage, *client),
        Fault::PowerLoss { victim } => disks::power_loss(stage, *victim),
        Fault::FullDisk { victim } => full::disk(stage, *victim),
        Fault::FullLog { victim } => full::log(stage, *victim),
        Fault::TornTail { victim, bytes } => {
            disks::torn(stage, *victim, *bytes, u64::from(planned.id))
        }
        Fault::Grow => members::grow(stage),
        Fault::Replace { victim } => members::replace(stage, *victim),
        Fault::Hook => processes::hook(stage, planned.kind),
    }
}

/// The place of a victim, now.
fn resolve(stage: &Stage, victim: Victim) -> Result<usize, String> {
    match victim {
        Victim::Node(place) => Ok(place),
        Victim::Leader => match stage.views.leader() {
            Some((place, _)) if place < stage.plan.nodes as usize => Ok(place),
            Some(_) => Err("the node led that is about to leave".to_owned()),
            None => Err("no node led when it was to begin".to_owned()),
        },
    }
}

/// `n2, which leads,` in the middle of a sentence.
fn inserted(stage: &Stage, place: usize) -> String {
    let mut called = called(stage, place);
    if called.contains(',') {
        called.push(',');
    }
    called
}

/// `n2, which leads`.
fn called(stage: &Stage, place: usize) -> String {
    let name = crate::cluster::node_name(place);
    match stage.views.leader() {
        Some((leader, _)) if leader == place => format!("{name}, which leads"),
        _ => name,
    }
}
