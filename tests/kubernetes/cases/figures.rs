//! What `deploy/prometheus` and `deploy/grafana` look at is what a node shows.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ringfence_kubernetes::ControlPlane;

use crate::site::{Site, within};

const FILES: [&str; 2] = ["prometheus/rules.yaml", "grafana/dashboard.json"];

fn deployed(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy")
        .join(file)
}

/// The figures that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let words = text.split(word);
    let figures = words.filter(|word| word.starts_with("ringfence_"));
    figures.map(str::to_owned).collect()
}

/// The figures that a node describes, by the names under which they are asked for.
fn described(shown: &str) -> BTreeSet<String> {
    let types = shown
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let names = types.flat_map(|line| match line.split_once(' ') {
        Some((name, "counter")) => vec![format!("{name}_total")],
        Some((name, "histogram")) => ["bucket", "sum", "count"]
            .map(|part| format!("{name}_{part}"))
            .to_vec(),
        Some((name, _)) => vec![name.to_owned()],
        None => Vec::new(),
    });
    names.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_figure_that_is_looked_at_is_one_that_a_node_shows() {
    let Some(plane) = ControlPlane::shared().await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let backups = folder.path().to_str().unwrap();
    let site = Site::with(plane, 2, &["--kube-pods", "--backup-dir", backups]).await;
    let session = site.session("worker").await;
    let lease = site.acquire(&session, "leader").await;
    site.objects
        .until_held("leader", "worker", lease.token().get())
        .await;

    // Some only the leader shows, and how far clocks are apart only a node that has looked at another.
    let mut shown = BTreeSet::new();
    within("a node has looked at the other's clock", async {
        while !shown.contains("ringfence_clock_offset_seconds") {
            for at in 0..site.cluster.len() {
                shown.extend(described(&site.figures(at).await));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert!(shown.len() > 40, "{shown:?}");
    for file in FILES {
        let text = std::fs::read_to_string(deployed(file)).unwrap();
        let wanted = named(&text);
        assert!(wanted.len() > 10, "{file}: {wanted:?}");
        let unknown: Vec<&String> = wanted.difference(&shown).collect();
        assert!(unknown.is_empty(), "{file} asks for {unknown:?}");
    }
    let dashboard = std::fs::read_to_string(deployed(FILES[1])).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 20);
}

#[test]
fn no_alarm_is_without_a_test() {
    let tests = std::fs::read_to_string(deployed("prometheus/rules.test.yaml")).unwrap();
    let tested = |alarm: &str| {
        let wanted = format!("alertname: {alarm}");
        tests.lines().any(|line| line.trim() == wanted)
    };
    for file in ["rules", "canary", "webhook"] {
        let file = &format!("prometheus/{file}.yaml");
        let rules = std::fs::read_to_string(deployed(file)).unwrap();
        let alarms = rules
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- alert: "));
        let untested: Vec<&str> = alarms.clone().filter(|alarm| !tested(alarm)).collect();
        assert!(alarms.count() > 1, "{file}");
        assert!(untested.is_empty(), "{file}: {untested:?}");
    }
}

#[test]
fn the_rules_hold_what_they_promise() {
    let promtool = Command::new("promtool")
        .args(["test", "rules"])
        .arg(deployed("prometheus/rules.test.yaml"))
        .output();
    match promtool {
        Ok(output) => {
            let told = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{told}{errors}");
        }
        Err(error) => {
            let ci = std::env::var("CI").is_ok_and(|value| value == "true");
            assert!(!ci, "promtool, of Debian's package prometheus: {error}");
            eprintln!("NOT TESTED: no promtool, which Debian's package prometheus has: {error}");
        }
    }
}
