//! `/metrics`: text that a scraper understands, with figures that move.

use std::collections::{BTreeMap, BTreeSet};

use ringfence_proto::v1;
use tokio::time::timeout;

use crate::api::{Api, acquire_request, open_request};
use crate::cluster::three;
use crate::process::{GLANCE, PATIENCE, Process, single};

/// What a scraper makes of the text: each series with its value.
#[derive(Debug, Default)]
struct Scrape {
    kinds: BTreeMap<String, String>,
    series: BTreeMap<String, f64>,
}

/// The endings that a kind of metric adds to the names of its series.
fn endings(kind: &str) -> &'static [&'static str] {
    match kind {
        "counter" => &["_total"],
        "gauge" => &[""],
        "histogram" => &["_bucket", "_sum", "_count"],
        other => panic!("a {other} is not expected"),
    }
}

impl Scrape {
    fn of(node: &Process) -> Self {
        let (status, text) = node.http("/metrics").unwrap();
        assert_eq!(status, 200, "{text}");
        Self::parse(&text)
    }

    fn parse(text: &str) -> Self {
        let mut scrape = Self::default();
        let mut helped = BTreeSet::new();
        let lines = text.strip_suffix("# EOF\n").expect("it is whole");
        for line in lines.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect(line);
                assert!(help.len() > 3 && helped.insert(name), "{line}");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect(line);
                assert!(is_name(name) && name.starts_with("ringfence_"), "{line}");
                let before = scrape.kinds.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "{line}");
            } else {
                let (series, value) = line.rsplit_once(' ').expect(line);
                assert!(scrape.family(series).is_some(), "{line}");
                assert_labels(series);
                let value: f64 = value.parse().expect(line);
                assert!(value.is_finite() && value >= 0.0, "{line}");
                let before = scrape.series.insert(series.to_owned(), value);
                assert_eq!(before, None, "twice: {line}");
            }
        }
        assert!(helped.iter().all(|name| scrape.kinds.contains_key(*name)));
        scrape
    }

    /// The metric that a series belongs to, declared before it.
    fn family(&self, series: &str) -> Option<&str> {
        let name = series.split('{').next()?;
        let matches = |(family, kind): &(&String, &String)| {
            let ending = name.strip_prefix(family.as_str());
            ending.is_some_and(|ending| endings(kind).contains(&ending))
        };
        self.kinds.iter().find(matches).map(|(name, _)| &**name)
    }

    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        let value = self.series.get(series);
        *value.unwrap_or_else(|| panic!("no {series} in {:#?}", self.series))
    }
}

fn is_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.chars().all(inner) && name.starts_with(|c: char| c.is_ascii_lowercase())
}

/// `{name="value",…}` with nothing in the values that needs an escape.
#[track_caller]
fn assert_labels(series: &str) {
    let Some((_, labels)) = series.split_once('{') else {
        return;
    };
    let labels = labels.strip_suffix('}').expect(series);
    for label in labels.split(',') {
        let (name, value) = label.split_once('=').expect(series);
        let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
        let plain = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
        assert!(is_name(name), "{series}");
        assert!(
            value.is_some_and(|value| value.chars().all(plain)),
            "{series}"
        );
    }
}

#[tokio::test]
async fn a_scraper_understands_every_line() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    api.acquire(&alice, 1, "db").await.unwrap();
    let request = v1::KeepAliveRequest {
        sessions: vec![alice],
        ..Default::default()
    };
    let kept = api.sessions.keep_alive(tokio_stream::iter([request]));
    let mut answers = kept.await.unwrap().into_inner();
    answers.message().await.unwrap().unwrap();

    let scrape = Scrape::of(&node);

    for name in [
        "sessions",
        "leases_held",
        "queue_length",
        "lease_token",
        "lease_transitions",
        "renewals",
        "renew_latency_seconds",
        "expiry_lag_seconds",
        "quiet_time_remaining_seconds",
        "raft_is_leader",
        "wal_fsyncs",
        "certificate_expiry_seconds",
        "key_files_unusable",
    ] {
        let name = format!("ringfence_{name}");
        assert!(scrape.kinds.contains_key(&name), "{name} is missing");
    }
    // A histogram's buckets only grow, up to its count.
    let latency = "ringfence_renew_latency_seconds";
    let buckets = scrape.series.iter();
    let buckets = buckets.filter_map(|(series, value)| {
        let bound = series.strip_prefix(&format!("{latency}_bucket{{le=\""))?;
        let bound = bound.trim_end_matches("\"}");
        Some((bound.parse::<f64>().unwrap(), *value))
    });
    let mut buckets: Vec<_> = buckets.collect();
    buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
    assert!(buckets.is_sorted_by_key(|(_, count)| *count), "{buckets:?}");
    let last = buckets.last().unwrap();
    let count = scrape.value(&format!("{latency}_count"));
    assert_eq!(*last, (f64::INFINITY, count));
    assert_eq!(count, 1.0);
}

