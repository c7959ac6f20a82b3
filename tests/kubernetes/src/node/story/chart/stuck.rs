//! Nodes that are stuck, and what the document says to do: a full volume, a wrong clock, expired
//! certificates. The installation has small volumes, and nodes whose clocks this test steps.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use serde_json::Value;

use super::{ONE_MACHINE, Stage, two};
use crate::clocked::{LIBRARY, TAG};
use crate::cluster::LONG;
use crate::load::{Load, acquire, session};
use crate::program::until;
use crate::say::{self, Watch};
use crate::story::rolling::GAP_MAX;
use crate::volumes::{SMALL_CLASS, SMALL_SIZE, Small};

/// The part of the document, and the namespace that its commands name.
const HEADING: &str = "A full volume, a wrong clock, an expired certificate";
const DOCUMENTS: &str = "blue";
/// The namespace.
const TEAM: &str = "amber";
/// Whose volume is full, and whose clock is wrong.
const FULL: &str = "ringfence-1";
const AHEAD: &str = "ringfence-2";
const DAY: i64 = 86_400;
/// Beside the data directory, on the volume of the node: by how many seconds its clock is wrong.
const OFFSET: &str = "offset";

pub(super) fn by_the_document(stage: &Stage<'_>) -> Result<(), String> {
    let disks = install(stage)?;
    full_volume(stage, &disks)?;
    wrong_clock(stage, &disks)?;
    expired(stage)
}

/// As the two installations of the document, with other volumes and another image.
fn install(stage: &Stage<'_>) -> Result<Small, String> {
    stage
        .operator
        .types("helm uninstall ringfence --namespace red --wait --ignore-not-found")?;
    let watch = Watch::start();
    let disks = Small::offer(stage.cluster)?;
    for disk in disks.folders() {
        step_clock(disk, 0)?;
    }
    let values = stage.operator.blocks(two::HEADING, "yaml")?.concat();
    let values = values.replace(
        "registry.example/ringfence",
        &format!("ringfence\n  tag: {TAG}"),
    );
    let machine = ONE_MACHINE.replace(
        "size: 1Gi",
        &format!("size: {SMALL_SIZE}, className: {SMALL_CLASS}"),
    );
    let variables = format!(
        "extraEnv:\n- {{name: LD_PRELOAD, value: {LIBRARY}}}\n\
         - {{name: TEST_CLOCK_OFFSET, value: /var/lib/ringfence/{OFFSET}}}\n\
         - {{name: RINGFENCE_WAL_SEGMENT_BYTES, value: '1048576'}}\n"
    );
    stage
        .operator
        .writes("leases.yaml", &format!("{values}{machine}{variables}"))?;
    for words in ["helm install", "helm test"] {
        let blocks = stage.operator.blocks(two::HEADING, "sh")?;
        let block = blocks.iter().find(|block| block.contains(words));
        let block = block.ok_or_else(|| format!("no block has {words}"))?;
        stage.operator.types(&block.replace("blue green", TEAM))?;
    }
    stage.ringfence(TEAM, "access grant local operate")?;
    for name in ["held/*", "busy/*"] {
        stage.ringfence(TEAM, &format!("access grant token:web acquire {name}"))?;
    }
    say::shown(
        watch,
        "a release with small volumes and with clocks that can be wrong serves",
    );
    Ok(disks)
}

/// What the one block of the document prints that has these words, typed for this release.
fn block(stage: &Stage<'_>, words: &str) -> Result<String, String> {
    let blocks = stage.operator.blocks(HEADING, "sh")?;
    let mut blocks = blocks.iter().filter(|block| block.contains(words));
    match (blocks.next(), blocks.next()) {
        (Some(block), None) => {
            let block = block.replace(DOCUMENTS, TEAM);
            stage.operator.types(&format!("{{\n{block}}} 2>&1"))
        }
        _ => Err(format!("{HEADING}: not one block has {words:?}")),
    }
}

fn full_volume(stage: &Stage<'_>, disks: &Small) -> Result<(), String> {
    stage.ringfence(TEAM, "cluster transfer-leader ringfence-0")?;
    let load = Load::start(stage.runtime, async || stage.client(TEAM, TEAM, TEAM).await)?;
    let watch = Watch::start();
    let shown = filled_and_grown(stage, disks);
    let outcome = load.end(stage.runtime)?;
    let why = shown?;
    if outcome.gap > GAP_MAX {
        return Err(format!(
            "a client was without a grant for {:?}",
            outcome.gap
        ));
    }
    say::shown(
        watch,
        &format!(
            "a node whose volume was full said so, and went on when it had grown; no session was lost, \
             longest gap in a client's grants {} ms, {} grants",
            outcome.gap.as_millis(),
            outcome.grants
        ),
    );
    say::note(why.trim());
    Ok(())
}

