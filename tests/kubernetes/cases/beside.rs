//! What people apply beside the nodes, judged by a real API server: the canary, the webhook, and the
//! example of a controller.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use ringfence_kube::webhook::{FailurePolicy, Hook, Where};
use ringfence_kubernetes::{ControlPlane, User, kubectl};
use serde_json::Value;

/// Folders of `deploy` that are applied, their namespaces, and how many objects each has.
const FOLDERS: [(&str, &str, usize); 3] = [
    ("kubernetes/canary", "demo", 6),
    ("kubernetes/webhook", "ringfence", 5),
    ("examples/fenced-controller/kubernetes", "shop", 4),
];

fn deploy(path: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    folder.join(path)
}

/// A namespace as strict as that of the nodes, and kubectl beside it.
struct Place {
    plane: Arc<ControlPlane>,
    program: PathBuf,
    namespace: String,
}

impl Place {
    async fn new() -> Option<Self> {
        let plane = ControlPlane::shared().await?;
        let program = kubectl()?;
        let namespace = plane.namespace("beside").await;
        let own = Self {
            plane,
            program,
            namespace,
        };
        let label = ["label", "namespace", &own.namespace];
        let strict =
            ["enforce", "warn"].map(|mode| format!("pod-security.kubernetes.io/{mode}=restricted"));
        own.run(&[&label[..], &[&strict[0], &strict[1]]].concat(), "");
        Some(own)
    }