#[tokio::test]
async fn figures_move_with_what_happens() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let before = Scrape::of(&node);
    let alice = api.open("alice").await;
    let grant = api.acquire(&alice, 1, "db").await.unwrap();
    let bob = api.open("bob").await;
    api.acquire(&bob, 1, "db").await.unwrap_err();
    api.release(&alice, 2, &grant).await.unwrap();
    // One that no client keeps alive.
    let short = v1::AcquireRequest {
        open: Some(v1::OpenRequest {
            ttl_ms: Some(200),
            ..open_request("carol")
        }),
        session: None,
        ..acquire_request(&alice, 0, "short")
    };
    api.leases.acquire(short).await.unwrap();
    let ended = async { while api.get("short").await.unwrap().holder.is_some() {} };
    timeout(PATIENCE, ended).await.expect("it expires");

    let told = async {
        loop {
            let after = Scrape::of(&node);
            let expired = "ringfence_lease_transitions_total{cause=\"expired\"}";
            if after.series.contains_key(expired) {
                return after;
            }
        }
    };
    let after = timeout(PATIENCE, told).await.expect("the end is counted");
    for (series, more) in [
        ("ringfence_requests_total{call=\"open\",result=\"OK\"}", 2.0),
        (
            "ringfence_requests_total{call=\"acquire\",result=\"OK\"}",
            2.0,
        ),
        (
            "ringfence_requests_total{call=\"release\",result=\"OK\"}",
            1.0,
        ),
    ] {
        assert_eq!(after.value(series) - before.value(series), more, "{series}");
    }
    for (series, value) in [
        (
            "ringfence_requests_total{call=\"acquire\",result=\"HELD\"}",
            1.0,
        ),
        ("ringfence_lease_transitions_total{cause=\"granted\"}", 2.0),
        ("ringfence_lease_transitions_total{cause=\"released\"}", 1.0),
        ("ringfence_lease_transitions_total{cause=\"expired\"}", 1.0),
        ("ringfence_sessions", 2.0),
        ("ringfence_lease_token", 2.0),
    ] {
        assert_eq!(after.value(series), value, "{series}");
    }
    for series in [
        "ringfence_wal_fsyncs_total",
        "ringfence_wal_bytes_total",
        "ringfence_applied_entries_total",
        "ringfence_cluster_time_seconds",
    ] {
        assert!(after.value(series) > before.value(series), "{series}");
    }
    // Late, but within the second that the contract allows.
    assert!(after.value("ringfence_expiry_lag_max_seconds") < 1.0);
}

#[tokio::test]
async fn a_cluster_of_one_counts_itself_and_is_ready() {
    let (node, _dir) = single().await;
    let scrape = Scrape::of(&node);
    for name in ["ready", "is_voter", "voters", "voters_caught_up"] {
        assert_eq!(scrape.value(&format!("ringfence_{name}")), 1.0, "{name}");
    }
}

#[tokio::test]
async fn the_leader_counts_a_voter_that_is_killed_as_missing() {
    let (mut nodes, _dir) = three().await;
    let leads = |node: &Process| Scrape::of(node).value("ringfence_raft_is_leader") == 1.0;
    let leader = nodes.iter().position(leads).expect("one of three leads");
    let leader = nodes.swap_remove(leader);
    let counts = || {
        let scrape = Scrape::of(&leader);
        let count = |name: &str| scrape.series.get(&format!("ringfence_{name}")).copied();
        (count("voters"), count("voters_caught_up"))
    };
    let until = async |expected: (Option<f64>, Option<f64>)| {
        let reached = async {
            while counts() != expected {
                tokio::time::sleep(GLANCE).await;
            }
        };
        let reached = timeout(PATIENCE, reached).await;
        assert!(reached.is_ok(), "{:?} is not {expected:?}", counts());
    };
    until((Some(3.0), Some(3.0))).await;
    // A follower knows the voters, and counts none.
    let follower = Scrape::of(&nodes[0]);
    assert_eq!(follower.value("ringfence_voters"), 3.0);
    assert!(!follower.series.contains_key("ringfence_voters_caught_up"));
    // Dropped, it is killed.
    nodes.pop();
    until((Some(3.0), Some(2.0))).await;
}
