//! A node that has just started and cannot hear yet what the others know.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};
use std::time::Duration;

use ringfence_tests::{Cluster, Options, Signal, server};
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(50);
/// Exit codes of the command line.
const UNAVAILABLE: Option<i32> = Some(69);
const DENIED: Option<i32> = Some(77);

fn ringfence(arguments: &[&str]) -> Output {
    let mut command = Command::new(server());
    command.env_clear().arg("--json").args(arguments);
    command.output().unwrap()
}

/// Runs a command by the admin socket of a node; what it prints.
fn local(cluster: &Cluster, at: usize, arguments: &[&str]) -> String {
    let socket = cluster.data_dir(at).join("admin.sock");
    let endpoints = format!("--endpoints=unix:{}", socket.display());
    let done = ringfence(&[&[endpoints.as_str()], arguments].concat());
    String::from_utf8(done.stdout).unwrap()
}

/// A token of the cluster, and what it is in a file.
fn token(cluster: &Cluster, at: usize, name: &str) -> tempfile::NamedTempFile {
    let made = local(cluster, at, &["access", "token", "create", name]);
    let begin = made.find("rft_").unwrap_or_else(|| panic!("{made}"));
    let token: String = made[begin..].chars().take_while(|c| *c != '"').collect();
    save(token.trim())
}

fn save(token: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), token).unwrap();
    file
}

/// What a node answers a caller with this token.
fn whoami(cluster: &Cluster, at: usize, token: &tempfile::NamedTempFile) -> Output {
    let endpoints = format!("--endpoints={}", cluster.endpoints()[at]);
    let file = format!("--token-file={}", token.path().display());
    ringfence(&[&endpoints, &file, "--timeout=2s", "access", "whoami"])
}

/// A request over HTTP by the admin socket of a node: status and body; `None` if no node listens there.
fn post(cluster: &Cluster, at: usize, path: &str, body: &str) -> Option<(u16, String)> {
    let mut socket = UnixStream::connect(cluster.data_dir(at).join("admin.sock")).ok()?;
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let bytes = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\nContent-Type: \
         application/json\r\nContent-Length: {bytes}\r\n\r\n"
    );
    socket.write_all((head + body).as_bytes()).ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// Three nodes that all know that rights bind.
async fn enforced() -> Cluster {
    let cluster = Cluster::start(Options {
        flags: ["--access", "enforced"].map(str::to_owned).to_vec(),
        probed: false,
        ..Options::default()
    })
    .await;
    let everywhere = async {
        for at in 0..cluster.len() {
            while !local(&cluster, at, &["access", "mode"]).contains("enforced") {
                sleep(GLANCE).await;
            }
        }
    };
    timeout(PATIENCE, everywhere).await.expect("rights bind");
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_refused_for_good_by_no_node_that_may_not_know_it_yet() {
    let mut cluster = enforced().await;
    let leader = cluster.wait_for_leader(PATIENCE).await;
    let late = (leader + 1) % cluster.len();
    cluster.signal(late, Signal::Kill);
    let leader = cluster.wait_for_leader(PATIENCE).await;
    let valid = token(&cluster, leader, "ci");
    let made = fs::read_to_string(valid.path()).unwrap();
    // The same number, and another secret.
    let (number, secret) = made.rsplit_once('_').unwrap();
    let (first, rest) = secret.split_at(1);
    let other = if first == "A" { "B" } else { "A" };
    let invalid = save(&format!("{number}_{other}{rest}"));
    assert_eq!(whoami(&cluster, leader, &valid).status.code(), Some(0));
    assert_eq!(whoami(&cluster, leader, &invalid).status.code(), DENIED);

    let others: Vec<usize> = (0..cluster.len()).filter(|at| *at != late).collect();
    for at in &others {
        cluster.signal(*at, Signal::Kill);
    }
    cluster.spawn(late);
    for token in [&valid, &invalid] {
        // At first the node does not listen yet, which the command answers alike.
        let told = async {
            loop {
                let said = whoami(&cluster, late, token);
                let error = String::from_utf8(said.stderr.clone()).unwrap();
                assert_eq!(said.status.code(), UNAVAILABLE, "{said:?}");
                if error.contains("not caught up") {
                    return;
                }
                sleep(GLANCE).await;
            }
        };
        timeout(PATIENCE, told)
            .await
            .expect("an answer that says why");
    }

    for at in others {
        cluster.spawn(at);
    }
    for (token, end) in [(&valid, Some(0)), (&invalid, DENIED)] {
        let ends = async {
            loop {
                let said = whoami(&cluster, late, token);
                if said.status.code() == end {
                    return;
                }
                assert_eq!(said.status.code(), UNAVAILABLE, "{said:?}");
                sleep(GLANCE).await;
            }
        };
        timeout(PATIENCE, ends).await.expect("it catches up");
    }
}

/// It is cut off, and hears of no ban and of no token that is revoked.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_may_know_old_rights_shows_no_history() {
    let mut cluster = enforced().await;
    let leader = cluster.wait_for_leader(PATIENCE).await;
    let late = (leader + 1) % cluster.len();
    let reader = token(&cluster, leader, "reader");
    for rule in [
        ["local", "acquire", "*"],
        ["local", "observe", "*"],
        ["token:reader", "observe", "bank/*"],
    ] {
        local(
            &cluster,
            leader,
            &[&["access", "grant"], &rule[..]].concat(),
        );
    }
    let held = ["lease", "acquire", "bank/ledger", "--ttl=60s"];
    let held = local(&cluster, leader, &held);
    assert!(held.contains("token"), "{held}");
    let history = |cluster: &Cluster, at: usize| {
        let endpoints = format!("--endpoints={}", cluster.endpoints()[at]);
        let file = format!("--token-file={}", reader.path().display());
        let ask = ["--timeout=8s", "lease", "history", "bank/ledger"];
        ringfence(&[&[endpoints.as_str(), &file], &ask[..]].concat())
    };
    let shown = async {
        while !String::from_utf8_lossy(&history(&cluster, late).stdout).contains("bank/ledger") {
            sleep(GLANCE).await;
        }
    };
    timeout(PATIENCE, shown).await.expect("it may be read");
    let others: Vec<usize> = (0..cluster.len()).filter(|at| *at != late).collect();
    for at in &others {
        cluster.signal(*at, Signal::Stop);
    }
    // As long as any read may ask for, and the time for a try.
    let old = timeout(2 * PATIENCE, async {
        while history(&cluster, late).status.code() != UNAVAILABLE {
            sleep(GLANCE).await;
        }
    });
    old.await.expect("its rights become too old");
    let here = local(&cluster, late, &["lease", "history", "bank/ledger"]);
    assert!(
        here.contains("bank/ledger"),
        "the operator of the machine sees it: {here}"
    );
    for at in others {
        cluster.signal(at, Signal::Continue);
    }
    let again = timeout(PATIENCE, async {
        while history(&cluster, late).status.code() != Some(0) {
            sleep(GLANCE).await;
        }
    });
    again.await.expect("it hears the others");
}

