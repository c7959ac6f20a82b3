//! The API server's own rule for mirrored objects, as `deploy/kubernetes/mirror` has it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use kube::Error;
use kube::api::{Patch, PatchParams};
use ringfence_kube::{MANAGED_BY, TOKEN};
use ringfence_kubernetes::{ControlPlane, User, kubectl};
use serde_json::{Value, json};

use crate::objects::token_of;
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
async fn refusal(site: &Site, name: &str, patch: &Value) -> Option<String> {
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let patch = Patch::Merge(patch);
    match site.objects.leases.patch(name, &params, &patch).await {
        Ok(_) => None,
        Err(Error::Api(status)) => {
            assert_eq!(status.code, 403, "{}", status.message);
            Some(status.message)
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_policy_no_hand_lowers_a_token_and_the_mirror_goes_on() {
    let Some(plane) = ControlPlane::start().await else {
        return;
    };
    let Some(first) = apply(&plane) else {
        return;
    };
    assert_eq!(first.lines().count(), 4, "{first}");
    let again = apply(&plane).unwrap();
    assert!(
        again.lines().all(|line| line.ends_with(" unchanged")),
        "{again}"
    );

    let site = Site::beside(Arc::new(plane), 1).await;
    let session = site.session("worker").await;
    let lease = site.acquire(&session, "leader").await;
    let token = lease.token().get();
    site.objects.until_held("leader", "worker", token).await;
    let lower = json!({"metadata": {"annotations": {TOKEN: (token - 1).to_string()}}});
    within("the policy takes effect", async {
        while refusal(&site, "leader", &lower).await.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;

    let refused = |patch: Value| {
        let site = &site;
        async move { refusal(site, "leader", &patch).await }
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
    let free = |found: &ringfence_kube::Found| found.face.holder.is_none();
    site.objects.until("leader", free).await;
    let next = site.acquire(&session, "leader").await;
    let held = site
        .objects
        .until_held("leader", "worker", next.token().get())
        .await;
    assert!(token_of(&held) > Some(token));
}
