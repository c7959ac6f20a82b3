//! What the chart renders for six sets of values. `RECORD=1` writes it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::helm::{Helm, chart, values};
use crate::objects::{env, identity, objects, of_kind};

/// Compares with what is recorded, or records.
fn golden(name: &str, rendered: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chart/goldens");
    let path = folder.join(format!("{name}.yaml"));
    if std::env::var_os("RECORD").is_some() {
        fs::write(&path, rendered).unwrap();
    }
    let recorded = fs::read_to_string(&path).unwrap_or_default();
    let mut lines = recorded.lines().zip(rendered.lines()).enumerate();
    if let Some((at, (before, now))) = lines.find(|(_, (before, now))| before != now) {
        let at = at + 1;
        panic!(
            "{name}.yaml:{at}: {before:?} is now {now:?}; RECORD=1 records what is rendered now"
        );
    }
    let counts = (recorded.lines().count(), rendered.lines().count());
    assert_eq!(counts.0, counts.1, "{name}.yaml: RECORD=1 records it");
}

/// Renders a release, and compares it.
fn rendered(helm: &Helm, name: &str, release: &str, words: &[&str]) -> Vec<Value> {
    let text = helm.template(release, "ringfence", words).unwrap();
    golden(name, &text);
    objects(&text)
}

#[test]
fn lint_has_no_word_against_the_chart() {
    let Some(helm) = Helm::found() else { return };
    for name in ["dev", "cert-manager", "secrets", "ipv6", "restored"] {
        let told = helm.run(&["lint", "--strict", &values(name), &chart()]);
        let told = told.unwrap_or_else(|told| panic!("{name}: {told}"));
        assert!(
            !told.contains("[WARNING]") && !told.contains("[ERROR]"),
            "{name}: {told}"
        );
        assert!(
            told.contains("1 chart(s) linted, 0 chart(s) failed"),
            "{told}"
        );
    }
}

#[test]
fn default_values_render_as_recorded() {
    let Some(helm) = Helm::found() else { return };
    let objects = rendered(&helm, "default", "ringfence", &[]);
    assert_eq!(env(&objects, "RINGFENCE_ACCESS"), Some("enforced"));
    assert_eq!(env(&objects, "RINGFENCE_ALLOW_ANONYMOUS"), None);
}

