//! What runs beside the nodes, as Pods: the canary and the webhook, each by the commands of
//! `deploy/FENCING.md`.

use ringfence_client::HeldLease;
use tokio::runtime::Runtime;

use super::pods::{apply, apply_text, pods, ready};
use super::{controller, outside};
use crate::cluster::{Cluster, LONG};
use crate::kubectl::Kubectl;
use crate::load;
use crate::program::{call, until};
use crate::say::{self, Watch};
use crate::writing::Writing;

/// The lease that the manifests are written for.
const LEASE: &str = "k8s/demo/leader";
/// Whose writes are judged.
const ACCOUNT: &str = "system:serviceaccount:demo:controller";
/// How many answers of the webhook may be too late, as they were never seen to be.
const LATE_MAX: u64 = 3;
/// Where figures are shown: namespace, the label of the Pods, port.
const CANARY: (&str, &str, u16) = ("demo", "ringfence-canary", 7423);
const WEBHOOK: (&str, &str, u16) = ("ringfence", "ringfence-webhook", 7424);

pub(super) fn canary_and_webhook(cluster: &Cluster, runtime: &Runtime) -> Result<(), String> {
    let watch = Watch::start();
    apply_text(cluster, PLACES)?;
    // The next chapter's Pods start meanwhile.
    controller::begin(cluster)?;
    let lease = hold(runtime)?;
    apply(
        cluster,
        "ringfence-0",
        "kube policy --lease demo/leader --resource configmaps --carrier impersonate \
         --service-account demo/controller",
    )?;
    secret(cluster)?;
    for folder in ["canary", "webhook"] {
        let path = cluster.manifests(folder);
        cluster.kubectl.run(&format!("apply --kustomize={path}"))?;
    }
    ready(cluster, CANARY, 1)?;
    ready(cluster, WEBHOOK, 2)?;
    say::shown(watch, "the canary and two webhooks run as Pods");

    let watch = Watch::start();
    until("the canary says that both rules hold", LONG, || {
        let shown = figures(cluster, CANARY)?.concat();
        let holds = ["floor", "mark"].iter().all(|rule| {
            ["open", "blind"].iter().all(|name| {
                let line = format!("ringfence_kube_canary_{name}{{rule=\"{rule}\"}} 0");
                shown.lines().any(|found| found == line)
            })
        });
        holds.then_some(()).ok_or(shown)
    })?;
    say::shown(
        watch,
        "the canary, by its own rights, says that stale writes are refused",
    );
    judged(cluster, runtime, lease)
}

/// The webhook's part: what it admits and what it refuses.
fn judged(cluster: &Cluster, runtime: &Runtime, lease: HeldLease) -> Result<(), String> {
    let watch = Watch::start();
    apply(
        cluster,
        "deployment/ringfence-webhook",
        "kube webhook manifest --resource configmaps --service-account demo/controller \
         --service ringfence/ringfence-webhook --ca-file /etc/ringfence/tls/tls.crt \
         --failure-policy fail",
    )?;
    let token = lease.token().get();
    let holder = writer(cluster, token)?;
    holder.run("create configmap prices --namespace=demo")?;
    until("the API server asks the webhook", LONG, || {
        write(&holder)?;
        let asked = figures(cluster, WEBHOOK)?.concat();
        let admitted = "ringfence_kube_webhook_reviews_total{outcome=\"admitted\"} ";
        let admitted = asked.lines().any(|line| line.starts_with(admitted));
        admitted.then_some(()).ok_or(asked)
    })?;
    say::shown(
        watch,
        "the webhook admits writes under a grant that is in force",
    );
    restarted(cluster, runtime, token)?;

    let watch = Watch::start();
    let released = runtime.block_on(lease.release());
    released.map_err(|error| error.to_string())?;
    let why = write(&holder).err().ok_or("a stale write was done")?;
    let words = format!(
        "admission webhook \"fence.ringfence.io\" denied the request: ringfence: stale fence \
         {LEASE}#{token}: its grant has ended"
    );
    if !why.contains(&words) {
        return Err(why);
    }
    let next = hold(runtime)?;
    write(&writer(cluster, next.token().get())?)?;
    say::shown(
        watch,
        "and refuses one whose grant has ended, which no policy knows; the next is done",
    );
    say::note(&words);
    cluster
        .kubectl
        .run("delete validatingwebhookconfiguration fence.ringfence.io")?;
    let released = runtime.block_on(next.release());
    released.map_err(|error| error.to_string())
}

