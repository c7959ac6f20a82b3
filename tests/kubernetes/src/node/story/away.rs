//! The API server stands still for a minute, while one node of five is stuck and one is cut off:
//! leases are granted, kept and lost all the same, and shown as they are once it goes on.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use ringfence_client::{HeldLease, Session};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::probes::{GetNowhere, OTHERS};
use crate::cluster::{self, Cluster, LONG};
use crate::load::{self, acquire, session};
use crate::program::{call, until};
use crate::say::{self, Watch};

/// For how long it stands.
const AWAY: Duration = Duration::from_secs(60);
/// Between two rounds of grants, before and meanwhile.
const PACE: Duration = Duration::from_secs(2);
/// Grants in a round whose times are taken, each of a lease of its own.
const TIMED: usize = 10;
/// Rounds before.
const ROUNDS_BEFORE: usize = 5;
/// A busy neighbour: what a median may differ by between two measurements.
const NOISE: Duration = Duration::from_millis(30);
/// The mirror writes a renewal at most every half TTL, of 5 s here, and the machine may be busy.
const RENEWED: Duration = AWAY.saturating_sub(Duration::from_secs(5));

/// Where all of it happens, in lease names.
const PREFIX: &str = "k8s/default";
/// The same, as the API server has it.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const TOKEN: &str = "ringfence.io/token";
const POSITION: &str = "ringfence.io/position";

pub(super) fn grants_go_on_for_a_minute(
    cluster: &Cluster,
    runtime: &Runtime,
) -> Result<(), String> {
    let endpoints = endpoints();
    let mut told = Told::default();
    let (worker, kept, heir) = runtime.block_on(async {
        let client = load::client(&endpoints).await?;
        let worker = session(&client, "worker").await?;
        let kept = acquire(&session(&client, "keeper").await?, &name("kept")).await?;
        Ok::<_, String>((worker, kept, session(&client, "heir").await?))
    })?;
    told.held("kept", "keeper", &kept);
    let doomed = Doomed::holding(&endpoints[0], &name("handed-on"))?;
    let mut before = Vec::new();
    runtime.block_on(async {
        for _ in 0..ROUNDS_BEFORE {
            timed(&worker, &mut told, &mut before).await?;
        }
        Ok::<_, String>(())
    })?;
    told.await_shown(cluster)?;
    let listed = leases(cluster)?;
    let renewed = renewed(&listed, "kept")?;

    let nowhere = GetNowhere::begin(cluster)?;
    let standing = Standing::still(cluster.api_server)?;
    let watch = Watch::start();
    let lost = doomed.token;
    drop(doomed);
    let mut meanwhile = Vec::new();
    let held = runtime.block_on(async {
        let inherited = async {
            let lease = acquire(&heir, &name("handed-on")).await?;
            Ok((lease, watch.so_far()))
        };
        let busy = busy(&worker, &kept, watch, &mut told, &mut meanwhile);
        let ((inherited, at), mut held) = tokio::try_join!(inherited, busy)?;
        if inherited.token().get() <= lost {
            return Err(format!("{} behind {lost}", inherited.fence()));
        }
        say::note(&format!(
            "a lease whose holder died meanwhile was granted anew after {:.1} s",
            at.as_secs_f64()
        ));
        told.held("handed-on", "heir", &inherited);
        held.push(inherited);
        Ok(held)
    })?;
    let told_since = Timestamp::now();
    drop(standing);

    let back = Watch::start();
    told.await_shown(cluster)?;
    let took = back.so_far();
    let since = until("renewals of that minute are shown", LONG, || {
        let since = self::renewed(&leases(cluster)?, "kept")?.duration_since(renewed);
        let since = Duration::try_from(since).unwrap_or_default();
        (since >= RENEWED)
            .then_some(since)
            .ok_or(format!("{since:?}"))
    })?;
    let versions = never_back(cluster, &listed)?;
    let [before, during] = [&mut before, &mut meanwhile].map(|took| median(took));
    say::shown(
        watch,
        &format!(
            "the API server stood still for {} s: a grant and its release took {} ms, {} ms before; \
             {} leases were shown right {:.1} s after, in {versions} writes, a renewal {:.0} s later \
             than the last, and nothing old over anything new",
            AWAY.as_secs(),
            during.as_millis(),
            before.as_millis(),
            told.objects.len(),
            took.as_secs_f64(),
            since.as_secs_f64(),
        ),
    );
    say::note(&nowhere.end(cluster, told_since)?);
    if during > before * 3 + NOISE {
        return Err(format!("grants were slowed: {before:?} became {during:?}"));
    }
    runtime.block_on(async {
        for lease in held.into_iter().chain([kept]) {
            let released = lease.release().await;
            released.map_err(|error| format!("a held lease: {error}"))?;
        }
        Ok(())
    })
}

