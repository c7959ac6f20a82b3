//! Members that are added, removed and replaced.

use super::{Begun, Effect, Running, inserted, resolve};
use crate::cluster::{Change, Membership, node_name};
use crate::schedule::Victim;
use crate::stage::Stage;

type Done = Result<(), String>;

/// A member more, and then again without it.
struct Growing {
    place: usize,
    promoting: Option<Membership>,
    promoted: Option<Done>,
    removing: Option<Membership>,
}

pub(super) fn grow(stage: &mut Stage) -> Result<Begun, String> {
    let place = stage.plan.nodes as usize;
    let peer = stage.peer_beside(place);
    let spare = &mut stage.nodes[place];
    spare.disk.wipe().map_err(|cause| cause.to_string())?;
    spare.joins(peer);
    stage.start_node(place)?;
    let promoting = Membership::begin(&stage.asking(), Change::Promote, &node_name(place));
    Ok(Begun {
        running: Box::new(Growing {
            place,
            promoting: Some(promoting),
            promoted: None,
            removing: None,
        }),
        what: format!("{} joins and is removed again", node_name(place)),
        nodes: vec![place],
        clients: Vec::new(),
    })
}

fn poll(under_way: &mut Option<Membership>) -> Option<Done> {
    let done = under_way.as_ref()?.done()?;
    *under_way = None;
    Some(done)
}

impl Running for Growing {
    fn watch(&mut self, _: &mut Stage) {
        if let Some(done) = poll(&mut self.promoting) {
            self.promoted = Some(done);
        }
    }

    fn heal(&mut self, stage: &mut Stage) -> Option<Effect> {
        self.watch(stage);
        let promoted = self.promoted.clone()?;
        let name = node_name(self.place);
        if self.removing.is_none() {
            self.removing = Some(Membership::begin(&stage.asking(), Change::Remove, &name));
        }
        let removed = poll(&mut self.removing)?;
        stage.nodes[self.place].kill();
        Some(effect(promoted.and(removed)))
    }
}

fn effect(done: Done) -> Effect {
    Effect {
        took_effect: done.is_ok(),
        counters: std::collections::BTreeMap::new(),
        note: done.err().unwrap_or_default(),
    }
}

/// A member that leaves, loses all it had, and comes back as a new one.
struct Replacing {
    place: usize,
    step: Step,
}

enum Step {
    Removing(Membership),
    Promoting(Membership),
    Done(Done),
}

pub(super) fn replace(stage: &mut Stage, victim: Victim) -> Result<Begun, String> {
    let place = resolve(stage, victim)?;
    let what = format!(
        "{} is removed, loses its disk, and joins as a new member",
        inserted(stage, place)
    );
    // It may end on its own once it is no member.
    stage.nodes[place].doomed = true;
    let removing = Membership::begin(&stage.asking(), Change::Remove, &node_name(place));
    Ok(Begun {
        running: Box::new(Replacing {
            place,
            step: Step::Removing(removing),
        }),
        what,
        nodes: vec![place],
        clients: Vec::new(),
    })
}

impl Replacing {
    fn rejoin(&self, stage: &mut Stage) -> Result<Membership, String> {
        let peer = stage.peer_beside(self.place);
        let node = &mut stage.nodes[self.place];
        node.kill();
        node.disk.wipe().map_err(|cause| cause.to_string())?;
        node.joins(peer);
        stage.start_node(self.place)?;
        Ok(Membership::begin(
            &stage.asking(),
            Change::Promote,
            &node_name(self.place),
        ))
    }
}

impl Running for Replacing {
    fn watch(&mut self, stage: &mut Stage) {
        let next = match &self.step {
            Step::Removing(removing) => match removing.done() {
                None => return,
                Some(Ok(())) => match self.rejoin(stage) {
                    Ok(promoting) => Step::Promoting(promoting),
                    Err(why) => Step::Done(Err(why)),
                },
                Some(Err(why)) => {
                    stage.nodes[self.place].doomed = false;
                    Step::Done(Err(why))
                }
            },
            Step::Promoting(promoting) => match promoting.done() {
                None => return,
                Some(done) => Step::Done(done),
            },
            Step::Done(_) => return,
        };
        self.step = next;
    }

    fn heal(&mut self, stage: &mut Stage) -> Option<Effect> {
        self.watch(stage);
        match &self.step {
            Step::Done(done) => Some(effect(done.clone())),
            Step::Removing(_) | Step::Promoting(_) => None,
        }
    }
}
