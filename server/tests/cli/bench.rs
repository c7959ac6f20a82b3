//! `bench`: every measurement prints its figures, and the comparison is what it says.

use serde_json::Value;

use crate::harness::{Said, ringfence};

/// Runs a short measurement on nodes of its own; `None` leaves nothing on PATH.
fn bench(work: &str, path: Option<&str>) -> Value {
    let mut command = ringfence();
    command.args(["--json", "bench", work, "--clients", "2", "--seconds", "1"]);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    Said::from(command.output().unwrap()).object()
}

#[test]
fn every_measurement_has_a_rate_and_percentiles() {
    for (work, series) in [
        ("full", "open+acquire"),
        ("lock", "acquire+release"),
        ("check", "check"),
        ("handover", "hand-over"),
        ("keepalive", "message"),
    ] {
        let said = bench(work, None);

        assert!(said["per_second"].as_f64() > Some(0.0), "{said}");
        let [p50, p99, max] = ["p50_us", "p99_us", "max_us"].map(|at| said[series][at].as_u64());
        assert!(Some(0) < p50 && p50 <= p99 && p99 <= max, "{said}");
        assert_eq!(
            (&said["bench"], &said["clients"]),
            (&work.into(), &2.into())
        );
    }
}

#[test]
fn the_ratio_to_etcd_is_that_of_the_two_rates_of_one_run() {
    let said = bench("cycle", Some("/nowhere"));
    assert_eq!(said["etcd_ratio"], Value::Null, "{said}");

    let path = std::env::var("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|folder| folder.join("etcd").is_file());
    let said = bench("cycle", None);
    assert_eq!(said["etcd_ratio"].is_number(), there, "{said}");
    if let (Some(ratio), Some(ours), Some(theirs)) = (
        said["etcd_ratio"].as_f64(),
        said["per_second"].as_f64(),
        said["etcd_per_second"].as_f64(),
    ) {
        // The rates are rounded to whole ones.
        let slack = (ours + 0.5) / (theirs - 0.5) - ours / theirs;
        assert!((ratio - ours / theirs).abs() <= slack + 0.01, "{said}");
    }
}

#[test]
fn on_etcd_what_etcd_cannot_do_and_an_etcd_that_is_not_there_are_refused() {
    for (work, why) in [
        ("lock", "cycle, full, check and keepalive only"),
        ("failover", "cycle, full, check and keepalive only"),
        ("cycle", "no etcd on PATH"),
    ] {
        let mut command = ringfence();
        command.args(["bench", work, "--on", "etcd"]);
        command.env("PATH", "/nowhere");
        let said = Said::from(command.output().unwrap());
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(why), "{said:?}");
    }
}
