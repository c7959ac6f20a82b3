//! What a real API server says of the chart's objects.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use ringfence_kubernetes::{ControlPlane, User};
use serde_json::{Value, json};

use crate::helm::{Helm, chart, values};
use crate::objects::objects;

/// Kinds of cert-manager and of the Prometheus operator, which a bare API server does not know.
const FOREIGN: [&str; 2] = ["cert-manager.io/v1", "monitoring.coreos.com/v1"];

/// How long a policy may take until it binds.
const IN_FORCE_MAX: Duration = Duration::from_secs(60);

/// A Kubernetes, and Helm beside it; `None` if one of them is missing, which is printed.
async fn stage() -> Option<(Arc<ControlPlane>, Helm)> {
    let helm = Helm::found()?;
    Some((ControlPlane::shared().await?, helm))
}

/// A namespace in which only confined Pods run, and which says so of others.
async fn restricted(plane: &ControlPlane, begins: &str) -> String {
    let namespace = plane.namespace(begins).await;
    let label = |mode| format!("pod-security.kubernetes.io/{mode}=restricted");
    let (enforce, warn) = (label("enforce"), label("warn"));
    plane.kubectl(&["label", "namespace", &namespace, &enforce, &warn], "");
    namespace
}

#[tokio::test(flavor = "multi_thread")]
async fn each_set_of_values_is_taken_by_a_real_api_server() {
    let Some((plane, helm)) = stage().await else {
        return;
    };
    let namespace = restricted(&plane, "chart").await;
    // The Role of the mirror of `secrets` is there.
    plane.make_namespace("team").await;
    for (name, expected) in [
        ("dev", 16),
        ("cert-manager", 18),
        ("secrets", 17),
        ("ipv6", 14),
        ("restored", 15),
    ] {
        let text = helm.template("ringfence", &namespace, &[&values(name)]);
        let known: Vec<Value> = objects(&text.unwrap())
            .into_iter()
            .filter(|object| !FOREIGN.iter().any(|api| object["apiVersion"] == *api))
            // This Kubernetes has IPv4 alone.
            .map(|mut object| {
                if name == "ipv6" && object["kind"] == "Service" {
                    object["spec"]["ipFamilies"] = json!(["IPv4"]);
                }
                object
            })
            .collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": known}).to_string();
        let words = ["apply", "--dry-run=server", "--validate=strict"];
        let kubeconfig = plane.kubeconfig(User::Admin, &plane.address());
        let output = kubectl(&kubeconfig, &words, &list);
        // A warning is one too many.
        let warned = String::from_utf8_lossy(&output.stderr);
        assert_eq!(warned, "", "{name}");
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(told.lines().count(), expected, "{name}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_releases_are_installed_side_by_side_and_one_leaves_the_other() {
    let Some((plane, helm)) = stage().await else {
        return;
    };
    let namespace = restricted(&plane, "releases").await;
    let kubeconfig = plane.kubeconfig(User::Admin, &plane.address());
    let kubeconfig = kubeconfig.to_str().unwrap();
    let at = ["--kubeconfig", kubeconfig, "--namespace", &namespace];
    let dev = values("dev");
    // The policy of a mirror of all namespaces would judge the floors of other tests.
    let mirror = |release| format!("--set=mirror.namespace={namespace}-{release}");
    for release in ["blue", "green"] {
        plane
            .make_namespace(&format!("{namespace}-{release}"))
            .await;
        let (chart, mirror) = (chart(), mirror(release));
        let own = ["install", release, &chart, &dev, &mirror];
        let told = helm.run(&[&own[..], &at].concat()).unwrap();
        let wait = format!("rollout status statefulset/{release}-ringfence");
        assert!(told.contains(&wait), "{told}");
        assert!(told.contains("keeps the volumes, "), "{told}");
    }
    let sets = || {
        let words = ["get", "statefulsets", "--output=name", "--namespace"];
        plane.kubectl(&[&words[..], &[&namespace]].concat(), "")
    };
    let blue = "statefulset.apps/blue-ringfence\n";
    let green = "statefulset.apps/green-ringfence\n";
    assert_eq!(sets(), format!("{blue}{green}"));

    let (mirror, five) = (mirror("blue"), "--set=replicas=5");
    let upgrade = ["upgrade", "blue", &chart(), &dev, &mirror, five];
    helm.run(&[&upgrade[..], &at].concat()).unwrap();
    helm.run(&[&["uninstall", "blue"][..], &at].concat())
        .unwrap();
    assert_eq!(sets(), green);
    // Objects outside the namespace go with their release alone.
    let outside = "clusterroles,clusterrolebindings,roles,rolebindings";
    let words = ["get", outside, "--all-namespaces", "--output=name"];
    let left = plane.kubectl(&words, "");
    let of = |release: &str| {
        let name = format!("/{namespace}.{release}-ringfence.");
        left.lines().filter(|line| line.contains(&name)).count()
    };
    assert_eq!((of("blue"), of("green")), (0, 7), "{left}");
}

/// A Lease that looks like a floor of the mirror.
fn floor(namespace: &str, name: &str) -> String {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "ringfence"},
            "annotations": {"ringfence.io/token": "7"},
        },
    });
    lease.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_of_one_installation_judges_no_floor_of_another() {
    let Some((plane, helm)) = stage().await else {
        return;
    };
    let namespace = restricted(&plane, "floors").await;
    let mirrored = plane.namespace("mirrored").await;
    let set = format!("--set=mirror.namespace={mirrored}");
    let policy = "--show-only=templates/mirror-policy.yaml";
    let text = helm.template("ringfence", &namespace, &[&set, policy]);
    plane.kubectl(&["apply", "--filename=-"], &text.unwrap());

    let create = |name: &str| {
        let kubeconfig = plane.kubeconfig(User::Admin, &plane.address());
        tried(&kubeconfig, &floor(&namespace, name))
    };
    let ours = format!("floor.{mirrored}.leader");
    let refused = async {
        loop {
            match create(&ours) {
                Err(why) => return why,
                Ok(()) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    };
    let why = tokio::time::timeout(IN_FORCE_MAX, refused).await;
    let why = why.expect("the policy takes effect");
    let account = format!("system:serviceaccount:{namespace}:ringfence");
    assert!(why.contains("written by the mirror alone"), "{why}");
    assert!(why.contains(&account), "{why}");
    create("floor.another-namespace.leader").unwrap();
}

/// Whether an administrator might create it; else what the API server says.
fn tried(kubeconfig: &Path, object: &str) -> Result<(), String> {
    let words = ["create", "--dry-run=server"];
    let output = kubectl(kubeconfig, &words, object);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or(told)
}

/// kubectl with these objects in a file.
fn kubectl(kubeconfig: &Path, words: &[&str], objects: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("objects.json");
    std::fs::write(&file, objects).unwrap();
    let mut command = Command::new(ringfence_kubernetes::kubectl().unwrap());
    command.arg("--kubeconfig").arg(kubeconfig).args(words);
    command.arg("--filename").arg(&file).output().unwrap()
}
