//! A cluster that is lost with all its volumes, and installed again from a backup.

use ringfence_client::{Client, HeldLease};
use serde_json::Value;

use super::two::shows;
use super::uninstalled::{cluster_id, granted};
use super::{Stage, TEAMS};
use crate::cluster::LONG;
use crate::load::{acquire, session};
use crate::program::until;
use crate::say::{self, Watch};

/// The part of the document.
const HEADING: &str = "A cluster that is lost";
/// What the old holders write to, and a lease for it.
const LEASE: &str = "web/orders";
/// The longest TTL, which is that of `helm test`: quiet time is a minute more.
const TTL_MAX: &str = "15s";
/// A right that is in the backup, and no longer in the values.
const TAKEN_AWAY: &str = "former/*";

/// A holder of the cluster that is lost.
struct Old {
    client: Client,
    held: HeldLease,
    token: String,
    cluster: String,
}

pub(super) fn from_a_backup(stage: &Stage<'_>) -> Result<(), String> {
    let [_, team] = TEAMS;
    let old = back_up_and_lose(stage, team)?;
    restore(stage, team, &old)?;
    refuse_what_is_old(stage, team, &old)
}

fn back_up_and_lose(stage: &Stage<'_>, team: &str) -> Result<Old, String> {
    let watch = Watch::start();
    stage.ringfence(team, "access grant local configure")?;
    stage.ringfence(team, &format!("cluster configure --ttl-max {TTL_MAX}"))?;
    stage.ringfence(
        team,
        &format!("access grant token:web acquire {TAKEN_AWAY}"),
    )?;
    let cluster = cluster_id(stage, team)?;
    let before = stage.runtime.block_on(granted(stage, team, LEASE))?;
    let printed = stage.block(HEADING, "backup verify")?;
    if !printed.contains(&cluster) {
        return Err(format!(
            "a backup of another cluster than {cluster}: {printed}"
        ));
    }
    say::shown(watch, "a backup through a Pod is whole, by its digest");

    // The backup knows nothing of this one.
    let (client, held) = stage.runtime.block_on(async {
        let client = stage.client(team, team, team).await?;
        let held = acquire(&session(&client, "old").await?, LEASE).await?;
        Ok::<_, String>((client, held))
    })?;
    let after = held.token().get();
    if after <= before {
        return Err(format!("the token {before} became {after}"));
    }
    stage.operator.types(
        "ringfence guard sqlite store.db --install\n\
         sqlite3 store.db 'CREATE TABLE written (holder TEXT)'",
    )?;
    write(stage, "old", after)?;
    let token = stage.operator.reads(&format!("{team}-web.token"))?;

    let watch = Watch::start();
    stage.block(HEADING, "helm uninstall")?;
    let line = format!("pvc --namespace={team}");
    let claims = stage.cluster.kubectl.get(&line)?;
    if claims["items"] != Value::Array(Vec::new()) {
        return Err(format!("volumes are left: {claims}"));
    }
    say::shown(watch, "the release and all its volumes are gone");
    Ok(Old {
        client,
        held,
        token,
        cluster,
    })
}

