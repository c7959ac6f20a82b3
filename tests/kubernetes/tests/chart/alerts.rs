//! The alerts of the chart are those of `deploy/prometheus`, each for one installation. The chart has
//! them by a symbolic link, which Helm follows.

use std::fs;
use std::process::Command;

use crate::helm::{Helm, deploy};
use crate::objects::{objects, of_kind};

/// Two installations under one Prometheus: `a/ringfence` has a leader, `b/ringfence` has none.
const TESTS: &str = r#"
rule_files: [rules.yaml]
evaluation_interval: 15s
tests:
  - interval: 15s
    input_series:
      - series: ringfence_raft_is_leader{job="a/ringfence", instance="a"}
        values: 1x40
      - series: ringfence_raft_is_leader{job="b/ringfence", instance="b"}
        values: 0x40
      - series: ringfence_raft_is_leader{job="kubernetes-pods", instance="c"}
        values: 0x40
    alert_rule_test:
      - eval_time: 2m
        alertname: RingfenceNoLeader
        exp_alerts:
          - exp_labels: {severity: critical, job: b/ringfence}
            exp_annotations:
              summary: No node of b/ringfence leads
              description: >-
                Nothing is granted and nothing ends until a majority of the voters hear each other;
                `ringfence cluster status` says what each of them waits for.
"#;

#[test]
fn an_installation_raises_the_alerts_of_its_own_nodes_alone() {
    let Some(helm) = Helm::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    let words = "--set=metrics.podMonitor.enabled=true,metrics.prometheusRule.enabled=true";
    let text = helm.template("ringfence", "b", &[words]).unwrap();
    let objects = objects(&text);
    let rule = of_kind(&objects, "PrometheusRule")[0];
    // JSON is YAML.
    let rules = rule["spec"].to_string();
    let original = fs::read_to_string(deploy("prometheus/rules.yaml")).unwrap();
    let alerts = rules.matches(r#""alert":"#).count();
    assert_eq!(alerts, original.matches("- alert: ").count());
    assert!(alerts > 10, "{rules}");
    fs::write(folder.path().join("rules.yaml"), &rules).unwrap();
    fs::write(folder.path().join("test.yaml"), TESTS).unwrap();
    let promtool = Command::new("promtool")
        .args(["test", "rules"])
        .arg(folder.path().join("test.yaml"))
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