/// What it knows of rights is from before the grant.
#[tokio::test(flavor = "multi_thread")]
async fn a_right_is_refused_for_good_by_no_node_that_may_not_know_it_yet() {
    let mut cluster = enforced().await;
    let leader = cluster.wait_for_leader(PATIENCE).await;
    let late = (leader + 1) % cluster.len();
    let open = r#"{"ttl": "60s"}"#;
    let (status, refused) = post(&cluster, late, "/v1/sessions", open).expect("an answer");
    assert_eq!(status, 403, "{refused}");
    cluster.signal(late, Signal::Kill);
    let leader = cluster.wait_for_leader(PATIENCE).await;
    let grant = ["access", "grant", "local", "acquire", "*"];
    local(&cluster, leader, &grant);

    let others: Vec<usize> = (0..cluster.len()).filter(|at| *at != late).collect();
    for at in &others {
        cluster.signal(*at, Signal::Kill);
    }
    cluster.spawn(late);
    let alone = async {
        let mut answers = 0;
        while answers < 10 {
            if let Some((status, why)) = post(&cluster, late, "/v1/sessions", open) {
                assert_eq!(status, 503, "{why}");
                answers += 1;
            }
            sleep(GLANCE).await;
        }
    };
    timeout(PATIENCE, alone).await.expect("it answers");
    for at in others {
        cluster.spawn(at);
    }
    let ends = async {
        loop {
            match post(&cluster, late, "/v1/sessions", open) {
                Some((201, _)) => return,
                Some((status, why)) => assert_eq!(status, 503, "{why}"),
                None => {}
            }
            sleep(GLANCE).await;
        }
    };
    timeout(PATIENCE, ends).await.expect("it catches up");
}

/// Its disk is empty: it knows neither whether rights bind nor whether members know callers.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_knows_nothing_yet_takes_no_principal_for_a_stranger() {
    let mut cluster = enforced().await;
    let leader = cluster.wait_for_leader(PATIENCE).await;
    local(
        &cluster,
        leader,
        &["access", "grant", "local", "acquire", "*"],
    );
    let open = r#"{"ttl": "60s"}"#;
    let (status, opened) = post(&cluster, leader, "/v1/sessions", open).expect("an answer");
    assert_eq!(status, 201, "{opened}");
    let begin = opened.split_once(r#""session":""#).unwrap().1;
    let session = begin.split('"').next().unwrap();
    let kept = format!(r#"{{"session": "{session}"}}"#);

    let empty = (leader + 1) % cluster.len();
    for (path, body, done) in [
        ("/v1/keep-alive", kept.as_str(), 200),
        ("/v1/sessions", open, 201),
    ] {
        cluster.signal(empty, Signal::Kill);
        fs::remove_dir_all(cluster.data_dir(empty)).unwrap();
        cluster.spawn(empty);
        let ends = async {
            loop {
                match post(&cluster, empty, path, body) {
                    Some((status, _)) if status == done => return,
                    Some((status, why)) => assert_eq!(status, 503, "{path}: {why}"),
                    None => {}
                }
                sleep(GLANCE).await;
            }
        };
        timeout(PATIENCE, ends).await.expect("it catches up");
    }
}