fn restore(stage: &Stage<'_>, team: &str, old: &Old) -> Result<(), String> {
    let watch = Watch::start();
    let printed = stage.block(HEADING, "helm install")?;
    let from = format!("restored from cluster {}", old.cluster);
    // The line of `cluster status`; the notes have these words, too.
    let quiet = printed.lines().find(|line| line.contains("quiet time: "));
    let quiet = quiet.filter(|_| printed.contains(&from));
    let quiet = quiet.ok_or_else(|| format!("no {from}, in quiet time: {printed}"))?;
    let rules = stage.ringfence(team, "access list")?;
    if rules.contains(TAKEN_AWAY) || !rules.contains("web/*") {
        return Err(format!("not the rules of the values: {rules}"));
    }
    let mode = stage.ringfence(team, "access mode")?;
    if mode.trim() != "enforced" {
        return Err(format!("the mode is {mode}"));
    }
    say::shown(
        watch,
        "installed again from the backup in a Secret, with the rules of the values",
    );
    say::note(quiet);

    let watch = Watch::start();
    let begun = stage.status(team)?;
    stage.block(HEADING, "helm upgrade")?;
    let status = stage.status(team)?;
    if status["quiet_ms"] == 0 {
        return Err(format!("quiet time was over before the upgrade: {begun}"));
    }
    let refused = stage.runtime.block_on(async {
        let session = session(&stage.client(team, team, team).await?, "new").await?;
        let tried = session.acquire(LEASE).send().await;
        tried.map(drop).map_err(|error| error.to_string())
    });
    let why = refused.err().ok_or("a lease was granted in quiet time")?;
    if !why.contains("the cluster was restored") {
        return Err(format!("refused otherwise than by quiet time: {why}"));
    }
    say::shown(
        watch,
        "in quiet time new tokens were made, `restore` was taken out of the values, and nothing was granted",
    );
    Ok(())
}

/// Quiet time ends, and nothing of the old cluster is good any more.
fn refuse_what_is_old(stage: &Stage<'_>, team: &str, old: &Old) -> Result<(), String> {
    let watch = Watch::start();
    let token = until("quiet time is over", LONG, || {
        stage.runtime.block_on(granted(stage, team, LEASE))
    })?;
    let before = old.held.token().get();
    if token <= before {
        return Err(format!("behind the token {before} came {token}"));
    }
    say::shown(
        watch,
        "behind quiet time the lease has a greater token than the old cluster ever granted",
    );

    let watch = Watch::start();
    write(stage, "new", token)?;
    let refused = write(stage, "late", before);
    let why = refused
        .err()
        .ok_or("the guard took a token of the old cluster")?;
    // The exit code of a token that is too old.
    if !why.contains("exit status: 76") {
        return Err(format!("the guard refused otherwise: {why}"));
    }
    let written = stage
        .operator
        .types("sqlite3 store.db 'SELECT group_concat(holder) FROM written'")?;
    if written.trim() != "old,new" {
        return Err(format!("the store has {written}"));
    }
    stage.ringfence(team, "access grant local observe web/*")?;
    let checked = stage.ringfence(team, &format!("check {LEASE} {before}"));
    let why = checked.err().ok_or("the old token is current")?;
    if !why.contains("is superseded by") && !why.contains("was never granted") {
        return Err(format!("a check of the old token says {why}"));
    }
    if old.held.loss().is_none() {
        return Err("the old holder believes still".to_owned());
    }
    let opened = stage.runtime.block_on(session(&old.client, "old"));
    opened.err().ok_or("the old client has a session")?;
    stage.operator.writes("old-web.token", &old.token)?;
    let opened = stage
        .runtime
        .block_on(async { session(&stage.client(team, team, "old").await?, "old").await });
    let why = opened.err().ok_or("a token of the old cluster is good")?;
    if !why.contains("token") {
        return Err(format!("the old token is refused otherwise: {why}"));
    }
    // The object is of the old cluster, and goes on with the new one's tokens.
    let lease = format!("k8s/{team}-apps/leader");
    let token = stage.runtime.block_on(granted(stage, team, &lease))?;
    shows(stage, team, "", &token.to_string())?;
    stage
        .operator
        .types(&format!("helm test ringfence --namespace {team}"))?;
    say::shown(
        watch,
        "the guard and the cluster refuse the old fencing token, the old holder knows that it lost, \
         and its token of access is refused; `helm test` passes with the new one",
    );
    Ok(())
}

/// One write of a holder under the guard.
fn write(stage: &Stage<'_>, holder: &str, token: u64) -> Result<(), String> {
    let line = format!(
        "echo \"INSERT INTO written VALUES ('{holder}');\" | \
         ringfence guard sqlite store.db --fence '{LEASE}#{token}'"
    );
    stage.operator.types(&line).map(drop)
}
