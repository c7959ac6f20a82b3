//! Faults of disks.

use std::collections::BTreeMap;

use super::{Begun, Effect, Running, inserted, resolve};
use crate::clock::now_ns;
use crate::cluster::{Ended, tear};
use crate::schedule::Victim;
use crate::stage::Stage;

/// What a node says that finds no room.
const NO_ROOM: [&str; 2] = ["No space left", "os error 28"];
/// Less than this is no room for anything.
const FULL_BYTES: u64 = 64 << 10;

struct PowerLost {
    place: usize,
}

pub(super) fn power_loss(stage: &mut Stage, victim: Victim) -> Result<Begun, String> {
    let place = resolve(stage, victim)?;
    let what = format!("the disk of {} loses its power", inserted(stage, place));
    let node = &mut stage.nodes[place];
    if !node.disk.can_lose_power() {
        return Err("the node's disk cannot lose its power on this machine".to_owned());
    }
    node.doomed = true;
    let cut = node.disk.cut_power();
    node.kill();
    cut.map_err(|cause| format!("the power could not be cut: {cause}"))?;
    Ok(Begun {
        running: Box::new(PowerLost { place }),
        what,
        nodes: vec![place],
        clients: Vec::new(),
    })
}

impl Running for PowerLost {
    fn heal(&mut self, stage: &mut Stage) -> Option<Effect> {
        // With faults that overlap another one may have started it.
        stage.nodes[self.place].kill();
        let restored = stage.nodes[self.place].disk.restore_power();
        let started = stage.start_node(self.place);
        let (took_effect, note) = match (restored, started) {
            (Ok(true), Ok(())) => (true, "what was not synced is gone".to_owned()),
            (Ok(false), Ok(())) => (false, "what was not synced is still there".to_owned()),
            (Err(cause), _) => (false, format!("the disk did not come back: {cause}")),
            (Ok(_), Err(why)) => (false, why),
        };
        Some(Effect {
            took_effect,
            counters: BTreeMap::new(),
            note,
        })
    }
}

/// How long beyond its time a disk stays full until its node notices, in ns.
const NOTICE_LIMIT_NS: u64 = 10_000_000_000;

struct Full {
    place: usize,
    /// Since when it is to end, in ns.
    over_since: Option<u64>,
    /// How much was free when it was full.
    free: u64,
    /// Where the node's log was when it began.
    log_at: u64,
    ended: Option<Ended>,
    complained: bool,
}

pub(super) fn full(stage: &mut Stage, victim: Victim) -> Result<Begun, String> {
    let place = resolve(stage, victim)?;
    let what = format!("the disk of {} is full", inserted(stage, place));
    let node = &mut stage.nodes[place];
    if !node.disk.can_be_filled() {
        return Err("the node's disk cannot be filled on this machine".to_owned());
    }
    // It may end by that; a log that cannot be written is final.
    node.doomed = true;
    let log_at = std::fs::metadata(&node.log).map_or(0, |log| log.len());
    let free = node.disk.fill().map_err(|cause| cause.to_string())?;
    // A log that does not grow needs no room.
    stage.crew.flood(true);
    Ok(Begun {
        running: Box::new(Full {
            place,
            over_since: None,
            free,
            log_at,
            ended: None,
            complained: false,
        }),
        what,
        nodes: vec![place],
        clients: Vec::new(),
    })
}

impl Running for Full {
    fn watch(&mut self, stage: &mut Stage) {
        let node = &mut stage.nodes[self.place];
        if let Some(ended) = node.ended() {
            self.ended = Some(ended);
        }
    }

    fn heal(&mut self, stage: &mut Stage) -> Option<Effect> {
        self.watch(stage);
        let node = &stage.nodes[self.place];
        let log = std::fs::read(&node.log).unwrap_or_default();
        let since = usize::try_from(self.log_at).unwrap_or(usize::MAX);
        let said = String::from_utf8_lossy(log.get(since..).unwrap_or_default());
        self.complained |= NO_ROOM.iter().any(|words| said.contains(words));
        let over_since = *self.over_since.get_or_insert_with(now_ns);
        let noticed = self.complained || self.ended.is_some();
        if !noticed && now_ns().saturating_sub(over_since) < NOTICE_LIMIT_NS {
            return None;
        }
        stage.crew.flood(false);
        let node = &stage.nodes[self.place];
        let emptied = node.disk.empty();
        let mut problem = emptied.err().map(|cause| cause.to_string());
        if stage.nodes[self.place].runs() {
            stage.nodes[self.place].doomed = false;
        } else if let Err(why) = stage.start_node(self.place) {
            problem = Some(why);
        }
        let note = match (&problem, &self.ended, self.complained) {
            (Some(problem), ..) => problem.clone(),
            (None, Some(ended), _) => format!("the node {ended}, and was started again"),
            (None, None, true) => "the node said so, and went on".to_owned(),
            (None, None, false) => "the node had no need of more room meanwhile".to_owned(),
        };
        Some(Effect {
            took_effect: problem.is_none()
                && self.free < FULL_BYTES
                && (self.ended.is_some() || self.complained),
            counters: [("free_bytes".to_owned(), self.free)].into(),
            note,
        })
    }
}

struct Torn {
    place: usize,
    bytes: u32,
    seed: u64,
}

pub(super) fn torn(
    stage: &mut Stage,
    victim: Victim,
    bytes: u32,
    seed: u64,
) -> Result<Begun, String> {
    let place = resolve(stage, victim)?;
    let what = format!(
        "{} is killed in the middle of a write of {bytes} bytes",
        inserted(stage, place)
    );
    if !stage.nodes[place].kill() {
        return Err("the node did not run".to_owned());
    }
    Ok(Begun {
        running: Box::new(Torn { place, bytes, seed }),
        what,
        nodes: vec![place],
        clients: Vec::new(),
    })
}

impl Running for Torn {
    fn heal(&mut self, stage: &mut Stage) -> Option<Effect> {
        stage.nodes[self.place].kill();
        let torn = tear(&stage.nodes[self.place].disk.data(), self.bytes, self.seed);
        let started = stage.start_node(self.place);
        let (bytes, note) = match (torn, started) {
            (Ok((bytes, _)), Ok(())) => (bytes, String::new()),
            (Err(cause), _) => (0, cause.to_string()),
            (Ok(_), Err(why)) => (0, why),
        };
        Some(Effect {
            took_effect: bytes > 0,
            counters: [("torn_bytes".to_owned(), bytes as u64)].into(),
            note,
        })
    }
}
