//! The overlay `production`, by the commands of `deploy/KUBERNETES.md` as they stand there: nodes that
//! know each other by a secret, and clients that need rights.

use std::path::Path;
use std::time::Duration;

use ringfence_client::{Client, HeldLease};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::pods::apply_text;
use super::{SERVICE, outside, tell_members};
use crate::cluster::{Cluster, LONG, names};
use crate::load;
use crate::operator::Operator;
use crate::program::until;
use crate::say::{self, Watch};

/// The parts of the document.
const RIGHTS: &str = "TLS and rights in production";
const ACCOUNTS: &str = "Workloads and their service accounts";
/// The operator's overlay.
const OVERLAY: &str = "deploy/kubernetes/overlays/production/kustomization.yaml";
/// What stands in the document for the issuer of this Kubernetes.
const ISSUER: &str = "https://ISSUER";
/// The line that shows the metrics to callers without a credential.
const METRICS: &str = "grant anonymous observe ringfence/metrics";

/// A machine of its own for each node, and the processors that a node has in production, are more
/// than this one node of Kubernetes has.
const ONE_MACHINE: &str = r#"
  - target:
      kind: StatefulSet
      name: ringfence
    patch: |-
      apiVersion: apps/v1
      kind: StatefulSet
      metadata:
        name: ringfence
      spec:
        template:
          spec:
            affinity:
              podAntiAffinity:
                requiredDuringSchedulingIgnoredDuringExecution: null
            containers:
              - name: ringfence
                resources:
                  requests:
                    cpu: 50m
                    memory: 64Mi
"#;

/// Where the Pods are that ask, and what they ask for: the namespace's own.
const NAMESPACE: &str = "reports";
const LEASE: &str = "k8s/reports/nightly";

pub(super) fn by_the_document(cluster: &Cluster, runtime: &Runtime) -> Result<(), String> {
    let watch = Watch::start();
    for (namespace, wait) in [("demo", false), ("shop", false), ("ringfence", true)] {
        let line = format!("delete namespace {namespace} --ignore-not-found --wait={wait}");
        cluster.kubectl.run(&line)?;
    }
    say::shown(watch, "what ran before is gone, for another cluster");

    let watch = Watch::start();
    let operator = Operator::of(cluster)?;
    let rules = prepare(&operator)?;
    for line in commands(&operator, RIGHTS)? {
        if line.contains(METRICS) {
            figures_answer(cluster, 401)?;
        }
        operator.types(&line)?;
    }
    figures_answer(cluster, 200)?;
    rules
        .iter()
        .try_for_each(|line| operator.types(line).map(drop))?;
    let members = cluster.await_voters("ringfence-0", &names(3))?;
    say::shown(
        watch,
        "the commands of KUBERNETES.md formed a cluster of three with TLS between its nodes, where \
         rights are enforced and metrics are shown by a right",
    );
    tell_members(&members);

    let watch = Watch::start();
    let token = operator.reads("deploy.token")?;
    let held = runtime.block_on(by_token(token.trim()))?;
    by_account(cluster)?;
    say::shown(
        watch,
        "a token and a Pod's service account acquire what rules allow, and callers without one do not",
    );
    restart(cluster, runtime, held)
}

/// What the document says before the cluster is there; the commands are left that give rights.
fn prepare(operator: &Operator) -> Result<Vec<String>, String> {
    // The first command is that of the cluster, too: it makes the namespace.
    let first = commands(operator, RIGHTS)?.remove(0);
    operator.types(&first)?;
    let mut issuer = None;
    let (keys, rules): (Vec<_>, Vec<_>) = commands(operator, ACCOUNTS)?
        .into_iter()
        // What stands in the overlay counts from the first start on.
        .filter(|line| !line.contains("apply -k"))
        .partition(|line| !line.contains("access grant"));
    for line in keys {
        let printed = operator.types(&line)?;
        if let Ok(found) = serde_json::from_str::<Value>(&printed) {
            issuer = found["issuer"].as_str().map(str::to_owned);
        }
    }
    let issuer = issuer.ok_or("the document asks for no issuer")?;
    let patch = operator.blocks(ACCOUNTS, "yaml")?.concat();
    if !patch.contains(ISSUER) {
        return Err(format!("the overlay names no {ISSUER}: {patch}"));
    }
    let patch = patch.replace(ISSUER, &issuer);
    operator.adds(Path::new(OVERLAY), &format!("{ONE_MACHINE}{patch}"))?;
    Ok(rules)
}

fn commands(operator: &Operator, heading: &str) -> Result<Vec<String>, String> {
    let text = operator.blocks(heading, "sh")?.concat();
    let lines = text.lines().filter(|line| !line.is_empty());
    Ok(lines.map(str::to_owned).collect())
}

