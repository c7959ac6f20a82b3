//! The chart and the overlays of kustomize are two forms of one truth.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};

use crate::helm::{Helm, deploy, values};
use crate::objects::{identity, objects};

/// Names of objects of the whole Kubernetes: the chart's, which contain the namespace and the name of
/// the installation, and those of the overlays, of which there is one installation.
const NAMES: [(&str, &str); 4] = [
    (
        "mirrored-lease.ringfence.ringfence.ringfence.io",
        "mirrored-lease.ringfence.io",
    ),
    ("ringfence.ringfence.mirror", "ringfence-mirror"),
    ("ringfence.ringfence.pods", "ringfence-pods"),
    ("ringfence.ringfence.lower-tokens", "ringfence-lower-tokens"),
];

/// What kustomize makes of an overlay; `None` if there is no kubectl here, which is printed.
fn overlay(name: &str) -> Option<String> {
    let program = ringfence_kubernetes::kubectl()?;
    let folder = deploy("kubernetes/overlays").join(name);
    let output = Command::new(program)
        .arg("kustomize")
        .arg(folder)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Kinds of the whole Kubernetes that kustomize takes for kinds of a namespace; kubectl knows better.
const CLUSTER_WIDE: [&str; 2] = [
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

/// Objects without what the two forms say differently on purpose: labels, names of objects of the
/// whole Kubernetes, the order of variables and mounts, the namespace itself, and the test of Helm.
fn normal(text: &str) -> BTreeMap<[String; 3], Value> {
    let mut text = text.to_owned();
    for (ours, theirs) in NAMES {
        text = text.replace(ours, theirs);
    }
    let mut normal = BTreeMap::new();
    for mut object in objects(&text) {
        let hook = &object["metadata"]["annotations"]["helm.sh/hook"];
        if object["kind"] == "Namespace" || *hook == "test" {
            continue;
        }
        let cluster_wide = CLUSTER_WIDE.iter().any(|kind| object["kind"] == *kind);
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("labels");
        if cluster_wide {
            metadata.remove("namespace");
        }
        unlabelled(&mut object);
        let before = normal.insert(identity(&object), object);
        assert!(before.is_none(), "twice: {before:?}");
    }
    normal
}

/// Selectors name the installation in the chart alone.
fn unlabelled(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("app.kubernetes.io/instance");
            for (list, key) in [("env", "name"), ("volumeMounts", "mountPath")] {
                if let Some(Value::Array(items)) = fields.get_mut(list) {
                    items.sort_by_key(|item| item[key].to_string());
                }
            }
            fields.values_mut().for_each(unlabelled);
        }
        Value::Array(items) => items.iter_mut().for_each(unlabelled),
        _ => {}
    }
}

#[test]
fn default_values_are_the_overlay_production_and_those_of_dev_are_dev() {
    let Some(helm) = Helm::found() else { return };
    let dev = values("dev");
    for (name, words, count) in [("production", vec![], 13), ("dev", vec![dev.as_str()], 15)] {
        let Some(theirs) = overlay(name) else { return };
        let ours = helm.template("ringfence", "ringfence", &words).unwrap();
        let (ours, theirs) = (normal(&ours), normal(&theirs));
        assert_eq!(theirs.len(), count, "{name}: {:?}", theirs.keys());
        let names = |all: &BTreeMap<[String; 3], Value>| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&ours), names(&theirs), "{name}");
        for (identity, theirs) in theirs {
            let ours = &ours[&identity];
            assert_eq!(*ours, theirs, "{name}: {identity:?}");
        }
    }
}

#[test]
fn a_difference_of_one_value_is_seen() {
    let text = |size: &str| {
        let object = json!({"kind": "StatefulSet", "metadata": {"name": "a"}, "size": size});
        normal(&object.to_string())
    };
    assert_eq!(text("1Gi"), text("1Gi"));
    assert_ne!(text("1Gi"), text("2Gi"));
}