/// What the node said of its volume while that was full.
fn filled_and_grown(stage: &Stage<'_>, disks: &Small) -> Result<String, String> {
    let disk = disks.of(stage.cluster, TEAM, FULL)?;
    fill(&disk.join("reserve"))?;
    let why = until("the node finds no room", LONG, || {
        let told = readiness(stage, FULL)?;
        told.contains("#a-disk-is-full")
            .then_some(told.clone())
            .ok_or(told)
    })?;
    let member = member(stage, FULL)?;
    if member["no_room"] != true {
        return Err(format!("the leader does not know it: {member}"));
    }
    let typed = thread::scope(|scope| {
        let grown = scope.spawn(|| disks.grow_when_asked(stage.cluster, TEAM, FULL));
        let typed = block(stage, "patch pvc");
        let grown = grown.join().map_err(|_| "the storage gave up".to_owned())?;
        grown.and(typed)
    })?;
    let rows = typed.lines().filter(|row| row.contains("NO ROOM"));
    match rows.collect::<Vec<_>>()[..] {
        [row] if row.contains(FULL) => Ok(why),
        _ => Err(format!("not the one whose volume is full: {typed}")),
    }
}

/// Takes all the room that is left, to the last page.
fn fill(path: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut file = File::create(path).map_err(failed)?;
    for size in [1 << 20, 4096] {
        let zeros = vec![0; size];
        loop {
            match file.write_all(&zeros) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => return Err(failed(error)),
            }
        }
    }
    Ok(())
}

fn wrong_clock(stage: &Stage<'_>, disks: &Small) -> Result<(), String> {
    let watch = Watch::start();
    let load = Load::start(stage.runtime, async || stage.client(TEAM, TEAM, TEAM).await)?;
    let shown = ahead_and_back(stage, disks.of(stage.cluster, TEAM, AHEAD)?);
    let outcome = load.end(stage.runtime)?;
    let (ahead, after) = shown?;
    say::shown(
        watch,
        &format!(
            "a leader whose clock was a day ahead was found and set right; no session was lost, tokens \
             went on rising, from {ahead} to {after}, {} grants",
            outcome.grants
        ),
    );
    Ok(())
}

/// A token of the leader with the wrong clock, and one of its successor.
fn ahead_and_back(stage: &Stage<'_>, disk: &Path) -> Result<(u64, u64), String> {
    step_clock(disk, DAY)?;
    stage.ringfence(TEAM, &format!("cluster transfer-leader {AHEAD}"))?;
    let ahead = granted(stage)?;
    let told = block(stage, "doctor || true")?;
    for part in ["a-clock-is-wrong-by-a-day", "PROBLEM"] {
        if !told.contains(part) {
            return Err(format!("no {part} in what `doctor` says: {told}"));
        }
    }
    if !told
        .lines()
        .any(|line| line.contains("clocks") && line.contains(AHEAD))
    {
        return Err(format!("it does not say whose clock is apart: {told}"));
    }
    // What the operator does on that machine.
    step_clock(disk, 0)?;
    block(stage, "until kubectl --namespace blue exec ringfence-0")?;
    stage.ringfence(TEAM, "cluster transfer-leader ringfence-0")?;
    let after = granted(stage)?;
    // A term's first token has the seconds of its leader's clock in its upper bits.
    let apart = (after >> 20).abs_diff(ahead >> 20);
    match after > ahead && apart < 3_600 {
        true => Ok((ahead, after)),
        false => Err(format!("the next leader grants {after} after {ahead}")),
    }
}

