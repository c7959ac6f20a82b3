//! Two installations with certificates of two authorities each, rights, and a namespace each for
//! their leases.

use serde_json::Value;

use super::{ONE_MACHINE, Stage, TEAMS};
use crate::cluster::LONG;
use crate::load::{acquire, session};
use crate::program::until;
use crate::say::{self, Watch};

/// The part of the document.
pub(super) const HEADING: &str = "Two installations with certificates";
/// The file of values that it names.
const VALUES: &str = "leases.yaml";

pub(super) fn side_by_side(stage: &Stage<'_>) -> Result<(), String> {
    let values = stage.operator.blocks(HEADING, "yaml")?.concat();
    // The image is on the node already, without a registry in its name.
    let values = values.replace("registry.example/", "");
    stage
        .operator
        .writes(VALUES, &format!("{values}{ONE_MACHINE}"))?;
    let watch = Watch::start();
    stage.block(HEADING, "helm install")?;
    say::shown(
        watch,
        "two releases are installed, with certificates of two authorities each",
    );
    let watch = Watch::start();
    let printed = stage.block(HEADING, "helm test")?;
    let passed = printed.matches("Succeeded").count();
    if passed != TEAMS.len() {
        return Err(format!("{passed} tests passed: {printed}"));
    }
    say::shown(
        watch,
        "both have formed a cluster and have the rules of their values, and `helm test` passed",
    );
    for team in TEAMS {
        let mode = stage.ringfence(team, "access mode")?;
        if mode.trim() != "enforced" {
            return Err(format!("the mode of {team} is {mode}"));
        }
    }
    serve(stage)?;
    know_each_other_not(stage)
}

/// Each grants a client outside a lease of one name, and shows it in its own namespace.
fn serve(stage: &Stage<'_>) -> Result<(), String> {
    let watch = Watch::start();
    for (team, other) in [(TEAMS[0], TEAMS[1]), (TEAMS[1], TEAMS[0])] {
        let (own, foreign) = (
            format!("k8s/{team}-apps/leader"),
            format!("k8s/{other}-apps/from-{team}"),
        );
        let held = stage.runtime.block_on(async {
            let client = stage.client(team, team, team).await?;
            let session = session(&client, team).await?;
            // Granted, and not shown: the namespace is that of the other one.
            let foreign = acquire(&session, &foreign).await?;
            Ok::<_, String>((acquire(&session, &own).await?, foreign))
        })?;
        let token = held.0.token().to_string();
        shows(stage, team, team, &token)?;
    }
    let [blue, green] = TEAMS.map(|team| objects(stage, team));
    let (blue, green) = (blue?, green?);
    for (team, names) in [("blue", &blue), ("green", &green)] {
        if names != &["leader"] {
            return Err(format!("{team}-apps has the Leases {names:?}"));
        }
    }
    say::shown(
        watch,
        "clients outside the Pods acquired at both over TLS, and each Lease is in its own namespace",
    );
    Ok(())
}

/// Waits until the Lease `leader` of a team shows this holder and token.
pub(super) fn shows(
    stage: &Stage<'_>,
    team: &str,
    holder: &str,
    token: &str,
) -> Result<(), String> {
    until(&format!("the Lease shows {holder}"), LONG, || {
        let line = format!("lease leader --namespace={team}-apps");
        let found = stage.cluster.kubectl.get(&line)?;
        let annotation = &found["metadata"]["annotations"]["ringfence.io/token"];
        let shown = found["spec"]["holderIdentity"] == holder && annotation == token;
        shown.then_some(()).ok_or_else(|| found.to_string())
    })
}

/// The names of the Leases in the mirrored namespace of a team.
fn objects(stage: &Stage<'_>, team: &str) -> Result<Vec<String>, String> {
    let list = stage
        .cluster
        .kubectl
        .get(&format!("leases --namespace={team}-apps"))?;
    let items = list["items"].as_array().ok_or("no list of Leases")?;
    let names = items.iter().map(|item| &item["metadata"]["name"]);
    Ok(names.filter_map(Value::as_str).map(str::to_owned).collect())
}

/// What is one team's opens no door of the other one.
fn know_each_other_not(stage: &Stage<'_>) -> Result<(), String> {
    let watch = Watch::start();
    let [blue, green] = TEAMS;
    stage.runtime.block_on(async {
        let trusts = stage.client(blue, green, blue).await;
        let why = trusts.err().ok_or("another authority is trusted")?;
        if !why.contains("certificate") {
            return Err(format!("another authority is refused otherwise: {why}"));
        }
        let opened = stage.client(blue, blue, green).await;
        let why = opened.err().ok_or("the other team's token is good here")?;
        match why.contains("token") {
            true => Ok(()),
            false => Err(format!("the other token is refused otherwise: {why}")),
        }
    })?;
    say::shown(
        watch,
        "neither authority nor token of one is good at the other",
    );
    Ok(())
}