/// Where the nodes are found that stay. The Service would lead to the others too: that they are not
/// ready is reported by the API server.
fn endpoints() -> Vec<String> {
    let pods = cluster::names(OTHERS).into_iter();
    pods.map(|pod| format!("{pod}.ringfence-peers.ringfence:7420"))
        .collect()
}

fn name(object: &str) -> String {
    format!("{PREFIX}/{object}")
}

/// Grants until the minute is over: such as end at once, and in each round one that stays.
async fn busy(
    worker: &Session,
    kept: &HeldLease,
    watch: Watch,
    told: &mut Told,
    took: &mut Vec<Duration>,
) -> Result<Vec<HeldLease>, String> {
    let mut held = Vec::new();
    while watch.so_far() < AWAY {
        timed(worker, told, took).await?;
        let object = format!("new-{}", held.len());
        let lease = acquire(worker, &name(&object)).await?;
        told.held(&object, "worker", &lease);
        held.push(lease);
        if let Some(loss) = kept.loss() {
            return Err(format!("{} was lost: {loss}", kept.name()));
        }
        // Nothing is waited for: the minute has to pass.
        tokio::time::sleep(PACE).await;
    }
    Ok(held)
}

/// A round of grants that end at once.
async fn timed(worker: &Session, told: &mut Told, took: &mut Vec<Duration>) -> Result<(), String> {
    for number in 0..TIMED {
        let object = format!("timed-{number}");
        let watch = Watch::start();
        let lease = acquire(worker, &name(&object)).await?;
        told.free(&object, &lease);
        let released = lease.release().await;
        released.map_err(|error| format!("release {object}: {error}"))?;
        took.push(watch.so_far());
    }
    Ok(())
}

fn median(took: &mut [Duration]) -> Duration {
    took.sort();
    took[took.len() / 2]
}

/// A process that holds a lease; with this value it is killed.
struct Doomed {
    process: Child,
    token: u64,
}

impl Doomed {
    fn holding(endpoint: &str, lease: &str) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("a process that holds {lease}: {error}");
        let program = std::env::current_exe().map_err(failed)?;
        let mut process = Command::new(program)
            .args(["hold", endpoint, lease])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let out = process.stdout.take();
        let mut doomed = Self { process, token: 0 };
        let mut line = String::new();
        if let Some(out) = out {
            BufReader::new(out).read_line(&mut line).map_err(failed)?;
        }
        let token = line.trim().parse();
        doomed.token = token.map_err(|_| format!("no token of {lease}: {line:?}"))?;
        Ok(doomed)
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// The API server, stopped where it stands; it goes on when this value goes.
struct Standing(String);

impl Standing {
    fn still(pid: u32) -> Result<Self, String> {
        let pid = pid.to_string();
        call("kill", &["-s", "STOP", &pid])?;
        Ok(Self(pid))
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        // Whatever comes next says so if it does not.
        call("kill", &["-s", "CONT", &self.0]).ok();
    }
}

/// What objects have to say: the holder, who may be absent, and the token.
#[derive(Default)]
struct Told {
    objects: BTreeMap<String, (String, String)>,
}

impl Told {
    fn held(&mut self, object: &str, holder: &str, lease: &HeldLease) {
        let says = (holder.to_owned(), lease.token().get().to_string());
        self.objects.insert(object.to_owned(), says);
    }

