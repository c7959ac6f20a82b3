//! Both CAs of the installation of `issued` are replaced while leases are held.

use super::Stage;
use super::issued::{RENEWED_MAX, TEAM, everywhere, keep, processes, renewed, shown};
use crate::load::{Load, Outcome};
use crate::program::until;
use crate::say::{self, Watch};
use crate::story::rolling::GAP_MAX;

/// The part of the document.
const HEADING: &str = "Another CA by cert-manager";

pub(super) fn replaced(stage: &Stage<'_>) -> Result<(), String> {
    let before = everywhere(stage)?;
    let watch = Watch::start();
    let trusting = under_load(stage, || stage.block(HEADING, "helm upgrade").map(drop))?;
    if everywhere(stage)? != before {
        return Err("a port serves a certificate of a CA that no client has".to_owned());
    }
    tell(watch, "all nodes trust both CAs", trusting);

    // Clients have both CAs from here on.
    keep(stage, "peers")?;
    let (ran, watch) = (processes(stage)?, Watch::start());
    let signed = under_load(stage, || renewed(stage))?;
    tell(watch, "all ports serve what the new CAs signed", signed);

    let watch = Watch::start();
    stage
        .operator
        .types(&format!("cp {TEAM}-clients-ca.old old-clients-ca.crt"))?;
    let forgotten = under_load(stage, || {
        stage.block(HEADING, "cp red-clients-ca.new")?;
        until("a node refuses the old CA", RENEWED_MAX, || {
            let told = shown(stage, "peers")?;
            told.contains("alert").then_some(()).ok_or(told)
        })
    })?;
    if processes(stage)? != ran {
        return Err("a node was restarted by other certificates".to_owned());
    }
    let connected = |authority: &str| stage.runtime.block_on(stage.client(TEAM, authority, TEAM));
    connected(TEAM).map_err(|why| format!("a client with the new CA: {why}"))?;
    if connected("old").is_ok() {
        return Err("a client that trusts the old CA alone was served".to_owned());
    }
    keep(stage, "peers")?;
    let told = shown(stage, "peers")?;
    stage.operator.types("rm peers.kept*")?;
    if told.contains("alert") {
        return Err(format!("a certificate of the new CA is refused: {told}"));
    }
    tell(
        watch,
        "what the old CAs signed is refused by nodes and by clients",
        forgotten,
    );
    Ok(())
}

/// Clients with the CAs that are in the file at this moment hold and take leases meanwhile.
fn under_load(
    stage: &Stage<'_>,
    act: impl FnOnce() -> Result<(), String>,
) -> Result<Outcome, String> {
    let load = Load::start(stage.runtime, async || stage.client(TEAM, TEAM, TEAM).await)?;
    let done = act();
    let outcome = load.end(stage.runtime)?;
    done?;
    match outcome.gap > GAP_MAX {
        true => Err(format!("a client had no grant for {:?}", outcome.gap)),
        false => Ok(outcome),
    }
}

fn tell(watch: Watch, what: &str, outcome: Outcome) {
    say::shown(
        watch,
        &format!(
            "{what}; no session was lost, longest gap in a client's grants {} ms, {} grants",
            outcome.gap.as_millis(),
            outcome.grants
        ),
    );
}
