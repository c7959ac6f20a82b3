//! `dev`: a cluster that can be played with, and leaves nothing behind.

use std::io::BufRead;
use std::net::TcpListener;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Dev, Said, await_that, lives, pid, run, signal};

#[test]
fn nothing_is_left_behind_after_ctrl_c() {
    let mut dev = Dev::start(3);
    let pids = dev.pids();
    assert_eq!(pids.len(), 3);
    assert!(pids.iter().all(|pid| lives(*pid)));
    let log = dev.ready["nodes"][0]["log"].as_str().unwrap().to_owned();
    let root = Path::new(&log).parent().unwrap();
    assert!(root.join("n3").is_dir());

    assert_eq!(dev.interrupt(), Some(0));

    assert!(pids.iter().all(|pid| !lives(*pid)), "a node is left");
    assert!(!root.exists(), "{} is left", root.display());
}

#[test]
fn a_node_that_dies_is_reported_and_the_others_serve() {
    let mut dev = Dev::start(3);
    let leader = dev.ready["leader"].clone();
    let nodes = dev.ready["nodes"].as_array().unwrap();
    let dead = nodes.iter().find(|node| node["name"] == leader).unwrap();
    signal(
        dead["pid"].as_i64().unwrap().try_into().unwrap(),
        Signal::KILL,
    );

    let mut line = String::new();
    dev.lines.read_line(&mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap();

    assert_eq!((&told["kind"], &told["name"]), (&"ENDED".into(), &leader));
    assert_eq!(told["how"], "was killed by signal 9");
    let granted = dev
        .run(&["--timeout", "20s", "lease", "acquire", "a"])
        .object();
    assert_eq!(granted["name"], "a");
}

#[test]
fn nodes_do_not_outlive_a_dev_that_is_killed() {
    let mut dev = Dev::start(1);
    let log = dev.ready["nodes"][0]["log"].as_str().unwrap().to_owned();
    let node = dev.pids()[0];

    signal(pid(&dev.process), Signal::KILL);
    dev.process.wait().unwrap();

    await_that("the node ends", || !lives(node));
    // A process that was killed removes nothing; the test does it instead.
    std::fs::remove_dir_all(Path::new(&log).parent().unwrap()).unwrap();
}

#[test]
fn a_taken_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();

    let said = run(&["--json", "dev", "--nodes", "1", "--port", &port]);

    assert_eq!(
        (said.code, said.reason().as_str()),
        (Some(71), "PORT_IN_USE"),
        "{said:?}"
    );
    assert!(said.err.contains(&port), "{said:?}");
}

#[test]
fn where_rights_bind_the_printed_command_gives_the_first_one() {
    let dev = Dev::start_with(3, &["--access", "enforced"]);
    assert_eq!(dev.ready["access"], "enforced");
    let denied = dev.run(&["lease", "acquire", "a"]);
    assert_eq!(
        (denied.code, denied.reason().as_str()),
        (Some(77), "PERMISSION_DENIED")
    );

    let printed = dev.ready["grant"].as_str().unwrap();
    let pasted = std::process::Command::new("sh")
        .args(["-c", printed])
        .output();
    let pasted = Said::from(pasted.unwrap());

    assert_eq!(pasted.code, Some(0), "{printed}: {pasted:?}");
    let granted = dev.run(&["lease", "acquire", "a"]).object();
    assert_eq!(granted["name"], "a");
}

#[test]
fn other_users_read_nothing_of_a_cluster_for_trying() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    let dev = Dev::start_with(1, &["--data-dir", root.to_str().unwrap()]);
    let mode = |path: &str| {
        let metadata = std::fs::metadata(root.join(path)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(["", "n1", "n1.log"].map(mode), [0o700, 0o700, 0o600]);
    drop(dev);
}
