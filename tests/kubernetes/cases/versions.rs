//! Which version of Kubernetes this is, and which policies that reject stale writes it takes.

use std::path::Path;
use std::process::Command;

use ringfence_kubernetes::{ControlPlane, User, is_newest, kubectl, version};

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_of_the_version_that_was_chosen() {
    let Some(plane) = ControlPlane::shared().await else {
        return;
    };
    // A folder that is named may hold another one.
    if std::env::var_os("KUBEBUILDER_ASSETS").is_some() && is_newest() {
        return;
    }
    let told = plane.kubectl(&["get", "--raw", "/version"], "");
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["gitVersion"], version());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_1_36_takes_the_policies_that_mark_objects_and_all_take_those_that_do_not() {
    let Some(plane) = ControlPlane::shared().await else {
        return;
    };
    let Some(kubectl) = kubectl() else { return };
    plane.make_namespace("demo").await;
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let applied = |name: &str| {
        Command::new(&kubectl)
            .arg("--kubeconfig")
            .arg(plane.kubeconfig(User::Admin, &plane.address()))
            .args(["apply", "--dry-run=server", "--filename"])
            .arg(deploy.join(format!("kubernetes/fencing/{name}.yaml")))
            .output()
            .unwrap()
    };
    let every = applied("sequence-without-mutation");
    assert!(every.status.success(), "{every:?}");
    for carrier in ["impersonate", "field-manager", "sequence"] {
        let output = applied(carrier);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), is_newest(), "{carrier}: {said}");
        let unknown = r#"no matches for kind "MutatingAdmissionPolicy" in version "admissionregistration.k8s.io/v1""#;
        assert_eq!(said.contains(unknown), !is_newest(), "{carrier}: {said}");
    }
}
