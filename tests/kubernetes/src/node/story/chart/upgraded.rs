//! A changed value rolls the nodes of an installation, under load.

use super::two::HEADING;
use super::{Stage, TEAMS};
use crate::load::Load;
use crate::say::{self, Watch};
use crate::story::rolling::GAP_MAX;

/// Rights beyond the values of the document, for the clients that make the load.
const LOAD: [&str; 2] = ["held/*", "busy/*"];

pub(super) fn no_session_is_lost(stage: &Stage<'_>) -> Result<(), String> {
    let [team, _] = TEAMS;
    for name in LOAD {
        stage.ringfence(team, &format!("access grant token:web acquire {name}"))?;
    }
    let before = revision(stage, team)?;
    let load = Load::start(stage.runtime, async || stage.client(team, team, team).await)?;
    let watch = Watch::start();
    let typed = stage.block(HEADING, "helm upgrade");
    let took = watch.so_far();
    let outcome = load.end(stage.runtime)?;
    typed?;
    if revision(stage, team)? == before {
        return Err("the upgrade changed no Pod".to_owned());
    }
    say::shown(
        watch,
        &format!(
            "`helm upgrade` with another value, under load, lost no session; longest gap in a \
             client's grants {} ms, {} grants in {:.1} s",
            outcome.gap.as_millis(),
            outcome.grants,
            took.as_secs_f64()
        ),
    );
    match outcome.gap > GAP_MAX {
        true => Err(format!(
            "a client was without a grant for {:?}",
            outcome.gap
        )),
        false => Ok(()),
    }
}

/// Which form of the Pods all of them have.
fn revision(stage: &Stage<'_>, team: &str) -> Result<String, String> {
    let line = format!("statefulset ringfence --namespace={team}");
    let status = &stage.cluster.kubectl.get(&line)?["status"];
    match status["currentRevision"] == status["updateRevision"] {
        true => Ok(status["currentRevision"].to_string()),
        false => Err(format!("not all Pods are of one form: {status}")),
    }
}
