//! `cluster`: a node joins, gets a vote, leads, and others leave.

use std::io::BufRead;
use std::process::{Child, Stdio};

use ringfence_testkit::browser::Browser;
use ringfence_testkit::ports::Port;
use serde_json::Value;
use tempfile::TempDir;

use crate::console::{OWN, get_at, picture};
use crate::harness::{Dev, Said, await_that, ringfence, signal};

/// A node that was started by hand.
struct Fourth {
    process: Child,
    client: String,
    dir: TempDir,
    _ports: [Port; 3],
}

impl Fourth {
    /// Starts n4, which asks this peer address to let it in.
    fn join(peer: &str) -> Self {
        let ports = [(); 3].map(|()| Port::any());
        let free = ports.each_ref().map(|port| port.address().to_string());
        let dir = tempfile::tempdir().unwrap();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let process = ringfence()
            .args(["serve", "--name", "n4", "--join", peer])
            .args(["--listen-client", &free[0], "--listen-peer", &free[1]])
            .args(["--listen-http", &free[2], "--wal-segment-bytes=1048576"])
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self {
            process,
            client: free[0].clone(),
            dir,
            _ports: ports,
        }
    }

    fn logged(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }
}

impl Drop for Fourth {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn member(dev: &Dev, name: &str) -> Option<Value> {
    let members = dev.run(&["cluster", "members"]).objects();
    members.into_iter().find(|member| member["name"] == name)
}

#[track_caller]
fn refused(said: &Said, code: i32, reason: &str) {
    let seen = (said.code, said.reason());
    assert_eq!(seen, (Some(code), reason.to_owned()), "{said:?}");
}

#[test]
fn an_operator_lets_a_node_in_gives_it_a_vote_lets_it_lead_and_removes_others() {
    let mut dev = Dev::start(3);
    let peer = dev.ready["nodes"][0]["peer"].as_str().unwrap().to_owned();
    let mut fourth = Fourth::join(&peer);
    await_that("n4 is a learner", || {
        member(&dev, "n4").is_some_and(|n4| n4["role"] == "learner")
    });
    let n4 = member(&dev, "n4").unwrap();
    let (id, incarnation) = (n4["node"].to_string(), n4["incarnation"].as_str().unwrap());
    assert!(fourth.logged().contains(incarnation), "it logs what it is");

    // It has asked on its own; to add it by hand as well changes nothing.
    let peer = n4["peer_address"].as_str().unwrap();
    let by_hand = |incarnation| {
        let place = ["--peer", peer, "--client", &fourth.client, "--incarnation"];
        let add = [&["cluster", "add", "n4"], &place[..], &[incarnation]];
        dev.run(&add.concat())
    };
    assert_eq!(by_hand(incarnation).object()["node"].to_string(), id);
    refused(&by_hand("nonsense"), 2, "INVALID_ARGUMENT");
    let nowhere = [
        "--peer",
        "here",
        "--client",
        "there:1",
        "--incarnation",
        incarnation,
    ];
    let add = [&["cluster", "add", "n5"], &nowhere[..]].concat();
    refused(&dev.run(&add), 2, "INVALID_ARGUMENT");
    refused(
        &dev.run(&["cluster", "transfer-leader", "n4"]),
        1,
        "MEMBERSHIP",
    );

    dev.run(&["cluster", "promote", "n4"]).object();
    assert_ne!(member(&dev, "n4").unwrap()["role"], "learner");
    let led = dev.run(&["cluster", "transfer-leader", "n4"]).object();
    assert_eq!(led["leader"].to_string(), id);
    let asked = ["--endpoints", &fourth.client, "cluster", "status"];
    await_that("n4 leads", || {
        let said = dev.run(&asked);
        said.code == Some(0) && said.object()["role"] == "leader"
    });
    let members = dev.run(&["cluster", "members"]).objects();
    let leads = |member: &&Value| member["role"] == "leader";
    let leader: Vec<_> = members.iter().filter(leads).collect();
    assert_eq!((members.len(), &leader[0]["name"]), (4, &"n4".into()));

    dev.run(&["cluster", "remove", "n1"]).object();
    let mut line = String::new();
    dev.lines.read_line(&mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&told["name"], &told["how"]),
        (&"n1".into(), &"ended with code 1".into())
    );
    assert_eq!(member(&dev, "n1"), None);
    refused(&dev.run(&["cluster", "remove", "n1"]), 1, "NOT_FOUND");
    refused(&dev.run(&["cluster", "promote", "n1"]), 1, "NOT_FOUND");

    // The one that leads: another leads before it goes.
    dev.run(&["--timeout", "20s", "cluster", "remove", &id])
        .object();
    await_that("n4 ends", || fourth.process.try_wait().unwrap().is_some());
    assert!(
        fourth.logged().contains("was removed"),
        "{}",
        fourth.logged()
    );
    let granted = dev.run(&["--timeout", "20s", "lease", "acquire", "a"]);
    assert_eq!(granted.object()["name"], "a");
}

/// What an operator wants to know of each node, at the page of one of them.
#[test]
fn the_members_are_shown_with_their_versions_and_disks_and_when_they_were_heard() {
    let dev = Dev::start(3);
    let nodes = dev.ready["nodes"].as_array().unwrap();
    let http = nodes[0]["http"].as_str().unwrap();
    let members = || {
        let (status, _, body) = get_at(http, "/console/v1/cluster", &[OWN]);
        assert_eq!(status, 200, "{body}");
        let cluster: Value = serde_json::from_str(&body).unwrap();
        cluster["members"].as_array().unwrap().clone()
    };
    await_that("each member has been heard", || {
        members().iter().all(|member| {
            let condition = &member["condition"];
            condition["version"] == env!("CARGO_PKG_VERSION")
                && condition["no_room"] == false
                && condition["last_fsync_us"].as_u64() > Some(0)
                && condition["age_ms"].as_u64() < Some(2_000)
        })
    });
    let pid = nodes[2]["pid"].as_i64().unwrap();
    signal(pid.try_into().unwrap(), rustix::process::Signal::KILL);
    let gone = &nodes[2]["name"];
    await_that("the one that is gone is not heard", || {
        let members = members();
        let lost = members.iter().find(|member| member["name"] == *gone);
        // A leader that has never heard it knows nothing of it.
        lost.is_some_and(|lost| {
            lost["condition"]["age_ms"]
                .as_u64()
                .is_none_or(|age| age > 2_000)
        }) && members
            .iter()
            .filter(|member| member["condition"]["age_ms"].as_u64() < Some(2_000))
            .count()
            >= 2
    });
    let Some(mut browser) = Browser::start("the console") else {
        return;
    };
    browser.visit(&format!("http://{http}/console/#cluster"));
    let row = |browser: &mut Browser, number: usize| {
        browser.text(&format!(
            "document.querySelectorAll('main tbody tr')[{number}].innerText"
        ))
    };
    browser.until("document.querySelectorAll('main tbody tr').length === 3");
    let (here, lost) = (row(&mut browser, 0), row(&mut browser, 2));
    assert!(here.contains(env!("CARGO_PKG_VERSION")), "{here}");
    assert!(
        here.contains("has room, fsync ") && here.contains("now"),
        "{here}"
    );
    assert!(lost.contains(" ago") || lost.contains("unknown"), "{lost}");
    // One more that fails would stop the cluster, and an idle one lacks no entry.
    browser.until("document.getElementById('verdict').textContent === 'Degraded'");
    let reason = browser.text("document.getElementById('reason').textContent");
    assert!(reason.contains(gone.as_str().unwrap()), "{reason}");
    picture(&mut browser, "console-members.png");
}
