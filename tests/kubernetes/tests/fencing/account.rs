//! The canary as it is deployed: an account of its own, which may be the fenced one and no other.

use std::path::Path;
use std::process::Command;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::{Api, PostParams};
use ringfence_kube::policy::{Carrier, Fencing, FencingSpec};
use ringfence_kubernetes::{ControlPlane, User, kubectl};
use serde_json::{Value, json};
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
    let wish = FencingSpec {
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

    let own = namespace.as_str();
    for (allowed, place, verb, group, what, name) in [
        (
            true,
            own,
            "impersonate",
            "",
            "serviceaccounts",
            "controller",
        ),
        (true, own, "get", ELECTIONS, "leases", "leader"),
        (false, own, "impersonate", "", "serviceaccounts", "default"),
        // A namesake elsewhere is another account.
        (
            false,
            "default",
            "impersonate",
            "",
            "serviceaccounts",
            "controller",
        ),
        (false, own, "impersonate", "", "users", "admin"),
        (false, own, "impersonate", "", "groups", "system:masters"),
        (
            false,
            own,
            "impersonate",
            "authentication.k8s.io",
            "userextras",
            "all",
        ),
        (false, own, "patch", "", "configmaps", "prices"),
        (false, own, "get", ELECTIONS, "leases", "other"),
        (false, own, "patch", ELECTIONS, "leases", "leader"),
    ] {
        let may = may(&stand, place, verb, group, what, name).await;
        assert_eq!(may, allowed, "{verb} {what} {name} in {place}");
    }
}

/// The group of Leases.
const ELECTIONS: &str = "coordination.k8s.io";

/// Whether the canary's account may do this in a namespace.
async fn may(stand: &Stand, place: &str, verb: &str, group: &str, what: &str, name: &str) -> bool {
    let user = format!("system:serviceaccount:{}:ringfence-canary", stand.namespace);
    let asked = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
        "spec": {"user": user, "resourceAttributes": {
            "namespace": place, "verb": verb, "group": group, "resource": what, "name": name,
        }},
    });
    let asked: SubjectAccessReview = serde_json::from_value(asked).unwrap();
    let reviews: Api<SubjectAccessReview> = Api::all(stand.admin.clone());
    let told = reviews.create(&PostParams::default(), &asked).await;
    told.unwrap().status.unwrap().allowed
}