    fn free(&mut self, object: &str, lease: &HeldLease) {
        self.held(object, "", lease);
    }

    /// Waits until all of them say so.
    fn await_shown(&self, cluster: &Cluster) -> Result<(), String> {
        until("every Lease is as it should be", LONG, || {
            let listed = leases(cluster)?;
            for (object, (holder, token)) in &self.objects {
                let found = find(&listed, object)?;
                let named = found["spec"]["holderIdentity"].as_str().unwrap_or_default();
                if named != holder || found["metadata"]["annotations"][TOKEN] != **token {
                    return Err(format!("wanted {holder:?} {token}, found {found}"));
                }
            }
            Ok(())
        })
    }
}

fn leases(cluster: &Cluster) -> Result<Value, String> {
    let text = cluster.kubectl.call(&["get", "--raw", LEASES])?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

fn items(listed: &Value) -> impl Iterator<Item = &Value> {
    listed["items"].as_array().into_iter().flatten()
}

fn find<'a>(listed: &'a Value, object: &str) -> Result<&'a Value, String> {
    let found = items(listed).find(|lease| lease["metadata"]["name"] == *object);
    found.ok_or_else(|| format!("there is no Lease {object}"))
}

fn renewed(listed: &Value, object: &str) -> Result<Timestamp, String> {
    let time = find(listed, object)?["spec"]["renewTime"].as_str();
    let time = time.unwrap_or_default();
    time.parse()
        .map_err(|error| format!("{time:?} is no time: {error}"))
}

/// An object's place in the life of the cluster, and its token.
fn place(lease: &Value) -> Result<[u64; 3], String> {
    let annotations = &lease["metadata"]["annotations"];
    let position = annotations[POSITION].as_str().unwrap_or_default();
    let token = annotations[TOKEN].as_str().unwrap_or_default();
    let parts = position.split_once('/').map(|(a, b)| [a, b, token]);
    let parts = parts.and_then(|[counter, index, token]| {
        Some([
            counter.parse().ok()?,
            index.parse().ok()?,
            token.parse().ok()?,
        ])
    });
    parts.ok_or_else(|| format!("no position and token on {lease}"))
}

/// Looks at every version that the objects have had since they were listed; how many there were.
fn never_back(cluster: &Cluster, listed: &Value) -> Result<usize, String> {
    let version = listed["metadata"]["resourceVersion"].as_str();
    let version = version.ok_or("a list without a version")?;
    let path = format!("{LEASES}?watch=1&timeoutSeconds=2&resourceVersion={version}");
    let events = cluster.kubectl.call(&["get", "--raw", &path])?;
    let events = events.lines().map(serde_json::from_str::<Value>);
    let events: Vec<Value> = events
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    let mut newest = BTreeMap::new();
    let changed = events.iter().map(|event| match event["type"].as_str() {
        Some("ADDED" | "MODIFIED") => Ok(&event["object"]),
        _ => Err(format!("an event that should not be: {event}")),
    });
    for lease in items(listed).map(Ok).chain(changed) {
        let lease = lease?;
        let [counter, index, token] = place(lease)?;
        let before = newest.insert(
            lease["metadata"]["name"].to_string(),
            (counter, index, token),
        );
        if let Some((counter_before, index_before, token_before)) = before
            && ((counter, index) < (counter_before, index_before) || token < token_before)
        {
            let was = format!("{counter_before}/{index_before} with {token_before}");
            return Err(format!("something old over something new, {was}: {lease}"));
        }
    }
    Ok(events.len())
}
