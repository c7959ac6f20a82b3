//! A program for another kind of machine, which an emulator runs here: a cluster of it, its commands,
//! and a cluster of both kinds.
//!
//! `cargo xtask arm64` builds it and starts this program; `cargo test` leaves it out.
#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use ringfence_proto::v1::check_response::Verdict;
use ringfence_tests::{Caller, Cluster, Options, Signal};

/// An emulated node is some ten times as slow, and may wait for other work on its machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longer than the whole test takes.
const TTL: Duration = Duration::from_secs(300);
const NAME: &str = "bank/interest";

/// What runs the program: a path without arguments.
fn emulated() -> PathBuf {
    let path = std::env::var_os("RINGFENCE_EMULATED");
    path.expect("RINGFENCE_EMULATED names a program: run `cargo xtask arm64`")
        .into()
}

/// A command of the emulated program, with this on its stdin.
fn command(words: &[&str], stdin: &str) -> Output {
    let mut child = Command::new(emulated())
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(stdin.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

/// What a command prints that succeeds.
fn printed(words: &[&str]) -> String {
    let run = command(words, "");
    let err = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{words:?}: {err}");
    String::from_utf8(run.stdout).unwrap()
}

/// Adds to a balance in SQLite under a fence; the exit code, and what was said.
fn pay(database: &Path, token: u64) -> (Option<i32>, String) {
    let (database, fence) = (database.to_str().unwrap(), format!("{NAME}#{token}"));
    let words = ["guard", "sqlite", database, "--fence", &fence];
    let run = command(&words, "UPDATE balance SET amount = amount + 10");
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    (run.status.code(), said)
}

async fn cluster(server: PathBuf) -> Cluster {
    let cluster = Cluster::start(Options {
        server: Some(server),
        // It waits for less than emulated nodes may take.
        probed: false,
        ..Options::alone()
    })
    .await;
    cluster.wait_until_serving(PATIENCE).await;
    cluster
}

fn patient(cluster: &Cluster) -> Caller {
    let mut caller = cluster.caller();
    caller.patience = PATIENCE;
    caller
}

/// Ends a node as an operator does, and starts it as this program on the same directory; that of this
/// build if `None`.
async fn restart_as(cluster: &mut Cluster, at: usize, server: Option<PathBuf>) {
    cluster.signal(at, Signal::Terminate);
    let code = cluster.wait_exit(at, PATIENCE).await;
    assert_eq!(code, Some(0), "{}", cluster.log(at));
    cluster.set_server(at, server);
    cluster.spawn(at);
}

#[test]
fn the_program_says_its_version() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        printed(&["--version"]).trim(),
        format!("ringfence {version}")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emulated_cluster_keeps_a_lease_and_its_guard_refuses_the_stale_token() {
    let mut cluster = cluster(emulated()).await;
    let caller = patient(&cluster);
    let first = caller.open("first", TTL).await.unwrap();
    let held = caller.acquire(&first, first.number(), NAME, None);
    let old = held.await.unwrap().token;

    let leader = cluster.wait_for_leader(PATIENCE).await;
    cluster.signal(leader, Signal::Kill);
    let lease = caller.get(NAME).await.unwrap().unwrap();
    assert_eq!(
        lease.holder.unwrap().token,
        old,
        "another leader keeps the grant"
    );
    cluster.spawn(leader);

    let number = first.number();
    caller.release(&first, number, NAME, old).await.unwrap();
    let endpoints = cluster.endpoints().join(",");
    let json = printed(&[
        "--endpoints",
        &endpoints,
        "--timeout",
        "120s",
        "lease",
        "acquire",
        NAME,
        "--ttl",
        "5m",
        "--json",
    ]);
    let granted: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
    let new = granted["token"].as_u64().unwrap();
    assert!(new > old, "{new} behind {old}");
    let check = caller.check(NAME, old).await.unwrap();
    assert_eq!((check.verdict(), check.newest), (Verdict::Superseded, new));

    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("bank.db");
    printed(&["guard", "sqlite", database.to_str().unwrap(), "--install"]);
    let opened = rusqlite::Connection::open(&database).unwrap();
    let table = "CREATE TABLE balance (amount INTEGER); INSERT INTO balance VALUES (100)";
    opened.execute_batch(table).unwrap();
    let (code, said) = pay(&database, new);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = pay(&database, old);
    assert_eq!(code, Some(76), "{said}");
    for token in [old, new] {
        assert!(said.contains(&token.to_string()), "{said}");
    }
    let amount = opened.query_row("SELECT amount FROM balance", (), |row| row.get::<_, i64>(0));
    assert_eq!(amount.unwrap(), 110, "of two writes, that of the holder");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_both_kinds_form_a_cluster_and_change_places_on_their_data() {
    let mut cluster = cluster(emulated()).await;
    let caller = patient(&cluster);
    let session = caller.open("holder", TTL).await.unwrap();
    let held = caller.acquire(&session, session.number(), NAME, None);
    let token = held.await.unwrap().token;

    // Node by node to this machine's own program, then one of them back.
    let steps = [(0, None), (1, None), (2, None), (1, Some(emulated()))];
    for (step, (at, server)) in steps.into_iter().enumerate() {
        restart_as(&mut cluster, at, server).await;
        let name = format!("step/{step}");
        let written = caller.acquire(&session, session.number(), &name, None);
        let written = written.await.unwrap().token;
        let entry = cluster
            .applied(cluster.wait_for_leader(PATIENCE).await)
            .await;
        cluster.wait_until_applied(at, entry, PATIENCE).await;
        assert!(written > token);
        let lease = caller.get(NAME).await.unwrap().unwrap();
        assert_eq!(lease.holder.unwrap().token, token, "kept by all of them");
    }
}
