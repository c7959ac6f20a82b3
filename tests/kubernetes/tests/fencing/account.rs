//! The canary as it is deployed: an account of its own, which may be the fenced one and nobody else.

use std::path::Path;
use std::process::Command;

use ringfence_kube::policy::{Carrier, Fencing, Wish};
use ringfence_kubernetes::{ControlPlane, User, kubectl};
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::process::{Running, text};
use crate::stand::{CURRENT, Stand, wish};

/// The objects of `deploy/kubernetes/canary`, for the Lease and the account of a namespace.
fn manifests(namespace: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes/canary");
    let mut command = Command::new(kubectl().unwrap());
    let rendered = command.arg("kustomize").arg(folder).output().unwrap();
    assert!(rendered.status.success(), "{rendered:?}");
    let rendered = String::from_utf8(rendered.stdout).unwrap();
    rendered.replace("namespace: demo\n", &format!("namespace: {namespace}\n"))
}

/// A kubeconfig of the canary's account, with a token as its Pod has one.
fn kubeconfig(plane: &ControlPlane, namespace: &str) -> NamedTempFile {
    let namespace = format!("--namespace={namespace}");
    let token = plane.kubectl(&["create", "token", "ringfence-canary", &namespace], "");
    let admin = plane.kubeconfig(User::Admin, &plane.address());
    let mut kubeconfig: Value =
        serde_json::from_str(&std::fs::read_to_string(admin).unwrap()).unwrap();
    kubeconfig["users"][0]["user"]["token"] = token.trim().into();
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), kubeconfig.to_string()).unwrap();
    file
}

/// How its Pod calls it, with what is particular to the Pod put in.
fn arguments(plane: &ControlPlane, namespace: &str) -> Vec<String> {
    let path = "jsonpath={.spec.template.spec.containers[0].args}";
    let namespaced = format!("--namespace={namespace}");
    let deployment = [
        "get",
        "deployment",
        "ringfence-canary",
        &namespaced,
        "--output",
        path,
    ];
    let args: Vec<String> = serde_json::from_str(&plane.kubectl(&deployment, "")).unwrap();
    let own = args
        .iter()
        .skip(1)
        .filter(|arg| !arg.starts_with("--listen-http="));
    let put = own.map(|arg| {
        let arg = arg.replace("$(NAMESPACE)", namespace);
        arg.replace("$(LEASE)", "leader")
            .replace("$(ACCOUNT)", "controller")
    });
    put.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deployed_canary_may_be_the_fenced_account_and_nobody_else() {
    let Some(plane) = ControlPlane::shared().await else {
        return;
    };
    if kubectl().is_none() {
        return;
    }
    let mut stand = Stand::without_policies(plane, Carrier::Impersonate, CURRENT).await;
    let namespace = stand.namespace.clone();
    let account = format!("{namespace}/controller");
    let wish = Wish {
        account: Some(account.parse().unwrap()),
        ..wish(&namespace, Carrier::Impersonate)
    };
    stand.fencing = Fencing::new(wish).unwrap();
    stand.kubectl("apply", &stand.fencing.manifests());
    stand.kubectl("apply", &manifests(&namespace));

    let kubeconfig = kubeconfig(&stand.plane, &namespace);
    let mut arguments = arguments(&stand.plane, &namespace);
    assert_eq!(arguments[0], "canary");
    arguments
        .extend(["--kubeconfig", text(kubeconfig.path()), "--every", "100ms"].map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let canary = Running::start(&arguments).await;
    for rule in ["floor", "mark"] {
        let figure = |name: &str| format!("ringfence_kube_canary_{name}{{rule=\"{rule}\"}}");
        canary
            .until_figure(&figure("open"), |open| open == 0.0)
            .await;
        canary
            .until_figure(&figure("blind"), |blind| blind == 0.0)
            .await;
    }

    let canary = format!("--as=system:serviceaccount:{namespace}:ringfence-canary");
    let own = format!("--namespace={namespace}");
    let may = |verb: &str, what: &str, place: &str| {
        let asked = ["auth", "can-i", verb, what, place, &canary];
        let mut command = Command::new(kubectl().unwrap());
        command.arg("--kubeconfig");
        command.arg(stand.plane.kubeconfig(User::Admin, &stand.plane.address()));
        let told = command.args(asked).output().unwrap().stdout;
        String::from_utf8(told).unwrap().trim() == "yes"
    };
    assert!(may("impersonate", "serviceaccounts/controller", &own));
    assert!(may("get", "leases.coordination.k8s.io/leader", &own));
    for (verb, what, place) in [
        ("impersonate", "serviceaccounts/default", own.as_str()),
        (
            "impersonate",
            "serviceaccounts/controller",
            "--namespace=default",
        ),
        ("impersonate", "users/admin", &own),
        ("impersonate", "groups/system:masters", &own),
        (
            "impersonate",
            "userextras.authentication.k8s.io/scopes",
            &own,
        ),
        ("patch", "configmaps", &own),
        ("get", "leases.coordination.k8s.io/other", &own),
        ("patch", "leases.coordination.k8s.io/leader", &own),
    ] {
        assert!(!may(verb, what, place), "{verb} {what} {place}");
    }
}