/// One webhook after the other, while a client writes that must not be kept from it.
fn restarted(cluster: &Cluster, runtime: &Runtime, token: u64) -> Result<(), String> {
    let watch = Watch::start();
    let before = names(cluster)?;
    let fence = format!("{LEASE}#{token}");
    let writing = Writing::start(runtime, cluster.kubectl.kubeconfig(), ACCOUNT, &fence);
    cluster
        .kubectl
        .run("rollout restart deployment/ringfence-webhook --namespace=ringfence")?;
    let others = until("others answer instead of the webhooks", LONG, || {
        let now = names(cluster)?;
        let others = now.len() == 2 && now.iter().all(|name| !before.contains(name));
        others.then_some(()).ok_or(format!("{now:?}"))
    });
    let written = writing.end(runtime)?;
    others?;
    let told = format!(
        "a rolling restart of the webhook kept nobody from writing, with the failure policy Fail: \
         {} writes, and {} that took too long",
        written.done, written.late
    );
    if written.late > LATE_MAX {
        return Err(told);
    }
    say::shown(watch, &told);
    Ok(())
}

/// The names of the webhook's Pods.
fn names(cluster: &Cluster) -> Result<Vec<String>, String> {
    let pods = pods(cluster, WEBHOOK)?;
    let names = pods
        .iter()
        .filter_map(|pod| pod["metadata"]["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// After everything else that is reported: restarts, lost volumes and cuts opened no hole.
pub(super) fn no_write_passed(cluster: &Cluster, _: &Runtime) -> Result<(), String> {
    let watch = Watch::start();
    let shown = figures(cluster, CANARY)?.concat();
    let count = |outcome: &str| -> u64 {
        let label = format!("outcome=\"{outcome}\"}} ");
        let lines = shown
            .lines()
            .filter(|line| line.starts_with("ringfence_kube_canary_writes_"));
        let counts = lines.filter_map(|line| line.split_once(&label)?.1.parse::<u64>().ok());
        counts.sum()
    };
    let (refused, passed, unknown) = (count("refused"), count("passed"), count("unknown"));
    let told = format!(
        "through all of it the canary's stale writes were refused: {refused}, passed: {passed}, \
         unanswered: {unknown}"
    );
    if refused == 0 || passed > 0 {
        return Err(told);
    }
    say::shown(watch, &told);
    Ok(())
}

fn hold(runtime: &Runtime) -> Result<HeldLease, String> {
    runtime.block_on(async {
        let client = outside().await?;
        let session = load::session(&client, "controller").await?;
        load::acquire(&session, LEASE).await
    })
}

/// Namespaces as strict as that of the nodes, and an account in the first that may write
/// ConfigMaps.
const PLACES: &str = r#"
{apiVersion: v1, kind: Namespace,
 metadata: {name: demo, labels: {pod-security.kubernetes.io/enforce: restricted}}}
---
{apiVersion: v1, kind: Namespace,
 metadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: restricted}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: controller, namespace: demo}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role,
 metadata: {name: controller, namespace: demo},
 rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, create, patch]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding,
 metadata: {name: controller, namespace: demo},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: controller},
 subjects: [{kind: ServiceAccount, name: controller, namespace: demo}]}
"#;

/// A certificate that is its own authority.
fn secret(cluster: &Cluster) -> Result<(), String> {
    let file = |name: &str| cluster.folder().join(name).display().to_string();
    let (key, certificate) = (file("webhook.key"), file("webhook.crt"));
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
                 -subj /CN=ringfence-webhook \
                 -addext subjectAltName=DNS:ringfence-webhook.ringfence.svc";
    let words = words.split_whitespace();
    let words: Vec<&str> = words
        .chain(["-keyout", &key, "-out", &certificate])
        .collect();
    call("openssl", &words)?;
    let create = "create secret tls ringfence-webhook --namespace=ringfence";
    let line = format!("{create} --cert={certificate} --key={key}");
    cluster.kubectl.run(&line).map(drop)
}

/// What each of the Pods shows of itself.
fn figures(cluster: &Cluster, of: (&str, &str, u16)) -> Result<Vec<String>, String> {
    let shown = pods(cluster, of)?.into_iter().map(|pod| {
        let address = pod["status"]["podIP"]
            .as_str()
            .ok_or("a Pod without an address")?;
        let url = format!("http://{address}:{}/metrics", of.2);
        call("curl", &["--silent", "--fail", "--max-time", "5", &url])
    });
    shown.collect()
}

/// The account, with this fence.
fn writer(cluster: &Cluster, token: u64) -> Result<Kubectl, String> {
    let fence = format!("{LEASE}#{token}");
    let file = cluster.folder().join(format!("fenced-{token}.kubeconfig"));
    let extra = ("ringfence.io/fence", fence.as_str());
    cluster.kubectl.disguised(ACCOUNT, extra, file)
}

fn write(as_whom: &Kubectl) -> Result<(), String> {
    let patch =
        r#"patch configmap prices --namespace=demo --type=merge --patch={"data":{"apple":"3"}}"#;
    as_whom.run(patch).map(drop)
}