    /// What kubectl prints, and nothing beside it: a warning is one too many.
    fn run(&self, words: &[&str], input: &str) -> String {
        let kubeconfig = self.plane.kubeconfig(User::Admin, &self.plane.address());
        let mut child = Command::new(&self.program)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let written = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {told}");
        assert_eq!(told, "", "{words:?}");
        written.unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// A folder's objects in this namespace, as the API server would store them.
    fn tried(&self, folder: &str, namespace: &str) -> Vec<Value> {
        let path = deploy(folder);
        let text = self.run(&["kustomize", path.to_str().unwrap()], "");
        let own = format!("namespace: {}\n", self.namespace);
        let text = (text + "\n").replace(&format!("namespace: {namespace}\n"), &own);
        let words = ["--dry-run=server", "--validate=strict", "--output=json"];
        let words = [&["apply"], &words[..], &["--filename=-"]].concat();
        let list: Value = serde_json::from_str(&self.run(&words, &text)).unwrap();
        list["items"].as_array().unwrap().clone()
    }
}

/// Of this kind.
fn those<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects
        .iter()
        .filter(|found| found["kind"] == kind)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_beside_the_nodes_is_taken_without_a_warning_and_as_confined_as_they_are() {
    let Some(place) = Place::new().await else {
        return;
    };
    for (folder, namespace, count) in FOLDERS {
        let objects = place.tried(folder, namespace);
        assert_eq!(objects.len(), count, "{folder}");
        let deployments = those(&objects, "Deployment");
        assert_eq!(deployments.len(), 1, "{folder}");
        let template = &deployments[0]["spec"]["template"];
        confined(template, folder);
        reachable(template, folder);
        selected(&objects, template, folder);
    }
}

fn confined(template: &Value, folder: &str) {
    let pod = &template["spec"];
    let context = &pod["securityContext"];
    assert_eq!(context["runAsNonRoot"], true, "{folder}");
    assert_eq!(
        context["seccompProfile"]["type"], "RuntimeDefault",
        "{folder}"
    );
    assert_eq!(pod["enableServiceLinks"], false, "{folder}");
    let container = &pod["containers"][0];
    let context = &container["securityContext"];
    assert_eq!(context["allowPrivilegeEscalation"], false, "{folder}");
    assert_eq!(context["readOnlyRootFilesystem"], true, "{folder}");
    assert_eq!(context["capabilities"]["drop"][0], "ALL", "{folder}");
    let resources = &container["resources"];
    for named in [
        &resources["limits"]["memory"],
        &resources["requests"]["memory"],
        &resources["requests"]["cpu"],
    ] {
        assert!(named.is_string(), "{folder}: {resources}");
    }
}

/// Probes and Prometheus find a port: the API server takes a name that no port has.
fn reachable(template: &Value, folder: &str) {
    let container = &template["spec"]["containers"][0];
    let ports = container["ports"].as_array().cloned().unwrap_or_default();
    for probe in ["livenessProbe", "readinessProbe"] {
        let asked = &container[probe];
        // A node that serves no client has none.
        assert_eq!(asked.is_null(), ports.is_empty(), "{folder}: {probe}");
        let name = &asked["httpGet"]["port"];
        let known = ports.iter().any(|port| port["name"] == *name);
        assert!(known || ports.is_empty(), "{folder}: {probe} asks {name}");
    }
    let scraped = template["metadata"]["annotations"]["prometheus.io/port"].as_str();
    let http = ports.iter().find(|port| port["name"] == "http");
    let http = http.map(|port| port["containerPort"].to_string());
    assert_eq!(scraped.map(str::to_owned), http, "{folder}");
}

/// What is said of Pods is said of these.
fn selected(objects: &[Value], template: &Value, folder: &str) {
    let labels = template["metadata"]["labels"].as_object().unwrap();
    for (kind, path) in [
        ("Service", "/spec/selector"),
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
    ] {
        for found in those(objects, kind) {
            let selector = found.pointer(path).and_then(Value::as_object).unwrap();
            let theirs = selector
                .iter()
                .all(|(key, value)| labels.get(key) == Some(value));
            assert!(theirs && !selector.is_empty(), "{folder}: {kind}");
        }
    }
    let account = &template["spec"]["serviceAccountName"];
    let accounts = those(objects, "ServiceAccount");
    assert_eq!(accounts.len(), 1, "{folder}");
    assert_eq!(accounts[0]["metadata"]["name"], *account, "{folder}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_to_ask_the_webhook_as_the_command_prints_it() {
    let Some(place) = Place::new().await else {
        return;
    };
    let path = deploy("kubernetes/webhook/cert-manager/configuration.yaml");
    let kept = std::fs::read_to_string(path).unwrap();
    let hook = Hook {
        resources: ["configmaps", "deployments.apps"]
            .map(|name| name.parse().unwrap())
            .to_vec(),
        accounts: vec!["demo/controller".parse().unwrap()],
        at: Where::Service("ringfence/ringfence-webhook".parse().unwrap()),
        authority: b"-----BEGIN CERTIFICATE-----\n".to_vec(),
        failure_policy: FailurePolicy::Fail,
    };
    let printed = hook.manifest().unwrap();
    let rest = |text: &str, begins: &str| -> Vec<String> {
        let text = &text[text.find(begins).unwrap()..];
        let other = [
            "caBundle:",
            "annotations:",
            "cert-manager.io/inject-ca-from:",
        ];
        let lines = text.lines().filter(|line| {
            let line = line.trim_start();
            !other.iter().any(|other| line.starts_with(other))
        });
        lines.map(str::to_owned).collect()
    };
    let begins = "# Every write of these accounts";
    assert_eq!(rest(&kept, begins), rest(&printed, begins));
    let words = [
        "apply",
        "--dry-run=server",
        "--validate=strict",
        "--filename=-",
    ];
    place.run(&words, &kept);
}

/// A bare API server knows no certificates; that they fit together is what is seen here.
#[tokio::test(flavor = "multi_thread")]
async fn the_certificates_are_for_the_name_of_the_service_and_end_in_the_secret_of_the_pods() {
    let Some(place) = Place::new().await else {
        return;
    };
    let objects = place.tried("kubernetes/webhook", "ringfence");
    let service = those(&objects, "Service")[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let deployment = those(&objects, "Deployment")[0];
    let volumes = &deployment["spec"]["template"]["spec"]["volumes"];
    let secret = volumes[0]["secret"]["secretName"].as_str().unwrap();

    let folder = deploy("kubernetes/webhook/cert-manager");
    let text = place.run(&["kustomize", folder.to_str().unwrap()], "");
    let of_kind = |kind: &str| {
        let begins = format!("\nkind: {kind}\n");
        let found = text
            .split("\n---\n")
            .filter(move |yaml| yaml.contains(&begins));
        found.map(|yaml| format!("{yaml}\n")).collect::<Vec<_>>()
    };
    assert_eq!(
        (of_kind("Certificate").len(), of_kind("Issuer").len()),
        (2, 2)
    );
    let name = format!("  dnsNames:\n  - {service}.ringfence.svc\n");
    let certificates = of_kind("Certificate");
    let leaf = certificates
        .iter()
        .find(|yaml| yaml.contains(&name))
        .unwrap();
    assert!(
        leaf.contains(&format!("\n  secretName: {secret}\n")),
        "{leaf}"
    );
    let configuration = &of_kind("ValidatingWebhookConfiguration")[0];
    for wanted in [
        format!("cert-manager.io/inject-ca-from: ringfence/{service}\n"),
        format!("      name: {service}\n"),
    ] {
        assert!(configuration.contains(&wanted), "{configuration}");
    }
}
