//! The API server's own rule for mirrored objects, as `deploy/kubernetes/mirror` has it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Error;
use kube::api::{Api, Patch, PatchParams, PostParams};
use ringfence_client::{HeldLease, Session};
use ringfence_kube::{CLUSTER, MANAGED_BY, POSITION, TOKEN};
use ringfence_kubernetes::{ControlPlane, User, kubectl};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::objects::{Objects, token_of};
use crate::site::{Site, within};

/// Applies the files as people do; `None` if there is no kubectl.
fn apply(plane: &ControlPlane) -> Option<String> {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes/mirror");
    let output = Command::new(kubectl()?)
        .arg("--kubeconfig")
        .arg(plane.kubeconfig(User::Admin, &plane.address()))
        .args(["apply", "--kustomize"])
        .arg(files)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Why an edit is refused; `None` if it would be done.
async fn refusal(leases: &Api<Lease>, name: &str, patch: &Value) -> Option<String> {
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let patch = Patch::Merge(patch);
    words(leases.patch(name, &params, &patch).await)
}

/// What a refusal says; `None` if something was done.
fn words<T>(answer: Result<T, Error>) -> Option<String> {
    match answer {
        Ok(_) => None,
        Err(Error::Api(status)) => {
            assert_eq!(status.code, 403, "{}", status.message);
            Some(status.message)
        }
        Err(error) => panic!("{error}"),
    }
}

/// Waits until the policy judges: until no writer lowers the token of a mirrored Lease.
async fn until_in_force(site: &Site, name: &str, token: u64) {
    let lower = json!({"metadata": {"annotations": {TOKEN: (token - 1).to_string()}}});
    let leases = &site.objects.leases;
    within("the policy takes effect", async {
        while refusal(leases, name, &lower).await.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// The Leases of the namespace, as an account sees them that may do everything there and is not of
/// `system:masters`.
async fn as_its_owner(site: &Site) -> Api<Lease> {
    let arguments = [
        "create",
        "rolebinding",
        "owner",
        "--clusterrole=cluster-admin",
        &format!("--user={}", User::Default.name()),
        &format!("--namespace={}", site.namespace),
    ];
    site.plane.kubectl(&arguments, "");
    let client = site.plane.client(User::Default).await;
    Objects::of(client, &site.namespace).leases
}

/// A Kubernetes with the policy, which these tests share; `None` if there is none, or no kubectl. The
/// other tests do without it: they edit what it keeps from being edited.
async fn with_the_policy() -> Option<Arc<ControlPlane>> {
    static SHARED: Mutex<Option<Arc<ControlPlane>>> = Mutex::const_new(None);
    let mut shared = SHARED.lock().await;
    if shared.is_none() {
        let plane = ControlPlane::start().await?;
        apply(&plane)?;
        *shared = Some(Arc::new(plane));
    }
    shared.clone()
}

/// A node that mirrors where the policy is in force, and the lease `leader`, held and shown.
async fn judged() -> Option<(Site, Session, HeldLease)> {
    let site = Site::beside(with_the_policy().await?, 1).await;
    let session = site.session("worker").await;
    let lease = site.acquire(&session, "leader").await;
    let token = lease.token().get();
    site.objects.until_held("leader", "worker", token).await;
    until_in_force(&site, "leader", token).await;
    Some((site, session, lease))
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_policy_no_hand_lowers_a_token_and_the_mirror_goes_on() {
    let Some((site, session, lease)) = judged().await else {
        return;
    };
    let again = apply(&site.plane).unwrap();
    assert_eq!(again.lines().count(), 5, "{again}");
    assert!(
        again.lines().all(|line| line.ends_with(" unchanged")),
        "{again}"
    );

    let token = lease.token().get();
    let lower = json!({"metadata": {"annotations": {TOKEN: (token - 1).to_string()}}});
    let mirror = site.plane.client(User::Ringfence).await;
    let mirror = Objects::of(mirror, &site.namespace).leases;
    let words = refusal(&mirror, "leader", &lower).await.unwrap();
    assert!(words.contains("never falls"), "the mirror's own: {words}");
    let refused = |patch: Value| {
        let leases = &site.objects.leases;
        async move { refusal(leases, "leader", &patch).await }
    };
    let words = refused(lower).await.unwrap();
    let expected = format!("it is {token}, offered was {}", token - 1);
    assert!(words.contains(&expected), "{words}");
    for malformed in ["", "seven", "+9", "9223372036854775808", "01"] {
        let edit = json!({"metadata": {"annotations": {TOKEN: malformed}}});
        assert!(refused(edit).await.is_some(), "{malformed:?}");
    }
    let unlabelled = json!({"metadata": {"labels": {MANAGED_BY: null}}});
    let words = refused(unlabelled).await.unwrap();
    assert!(words.contains("keeps its label"), "{words}");
    let noted = json!({"metadata": {"annotations": {"team": "blue"}}});
    assert_eq!(refused(noted).await, None);

    lease.release().await.unwrap();
    let free = |found: &ringfence_kube::Observed| found.content.holder.is_none();
    site.objects.until("leader", free).await;
    let next = site.acquire(&session, "leader").await;
    let held = site
        .objects
        .until_held("leader", "worker", next.token().get())
        .await;
    assert!(token_of(&held) > Some(token));
}

/// A token that no grant will reach in this test: the mirror could not take it back.
const HIGH: &str = "9000000000000000000";

#[tokio::test(flavor = "multi_thread")]
async fn with_the_policy_no_hand_raises_a_token_and_the_mirror_goes_on() {
    let Some((site, session, lease)) = judged().await else {
        return;
    };
    let owner = as_its_owner(&site).await;
    let token = lease.token().get();

    for leases in [&owner, &site.objects.leases] {
        for (annotation, value) in [
            (TOKEN, json!(HIGH)),
            (TOKEN, json!((token + 1).to_string())),
            (POSITION, json!("9000000000000000000/1")),
            (POSITION, json!("0/0")),
            (POSITION, json!(null)),
            (CLUSTER, json!("ab")),
            (CLUSTER, json!(null)),
        ] {
            let edit = json!({"metadata": {"annotations": {annotation: value}}});
            let edit = Patch::Merge(edit);
            let done = leases.patch("leader", &PatchParams::default(), &edit).await;
            let words = words(done).expect(annotation);
            let written = "are written by the mirror alone, \
                           system:serviceaccount:ringfence:ringfence, not by ";
            assert!(words.contains(written), "{annotation}: {words}");
        }
    }
    let noted = json!({"metadata": {"annotations": {"team": "blue"}}});
    assert_eq!(refusal(&owner, "leader", &noted).await, None);

    lease.release().await.unwrap();
    let next = site.acquire(&session, "leader").await;
    let next = next.token().get();
    let held = site.objects.until_held("leader", "worker", next).await;
    assert!(next > token && token_of(&held) == Some(next));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_policy_no_hand_makes_a_mirrored_lease_and_none_that_lay_there_stops_it() {
    let Some((site, session, _lease)) = judged().await else {
        return;
    };
    let owner = as_its_owner(&site).await;
    let shown = site.objects.get("leader").await.unwrap();

    // As the mirror would make it, but for its token.
    let forged = |labels: Value| -> Lease {
        let annotations = json!({
            TOKEN: HIGH, POSITION: "1/1", CLUSTER: shown.stamp.as_ref().unwrap().cluster,
        });
        let metadata = json!({"name": "other", "labels": labels, "annotations": annotations});
        let (version, kind) = ("coordination.k8s.io/v1", "Lease");
        let lease = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
        serde_json::from_value(lease).unwrap()
    };
    let label = json!({MANAGED_BY: "ringfence"});
    let params = PostParams::default();
    let made = owner.create(&params, &forged(label.clone())).await;
    let refused = words(made).unwrap();
    assert!(refused.contains("by the mirror alone"), "{refused}");
    // Without the label it belongs to no mirror, and without one it cannot become the mirror's by
    // hand.
    let made = owner.create(&params, &forged(json!({}))).await;
    assert_eq!(words(made), None);
    let labelled = json!({"metadata": {"labels": label}});
    let refused = refusal(&owner, "other", &labelled).await.unwrap();
    assert!(refused.contains("by the mirror alone"), "{refused}");

    let lease = site.acquire(&session, "other").await;
    let token = lease.token().get();
    let held = site.objects.until_held("other", "worker", token).await;
    assert!(held.labelled);
}