/// By how many seconds the clock of the node on a disk is wrong from now on. A node maps the file, so it
/// is written in place.
fn step_clock(disk: &Path, seconds: i64) -> Result<(), String> {
    let path = disk.join(OFFSET);
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(false).open(&path);
    let written = file.and_then(|file| file.write_all_at(&seconds.to_ne_bytes(), 0));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// The token of a grant to a client outside.
fn granted(stage: &Stage<'_>) -> Result<u64, String> {
    stage.runtime.block_on(async {
        let client = stage.client(TEAM, TEAM, TEAM).await?;
        let session = session(&client, "asks").await?;
        let lease = acquire(&session, "held/asked").await?;
        let token = lease.token().get();
        let released = lease.release().await;
        released.map_err(|error| error.to_string())?;
        Ok(token)
    })
}

/// Certificates of the same CAs and with the same names, which end in the second in which they begin.
const SIGN_EXPIRED: &str = r#"umask 077
expired() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=ringfence \
    -addext "subjectAltName=$2" -addext basicConstraints=critical,CA:FALSE \
    -keyout expired.key -out expired.csr
  openssl x509 -req -in expired.csr -CA TEAM-$1-ca.crt -CAkey TEAM-$1-ca.key -days 0 \
    -copy_extensions copy -out expired.crt
  kubectl create secret generic ringfence-$1-tls --dry-run=client --output=yaml \
    --from-file=tls.crt=expired.crt --from-file=tls.key=expired.key --from-file=ca.crt=TEAM-$1-ca.crt |
    kubectl --namespace TEAM replace --filename=-
}
expired peers "DNS:*.ringfence-peers.TEAM.svc"
expired clients "DNS:ringfence.TEAM.svc,DNS:*.ringfence-peers.TEAM.svc"
"#;

/// As if a year had passed, and each node was started again.
fn expired(stage: &Stage<'_>) -> Result<(), String> {
    let before = granted(stage)?;
    let watch = Watch::start();
    stage.operator.types(&SIGN_EXPIRED.replace("TEAM", TEAM))?;
    stage.operator.types(&format!(
        "kubectl --namespace {TEAM} delete pod ringfence-0 ringfence-1 ringfence-2"
    ))?;
    let why = until("a node says what it lacks", LONG, || {
        let told = readiness(stage, FULL)?;
        told.contains("#the-majority-is-down")
            .then_some(told.clone())
            .ok_or(told)
    })?;
    let log = stage
        .cluster
        .kubectl
        .run(&format!("logs {FULL} --namespace={TEAM}"))?;
    if !log.contains("expired") {
        return Err(format!("its log does not say why: {log}"));
    }
    let found = stage.operator.types(&format!(
        "kubectl --namespace {TEAM} exec {FULL} -- /ringfence doctor 2>&1 || true"
    ))?;
    if !found.contains("has ended") || !found.contains("#a-certificate-has-expired") {
        return Err(format!("`doctor` does not find it: {found}"));
    }
    say::shown(
        watch,
        "nodes that were started with expired certificates stand still, and say:",
    );
    say::note(why.trim());
    let watch = Watch::start();
    block(stage, "renew()")?;
    let after = granted(stage)?;
    if after <= before {
        return Err(format!("token {after} after {before}"));
    }
    say::shown(
        watch,
        "certificates that were signed again by the document brought them back, without a restart",
    );
    for pod in ["ringfence-0", FULL, AHEAD] {
        let found = pod_of(stage, pod)?;
        let restarts = &found["status"]["containerStatuses"][0]["restartCount"];
        if *restarts != 0 {
            return Err(format!("{pod} was restarted {restarts} times"));
        }
    }
    Ok(())
}

fn pod_of(stage: &Stage<'_>, pod: &str) -> Result<Value, String> {
    stage
        .cluster
        .kubectl
        .get(&format!("pod {pod} --namespace={TEAM}"))
}

/// What the HTTP port of a node says of its readiness.
fn readiness(stage: &Stage<'_>, pod: &str) -> Result<String, String> {
    let address = pod_of(stage, pod)?["status"]["podIP"]
        .as_str()
        .map(str::to_owned);
    let address = address.ok_or_else(|| format!("{pod} has no address"))?;
    stage.operator.types(&format!(
        "curl --silent --max-time 5 http://{address}:7422/readyz"
    ))
}

/// A member, as the leader knows it.
fn member(stage: &Stage<'_>, name: &str) -> Result<Value, String> {
    let told = stage.ringfence(TEAM, "cluster members --json")?;
    let values = serde_json::Deserializer::from_str(&told).into_iter::<Value>();
    let values: Vec<Value> = values
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    let mut members = values.into_iter().flat_map(|value| match value {
        Value::Array(members) => members,
        one => vec![one],
    });
    let found = members.find(|member| member["name"] == name);
    found.ok_or_else(|| format!("no {name} in {told}"))
}
