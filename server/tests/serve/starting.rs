//! Starts that cannot succeed: each says what is wrong and what to do, and ends.

use std::net::TcpListener;
use std::process::Output;
use std::time::Duration;

use ringfence_proto::v1::Reason;
use ringfence_testkit::certificates::Authority;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::api::{Api, open_request, refusal};
use crate::cluster::three;
use crate::process::{PATIENCE, Ports, Process, command, single};

/// Runs `ringfence serve` with these arguments, which must end it.
async fn run(args: &[&str]) -> Output {
    let mut command = tokio::process::Command::from(command());
    let run = command.args(args).kill_on_drop(true).output();
    tokio::time::timeout(PATIENCE, run)
        .await
        .expect("it ends by itself")
        .unwrap()
}

/// It failed with this code, and said all this.
#[track_caller]
fn assert_failed(output: &Output, code: i32, said: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    for words in said {
        assert!(stderr.contains(words), "`{words}` is not in: {stderr}");
    }
    assert!(!stderr.contains("panicked"), "{stderr}");
}

#[tokio::test]
async fn an_unknown_key_in_the_file_is_refused_by_name() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("ringfence.toml");
    std::fs::write(&file, "name = \"n1\"\nlisten-clent = \"127.0.0.1:1\"\n").unwrap();

    let output = run(&["--config", file.to_str().unwrap()]).await;

    assert_failed(
        &output,
        2,
        &["ringfence.toml", "line 2", "listen-clent", "listen-client"],
    );
}

#[tokio::test]
async fn a_bad_value_ends_with_what_is_allowed() {
    let output = run(&["--election-ms", "1..2"]).await;

    assert_failed(
        &output,
        2,
        &["--election-ms", "1..2", "at least 3 heartbeats"],
    );
}

#[tokio::test]
async fn a_port_in_use_is_named_with_its_flag() {
    for flag in ["client", "peer", "http"] {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let mut flags = Ports::free().flags();
        flags.retain(|other| !other.starts_with(&format!("--listen-{flag}")));
        flags.push(format!("--listen-{flag}={address}"));
        let dir = TempDir::new().unwrap();
        let mut args: Vec<&str> = flags.iter().map(String::as_str).collect();
        args.extend([
            "--data-dir",
            dir.path().to_str().unwrap(),
            "--wal-segment-bytes=1048576",
        ]);

        let output = run(&args).await;

        assert_failed(
            &output,
            71,
            &[&format!("--listen-{flag}"), &address, "in use"],
        );
    }
}

#[tokio::test]
async fn a_directory_in_use_is_refused() {
    let (node, dir) = single().await;
    let data_dir = dir.path().join("n1");
    let flags = Ports::free().flags();
    let mut args: Vec<&str> = flags.iter().map(String::as_str).collect();
    args.extend(["--data-dir", data_dir.to_str().unwrap()]);

    let output = run(&args).await;

    assert_failed(&output, 71, &[data_dir.to_str().unwrap(), "another"]);
    assert_eq!(node.http("/livez").unwrap().0, 200);
}

#[tokio::test]
async fn a_directory_of_another_node_is_refused() {
    let (mut node, dir) = single().await;
    node.signal("TERM");
    node.ended_within(PATIENCE).await.expect("it ends");
    let data_dir = dir.path().join("n1");
    let flags = Ports::free().flags();
    let mut args: Vec<&str> = flags.iter().map(String::as_str).collect();
    args.extend(["--name=n2", "--data-dir", data_dir.to_str().unwrap()]);

    let output = run(&args).await;

    let path = data_dir.to_str().unwrap();
    assert_failed(&output, 1, &[path, "\"n1\"", "\"n2\""]);
}

