//! Both CAs of the installation of `issued` are replaced while leases are held.

use super::Stage;
use super::issued::{TEAM, everywhere, keep, processes, served_everywhere, shown};
use crate::load::{Load, Outcome};
use crate::say::{self, Watch};
use crate::story::rolling::GAP_MAX;

/// The part of the document.
const HEADING: &str = "Another CA by cert-manager";
/// What its blocks are known by: that which lets the nodes trust both CAs, and that which lets the new
/// ones sign.
const TRUST: &str = "--from-file=ca.crt=red-peers-ca.both";
const SIGN: &str = "certificate/ringfence-peers certificate/ringfence-clients";

/// Each step is done twice: an operator who is interrupted begins it again.
pub(super) fn replaced(stage: &Stage<'_>) -> Result<(), String> {
    let before = everywhere(stage)?;
    let watch = Watch::start();
    let trusting = under_load(stage, || {
        for step in [
            "rotationPolicy: Never",
            "rotationPolicy: Never",
            TRUST,
            TRUST,
        ] {
            stage.block(HEADING, step)?;
        }
        Ok(())
    })?;
    if everywhere(stage)? != before {
        return Err("a port serves a certificate of a CA that no client has".to_owned());
    }
    tell(watch, "all nodes trust both CAs", trusting);

    keep(stage, "peers")?;
    let old_clients = format!(
        "cp {TEAM}-clients-ca.crt old-clients-ca.crt && cp {TEAM}-clients-ca.both {TEAM}-clients-ca.crt"
    );
    stage.operator.types(&old_clients)?;
    let (ran, watch) = (processes(stage)?, Watch::start());
    let sign = |authority: &'static str, step: &'static str| {
        stage.block(HEADING, step)?;
        served_everywhere(stage, authority)
    };
    let signed = under_load(stage, || {
        sign("-ca-2", SIGN)?;
        // The way back, and forward again.
        back(stage)?;
        served_everywhere(stage, "-ca")?;
        sign("-ca-2", SIGN)
    })?;
    if processes(stage)? != ran {
        return Err("a node was restarted by other certificates".to_owned());
    }
    tell(
        watch,
        "all ports serve what the new CAs signed, and what the old ones did on the way back",
        signed,
    );

    let forgets = stage.operator.types(&format!(
        "helm upgrade ringfence deploy/helm/ringfence --namespace {TEAM} --values leases.yaml \
         --set tls.peers.mode=certManager,tls.clients.mode=certManager,mirror.namespace={TEAM}-apps \
         --set tls.peers.trustedSecretName=ringfence-peers-trust"
    ));
    match forgets {
        Err(why) if why.contains("backToOwnCA") => {}
        other => return Err(format!("an upgrade without the issuers: {other:?}")),
    }

    let watch = Watch::start();
    let forgotten = under_load(stage, || {
        stage.block(HEADING, "ringfence-clients-ca-2 --output")?;
        let told = shown(stage, "peers")?;
        match told.contains("alert") {
            true => stage.block(HEADING, "delete secret").map(drop),
            false => Err(format!("a certificate of the old CA is accepted: {told}")),
        }
    })?;
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

/// The step that lets the nodes trust both, as the way back.
fn back(stage: &Stage<'_>) -> Result<(), String> {
    let blocks = stage.operator.blocks(HEADING, "sh")?;
    let block = blocks.iter().find(|block| block.contains(TRUST));
    let block = block.ok_or("no block trusts both CAs")?;
    let trusted = "tls.peers.trustedSecretName=ringfence-peers-trust";
    let more = format!("{trusted} --set certManager.backToOwnCA=true");
    stage
        .operator
        .types(&block.replace(trusted, &more))
        .map(drop)
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