/// Probes need no right, and have been answered all along.
fn figures_answer(cluster: &Cluster, expected: u16) -> Result<(), String> {
    for pod in names(3) {
        let (status, text) = cluster.http(&pod, "/metrics")?;
        if status != expected {
            return Err(format!("{pod} shows metrics with {status}: {text}"));
        }
    }
    Ok(())
}

/// A client outside: with the token it acquires, and without it does not.
async fn by_token(token: &str) -> Result<HeldLease, String> {
    let stranger = outside().await?;
    let refused = load::session(&stranger, "stranger").await;
    let why = refused.err().ok_or("a stranger has a session")?;
    if !why.contains("anonymous acquire") {
        return Err(format!("a stranger is refused otherwise: {why}"));
    }
    let deploy = Client::builder().endpoints([SERVICE]).token(token);
    let deploy = deploy.connect().await.map_err(|error| error.to_string())?;
    let session = load::session(&deploy, "deploy").await?;
    let other = load::acquire(&session, "other/web").await;
    let why = other.err().ok_or("a token is good for any lease")?;
    if !why.contains("token:deploy acquire other/web") {
        return Err(format!("another lease is refused otherwise: {why}"));
    }
    load::acquire(&session, "deploy/web").await
}

/// Two Pods of one account, of which one shows its token.
fn by_account(cluster: &Cluster) -> Result<(), String> {
    let place = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    });
    let [proven, bare] = [("proven", true), ("bare", false)].map(|(name, shows)| pod(name, shows));
    let text = format!("{place}\n---\n{proven}\n---\n{bare}\n");
    // The namespace's account is made a moment after it.
    until("the Pods are there", LONG, || apply_text(cluster, &text))?;
    for (name, expected) in [("proven", 0), ("bare", 77)] {
        let line = format!("pod {name} --namespace={NAMESPACE}");
        let code = until(&format!("the Pod {name} has ended"), LONG, || {
            let found = cluster.kubectl.get(&line)?;
            let ended = &found["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"];
            ended.as_u64().ok_or_else(|| found["status"].to_string())
        })?;
        if code != expected {
            let logs = cluster
                .kubectl
                .run(&format!("logs {name} --namespace={NAMESPACE}"))?;
            return Err(format!("the Pod {name} ended with {code}: {logs}"));
        }
    }
    Ok(())
}

/// A Pod that acquires, does its work and ends.
fn pod(name: &str, shows_token: bool) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "restartPolicy": "Never",
            "enableServiceLinks": false,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "it", "image": "ringfence:0.1.0",
                "args": ["lock", LEASE, "--wait", "30s", "--", "/ringfence", "--version"],
                "env": [{"name": "RINGFENCE_ENDPOINTS", "value": "ringfence.ringfence.svc:7420"}],
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
            }],
        },
    });
    if shows_token {
        let folder = "/var/run/secrets/ringfence";
        let spec = &mut pod["spec"];
        spec["volumes"] = json!([{"name": "token", "projected": {"sources": [
            {"serviceAccountToken": {"audience": "ringfence", "path": "token"}},
        ]}}]);
        let container = &mut spec["containers"][0];
        container["volumeMounts"] =
            json!([{"name": "token", "mountPath": folder, "readOnly": true}]);
        let variable = json!({"name": "RINGFENCE_TOKEN_FILE", "value": format!("{folder}/token")});
        container["env"]
            .as_array_mut()
            .into_iter()
            .for_each(|env| env.push(variable.clone()));
    }
    pod
}

/// A node that starts again knows the others, and the rights; a holder does not notice.
fn restart(cluster: &Cluster, runtime: &Runtime, held: HeldLease) -> Result<(), String> {
    let watch = Watch::start();
    let before = cluster.uid("ringfence-1")?;
    cluster
        .kubectl
        .run("delete pod ringfence-1 --namespace=ringfence --wait=false")?;
    cluster.await_next("ringfence-1", &before)?;
    cluster.await_voters("ringfence-1", &names(3))?;
    let mode = cluster.ringfence("ringfence-1", "access mode")?;
    let rules = cluster.ringfence("ringfence-1", "access list")?;
    if mode.trim() != "enforced" || !rules.contains("deploy/*") {
        return Err(format!("after its restart a node says {mode}{rules}"));
    }
    figures_answer(cluster, 200)?;
    if let Some(loss) = held.loss() {
        return Err(format!("{} was lost: {loss}", held.name()));
    }
    let released = tokio::time::timeout(Duration::from_secs(10), held.release());
    let released = runtime.block_on(released);
    let released = released.map_err(|_| "the release took over 10 s")?;
    released.map_err(|error| error.to_string())?;
    say::shown(
        watch,
        "a Pod that was deleted is back with its vote and the rights, and no lease was lost",
    );
    Ok(())
}