#[tokio::test]
async fn a_directory_of_another_cluster_never_mixes_the_two() {
    let (mut ours, our_dir) = three().await;
    let (theirs, their_dir) = three().await;
    for mut node in theirs {
        node.signal("KILL");
        node.ended_within(PATIENCE).await.expect("it ends");
    }
    let mut api = Api::of(&ours[0]).await;
    let before = api.members().await;
    let mut third = ours.pop().unwrap();
    third.signal("TERM");
    third.ended_within(PATIENCE).await.expect("it ends");

    // n3 with the wrong disk, at the right address.
    let member = |port: u16, n: usize| format!("n{n}=127.0.0.1:{port}");
    let peers = [ours[0].ports.peer, ours[1].ports.peer, third.ports.peer];
    let members: Vec<_> = (1..).zip(peers).map(|(n, port)| member(port, n)).collect();
    let members = format!("--initial-cluster={}", members.join(","));
    let flags = ["--name=n3", &members, "--token-floor=0"];
    let stray = Process::start(&their_dir.path().join("n3"), third.ports, &flags);

    // Ours goes on, and the stranger is no part of it: it serves no client and says why.
    let said = async {
        while !stray.logged().contains("the right data directory?") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let said = tokio::time::timeout(PATIENCE, said).await;
    assert!(said.is_ok(), "{}", stray.logged());
    assert!(stray.logged().contains("the call comes from cluster"));
    assert_eq!(stray.http("/readyz").unwrap().0, 503);
    let alice = api.open("alice").await;
    api.acquire(&alice, 1, "db").await.unwrap();
    assert_eq!(api.members().await.len(), before.len());
    let mut strays = Api::of(&stray).await;
    assert_ne!(
        strays.status().await.cluster_id,
        api.status().await.cluster_id
    );

    // With its own disk the node is a member again, and has what it missed.
    drop(stray);
    let own = our_dir.path().join("n3");
    let back = Process::start(&own, third.ports, &flags).ready().await;
    let mut back = Api::of(&back).await;
    assert_eq!(back.get("db").await.unwrap().holder.unwrap().token, 1);
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_refused() {
    let dir = TempDir::new().unwrap();
    let locked = dir.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    let mut permissions = std::fs::metadata(&locked).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&locked, permissions).unwrap();
    // Permissions do not stop root; nothing can be made below a device.
    let below_a_device = "/dev/null/ringfence".to_owned();
    let is_root = std::fs::write(locked.join("probe"), "").is_ok();
    let readonly = locked.join("data").to_str().unwrap().to_owned();
    let refusing = if is_root {
        vec![below_a_device]
    } else {
        vec![below_a_device, readonly]
    };

    for data_dir in refusing {
        let flags = Ports::free().flags();
        let mut args: Vec<&str> = flags.iter().map(String::as_str).collect();
        args.extend(["--data-dir", &data_dir]);

        let output = run(&args).await;

        assert_failed(&output, 71, &[&data_dir]);
    }
}

#[tokio::test]
async fn a_node_whose_cluster_is_not_formed_lives_and_says_why_it_is_not_ready() {
    let dir = TempDir::new().unwrap();
    let (ports, absent) = (Ports::free(), Ports::free());
    let members = format!("n1=127.0.0.1:{},n2=127.0.0.1:{}", ports.peer, absent.peer);
    let node = Process::start(
        &dir.path().join("n1"),
        ports,
        &["--initial-cluster", &members],
    );
    let alive = async {
        while node.http("/livez").is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, alive).await.unwrap();

    let (status, why) = node.http("/readyz").unwrap();
    assert_eq!(status, 503);
    assert!(why.contains("belongs to no cluster yet"), "{why}");

    let mut api = Api::of(&node).await;
    assert_eq!(api.status().await.role, "forming");
    let mut request = tonic::Request::new(open_request("alice"));
    request.set_timeout(PATIENCE);
    let refused = api.sessions.open(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(refusal(&refused).reason, Reason::Unavailable);
    let greeted = crate::stream::Wire::open(&mut api).await;
    assert_eq!(
        greeted.err().map(|refused| refused.code()),
        Some(Code::Unavailable)
    );
}

#[tokio::test]
async fn a_node_that_others_reach_is_told_about_rights_or_does_not_start() {
    let dir = TempDir::new().unwrap();
    let data = format!("--data-dir={}", dir.path().join("n1").display());
    for listen in ["[::]:7420", "0.0.0.0:7420", "192.0.2.1:7420"] {
        let listen = format!("--listen-client={listen}");
        let output = run(&[&listen, &data]).await;
        assert_failed(
            &output,
            2,
            &["--listen-client", "--access enforced", "--allow-anonymous"],
        );
    }
    // The port of the Lease endpoint is one for clients as well.
    let servers = Authority::new("servers");
    let own = servers.sign(&["127.0.0.1"]).save(dir.path(), "node");
    let certificate = format!("--cert-file={}", own.certificate.display());
    let key = format!("--key-file={}", own.key.display());
    let on_loopback = "--listen-client=127.0.0.1:7420";
    let electors = "--listen-lease-api=0.0.0.0:7425";
    let output = run(&[on_loopback, electors, &certificate, &key, &data]).await;
    let said = [
        "--listen-lease-api is `0.0.0.0:7425`",
        "--listen-lease-api 127.0.0.1:7425",
    ];
    assert_failed(&output, 2, &said);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("--listen-client"), "{stderr}");
    let output = run(&[&data, "--access=on"]).await;
    assert_failed(&output, 2, &["--access", "off, permissive or enforced"]);
}

/// What rotates files sends it at any moment, and a terminal when it closes.
#[tokio::test]
async fn a_hangup_while_it_starts_ends_no_node() {
    for audited in [true, false] {
        let dir = TempDir::new().unwrap();
        let audit = format!("--audit-log={}", dir.path().join("audit").display());
        let mut flags = vec!["--token-floor=0", "--allow-anonymous"];
        flags.extend(audited.then_some(audit.as_str()));
        let hosts = ["0.0.0.0", "127.0.0.1", "127.0.0.1"];
        let node = Process::start_on(hosts, &dir.path().join("n1"), Ports::free(), &flags);
        let logs = async |what: &str| {
            while !node.logged().contains(what) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        // Written before anything that takes time.
        timeout(PATIENCE, logs("ALL interfaces")).await.unwrap();
        node.signal("HUP");
        if audited {
            // It is done once it can be.
            timeout(PATIENCE, logs("the audit log was opened again"))
                .await
                .unwrap();
        }
        let mut node = node.ready().await;
        node.signal("HUP");
        node.signal("TERM");
        let ended = node.ended_within(PATIENCE).await.unwrap();
        assert_eq!(ended.code(), Some(0), "{}", node.logged());
    }
}

/// A terminal that closes takes its end of stderr with it, and so does a collector of logs that ends.
#[tokio::test]
async fn a_node_whose_log_nobody_reads_goes_on() {
    let dir = TempDir::new().unwrap();
    let audit = format!("--audit-log={}", dir.path().join("audit").display());
    let flags = ["--token-floor=0", audit.as_str()];
    let node = Process::start_unread(&dir.path().join("n1"), Ports::free(), &flags);
    let mut node = node.ready().await;
    // It says what it did.
    node.signal("HUP");
    let moment = Duration::from_millis(500);
    assert_eq!(node.ended_within(moment).await, None);
    Api::of(&node).await.open("holder").await;
    node.signal("TERM");
    let ended = node.ended_within(PATIENCE).await.unwrap();
    assert_eq!(ended.code(), Some(0));
}