#[test]
fn cert_manager_makes_nodes_and_clients_certificates_of_two_authorities() {
    let Some(helm) = Helm::found() else { return };
    let objects = rendered(
        &helm,
        "cert-manager",
        "ringfence",
        &[&values("cert-manager")],
    );
    let issued = of_kind(&objects, "Certificate");
    let issuer = |name: &str| {
        let found = issued
            .iter()
            .find(|found| found["metadata"]["name"] == name);
        found.map(|found| found["spec"]["issuerRef"]["name"].clone())
    };
    // One authority is the chart's, the other that of the values.
    assert_eq!(issuer("ringfence-peers").unwrap(), "ringfence-peers");
    assert_eq!(issuer("ringfence-clients").unwrap(), "clients");
    assert_eq!(issuer("ringfence-clients-ca"), None);
    // The certificate of clients names no node by the name that makes one.
    let service = of_kind(&objects, "Service")[0];
    for port in service["spec"]["ports"].as_array().unwrap() {
        assert_eq!(port["appProtocol"], "https", "{port}");
    }
    let text = serde_json::to_string(&objects).unwrap();
    assert_eq!(text.matches(r#""scheme":"HTTPS""#).count(), 3);
}

#[test]
fn given_secrets_and_rules_render_as_recorded() {
    let Some(helm) = Helm::found() else { return };
    let objects = rendered(&helm, "secrets", "ringfence", &[&values("secrets")]);
    // The first Pod has the first number, and the cluster is formed by the first three.
    let members = env(&objects, "RINGFENCE_INITIAL_CLUSTER").unwrap();
    let names: Vec<&str> = members
        .split(',')
        .filter_map(|one| one.split('=').next())
        .collect();
    assert_eq!(names, ["ringfence-3", "ringfence-4", "ringfence-5"]);
    // One namespace is mirrored, so no right binds in the whole Kubernetes.
    assert_eq!(of_kind(&objects, "ClusterRoleBinding").len(), 0);
    assert!(of_kind(&objects, "Certificate").is_empty());
}

#[test]
fn a_cluster_of_five_on_ipv6_renders_as_recorded() {
    let Some(helm) = Helm::found() else { return };
    let objects = rendered(&helm, "ipv6", "ringfence", &[&values("ipv6")]);
    assert_eq!(env(&objects, "RINGFENCE_LISTEN_PEER"), Some("[::]:7421"));
    let members = env(&objects, "RINGFENCE_INITIAL_CLUSTER").unwrap();
    assert_eq!(members.split(',').count(), 5);
    for service in of_kind(&objects, "Service") {
        assert_eq!(service["spec"]["ipFamilies"][0], "IPv6");
    }
}

#[test]
fn a_release_that_is_restored_renders_as_recorded() {
    let Some(helm) = Helm::found() else { return };
    let objects = rendered(&helm, "restored", "ringfence", &[&values("restored")]);
    let set = |name| env(&objects, name).unwrap_or_default();
    assert_eq!(
        set("RINGFENCE_RESTORE"),
        "/etc/ringfence/restore/cluster.backup"
    );
    assert_eq!(set("RINGFENCE_DIGEST").len(), 64);
    assert_eq!(set("RINGFENCE_RULES"), "/etc/ringfence/rules/rules.toml");
    assert_eq!(set("RINGFENCE_QUIET_TIME"), "10m");
    // An object of a bucket is no file of a volume.
    let object = "--set=restore.backup=s3://backups/today.backup,restore.volume=null";
    let text = helm.template("ringfence", "ringfence", &[&values("restored"), object]);
    let objects = crate::objects::objects(&text.unwrap());
    let url = env(&objects, "RINGFENCE_RESTORE");
    assert_eq!(url, Some("s3://backups/today.backup"));
}

#[test]
fn two_releases_in_one_namespace_share_no_object_and_select_no_pod_of_each_other() {
    let Some(helm) = Helm::found() else { return };
    let blue = rendered(&helm, "two-releases", "blue", &[&values("dev")]);
    let green = helm.template("green", "ringfence", &[&values("dev")]);
    let green = objects(&green.unwrap());
    let names = |all: &[Value]| all.iter().map(identity).collect::<BTreeSet<_>>();
    assert_eq!(names(&blue).len(), blue.len());
    let shared: Vec<_> = names(&blue).intersection(&names(&green)).cloned().collect();
    assert!(shared.is_empty(), "{shared:?}");
    // The same release in another namespace shares no object of the whole Kubernetes.
    let elsewhere = helm.template("blue", "other", &[&values("dev")]).unwrap();
    let shared: Vec<_> = names(&blue)
        .intersection(&names(&objects(&elsewhere)))
        .cloned()
        .collect();
    assert!(shared.is_empty(), "{shared:?}");

    let pods = &of_kind(&green, "StatefulSet")[0]["spec"]["template"]["metadata"]["labels"];
    for (kind, path) in [
        ("Service", "/spec/selector"),
        ("StatefulSet", "/spec/selector/matchLabels"),
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
        (
            "NetworkPolicy",
            "/spec/ingress/0/from/0/podSelector/matchLabels",
        ),
    ] {
        for object in of_kind(&blue, kind) {
            let selector = object.pointer(path).and_then(Value::as_object).unwrap();
            let selects = selector.iter().all(|(key, value)| pods[key] == *value);
            assert!(
                !selects && selector.len() > 1,
                "{kind} {path}: {selector:?}"
            );
        }
    }
}

#[test]
fn every_variable_is_one_that_the_binary_reads() {
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../server/src");
    let sources = ["config/given.rs", "cli/mod.rs", "cli/tls.rs"];
    let sources = sources.map(|file| fs::read_to_string(server.join(file)).unwrap());
    let sources = sources.concat();
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chart/goldens");
    let mut names = BTreeSet::new();
    for golden in fs::read_dir(goldens).unwrap() {
        let text = fs::read_to_string(golden.unwrap().path()).unwrap();
        let set = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- name: "));
        names.extend(
            set.filter(|name| name.starts_with("RINGFENCE_"))
                .map(str::to_owned),
        );
    }
    assert!(names.len() > 25, "{names:?}");
    let read = |name: &str| sources.contains(&format!("env = \"{name}\""));
    let unread: Vec<&String> = names.iter().filter(|name| !read(name)).collect();
    assert!(unread.is_empty(), "{unread:?}");
}
