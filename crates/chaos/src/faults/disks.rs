//! Faults of disks.

use std::collections::BTreeMap;

use super::{Begun, Effect, Running, inserted, resolve};
use crate::cluster::tear;
use crate::schedule::Victim;
use crate::stage::Stage;

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
