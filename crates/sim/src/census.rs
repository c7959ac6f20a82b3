//! What nodes know of the members, and what lies on their disks: asked now and then, and at the end
//! of a run.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use ringfence_raft::{Role, unexpected_files};
use tokio::time::sleep;

use crate::node::{DATA_DIR, SimNode};
use crate::observe::{Observation, Recorder, Remains};
use crate::workload::Pace;
use crate::world::World;

/// How often nodes are asked who is a member.
const EVERY: Duration = Duration::from_millis(500);
/// How old the state of a node that is ready may be: followers ask the leader every half second.
const AGE_MAX: Duration = Duration::from_secs(3);
/// Between two looks at a node: its age is confirmed only once it was asked for, and a file that is
/// being written is gone by then or has its final name.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);

/// Tells the recorder of every id of a node, as the node itself and as others know it, for ever.
pub async fn watch(world: World, recorder: Recorder, pace: Pace) {
    let mut seats = BTreeSet::new();
    let mut listed = BTreeSet::new();
    loop {
        for node in world.nodes() {
            let Some(handle) = node.handle() else {
                continue;
            };
            let look = || (handle.status().node_id, handle.members());
            let (id, members) = node.machine().visit(look);
            let (by, directory) = (node.index(), node.directory());
            if let Some(id) = id
                && seats.insert((by, directory, id))
            {
                recorder.see(Observation::Seat {
                    node: by,
                    directory,
                    id,
                });
            }
            for member in members {
                let (id, incarnation) = (member.node_id, member.incarnation);
                if listed.insert((id, incarnation)) {
                    recorder.see(Observation::Listed {
                        by,
                        id,
                        incarnation,
                    });
                }
            }
        }
        sleep(pace.of(EVERY)).await;
    }
}

/// What is left at the end of a run, of every node that runs.
pub async fn remains(world: &World) -> Vec<Remains> {
    let first: Vec<Remains> = world.nodes().iter().filter_map(look).collect();
    sleep(BETWEEN_LOOKS).await;
    let mut second: Vec<Remains> = world.nodes().iter().filter_map(look).collect();
    for left in &mut second {
        let before = first.iter().find(|before| before.node == left.node);
        left.unexpected
            .retain(|path| before.is_some_and(|before| before.unexpected.contains(path)));
    }
    second
}

fn look(node: &SimNode) -> Option<Remains> {
    let handle = node.handle()?;
    let files = node.machine().disk().files();
    let (status, members, voters, ready) = node.machine().visit(|| {
        let ready = handle.ready(AGE_MAX);
        (handle.status(), handle.members(), handle.voters(), ready)
    });
    let unexpected = match unexpected_files(&files, Path::new(DATA_DIR)) {
        Ok(found) => found
            .into_iter()
            .map(|file| format!("{} ({})", file.path.display(), file.why))
            .collect(),
        Err(error) => BTreeSet::from([format!("{DATA_DIR} cannot be listed: {error}")]),
    };
    Some(Remains {
        node: node.index(),
        id: status.node_id,
        leads: (status.role == Role::Leader).then_some(status.term),
        members: members.iter().map(|member| member.node_id).collect(),
        voters,
        ready,
        unexpected,
    })
}
