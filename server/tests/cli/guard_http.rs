//! `ringfence guard http` as a process: what it says at its start, what it refuses, and how it ends. What it
//! promises is tested in `crates/proxy`.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

use ringfence_testkit::ports::Port;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Dev, await_that, ringfence, run};

/// A service that answers each request with its first line.
fn service() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut bytes = [0; 4096];
            let count = connection.read(&mut bytes).unwrap();
            let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
            let line = text.lines().next().unwrap_or_default();
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length:";
            let answer = format!("{head} {}\r\n\r\n{line}", line.len());
            // The caller may be gone.
            connection.write_all(answer.as_bytes()).ok();
        }
    });
    format!("http://{address}")
}

struct Proxy {
    child: Child,
    port: Port,
}

impl Proxy {
    fn start(folder: &Path, options: &[&str]) -> Self {
        let port = Port::any();
        let listen = format!("127.0.0.1:{}", port.number());
        let upstream = service();
        let marks = folder.join("marks.db");
        let mut command = ringfence();
        command
            .args([
                "guard",
                "http",
                "--listen",
                &listen,
                "--upstream",
                &upstream,
            ])
            .arg("--marks")
            .arg(marks)
            .args(options)
            .stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let proxy = Self { child, port };
        await_that("it listens", || TcpStream::connect(&listen).is_ok());
        proxy
    }

    /// The status and the whole answer.
    fn post(&self, path: &str, fence: Option<(&str, u64)>) -> (u16, String) {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port.number())).unwrap();
        let fence = fence.map_or(String::new(), |(lease, token)| {
            format!("ringfence-lease: {lease}\r\nringfence-token: {token}\r\n")
        });
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\n{fence}connection: close\r\ncontent-length: 0\r\n\r\n"
        );
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        (answer[9..12].parse().unwrap(), answer)
    }

    fn ends_by(&mut self, signal: Signal) -> Option<i32> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn it_stands_before_a_service_and_ends_by_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let options = [
        "--prefix",
        "bank/",
        "--route",
        "/healthz=optional",
        "--drain",
        "200ms",
        "--request-max",
        "3s",
    ];
    let mut proxy = Proxy::start(folder.path(), &options);
    let (status, answer) = proxy.post("/deposit", Some(("bank/x", 9)));
    assert_eq!(status, 200, "{answer}");
    assert!(answer.ends_with("POST /deposit HTTP/1.1"), "{answer}");
    let (status, answer) = proxy.post("/deposit", Some(("bank/x", 8)));
    assert_eq!(status, 412, "{answer}");
    assert!(answer.contains("ringfence-stale: bank/x#8"), "{answer}");
    assert_eq!(proxy.post("/deposit", None).0, 428);
    assert_eq!(proxy.post("/deposit", Some(("shop/x", 9))).0, 400);
    assert_eq!(proxy.post("/healthz", None).0, 200);

    // Another one cannot have its marks.
    let marks = folder.path().join("marks.db");
    let marks = marks.to_str().unwrap();
    let upstream = [
        "guard",
        "http",
        "--upstream",
        "http://127.0.0.1:1",
        "--marks",
    ];
    let second = run(&[&upstream[..], &[marks, "--listen", "127.0.0.1:0"]].concat());
    assert_eq!(second.code, Some(71), "{second:?}");
    assert!(
        second.err.contains("in use: one proxy stands before"),
        "{second:?}"
    );

    // It has nothing inside, so the next one lets in at once.
    assert_eq!(proxy.ends_by(Signal::TERM), Some(0));
    let mut proxy = Proxy::start(folder.path(), &options);
    assert_eq!(proxy.post("/deposit", Some(("bank/x", 8))).0, 412);
    assert_eq!(proxy.post("/deposit", Some(("bank/x", 9))).0, 200);

    // Killed, it has said nothing about what was inside.
    assert_eq!(proxy.ends_by(Signal::KILL), None);
    let proxy = Proxy::start(folder.path(), &options);
    assert_eq!(proxy.post("/deposit", Some(("bank/x", 8))).0, 412);
    for token in [9, 10] {
        let (status, answer) = proxy.post("/deposit", Some(("bank/x", token)));
        assert_eq!(status, 503, "{answer}");
        assert!(answer.contains("DRAINING"), "{answer}");
    }
    await_that("it lets in", || {
        proxy.post("/deposit", Some(("bank/x", 10))).0 == 200
    });
}

#[test]
fn paths_and_methods_that_may_be_others_lead_around_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--safe-methods", "--route", "/admin/*=lease:bank/admin"];
    let proxy = Proxy::start(folder.path(), &options);
    let fence = Some(("bank/x", 9));
    assert_eq!(proxy.post("/a", fence).0, 200);
    for path in [
        "/admin/x",
        "/Admin/x",
        "//admin/x",
        "/a/../admin/x",
        "/%61dmin/x",
    ] {
        assert_eq!(proxy.post(path, fence).0, 400, "{path}");
    }
}

#[test]
fn it_starts_without_the_cluster_that_it_follows_and_the_marks_decide() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = Port::any();
    let endpoints = format!("127.0.0.1:{}", nowhere.number());
    let follow = ["--endpoints", &endpoints, "--timeout", "1s", "--follow"];
    let proxy = Proxy::start(folder.path(), &follow);
    assert_eq!(proxy.post("/a", Some(("bank/x", 9))).0, 200);
    assert_eq!(proxy.post("/a", Some(("bank/x", 8))).0, 412);
}

#[test]
fn it_follows_what_the_cluster_grants() {
    let dev = Dev::start(1);
    let folder = tempfile::tempdir().unwrap();
    let opened = dev.run(&["session", "open", "--ttl", "1m"]).object();
    let handle = opened["session"].as_str().unwrap();
    let acquired = dev
        .run(&["lease", "acquire", "bank/x", "--session", handle])
        .object();
    let token = acquired["token"].as_u64().unwrap();
    let endpoints = dev.endpoints();
    let follow = ["--endpoints", &endpoints, "--follow"];
    let proxy = Proxy::start(folder.path(), &follow);
    assert_eq!(proxy.post("/a", Some(("bank/x", token))).0, 200);
    // It was never granted; the marks alone would admit it.
    let (status, answer) = proxy.post("/a", Some(("bank/x", token + 1)));
    assert_eq!(status, 503, "{answer}");
    assert!(answer.contains("UNKNOWN_TOKEN"), "{answer}");
    // Its holder has sent nothing.
    let number = token.to_string();
    dev.run(&["lease", "release", "bank/x", &number, "--session", handle]);
    dev.run(&["lease", "acquire", "bank/x", "--session", handle])
        .object();
    let (status, answer) = proxy.post("/a", Some(("bank/x", token)));
    assert_eq!(status, 412, "{answer}");
}

#[test]
fn what_cannot_work_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let marks = folder.path().join("marks.db");
    let marks = marks.to_str().unwrap();
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &["--upstream", "https://a:1", "--marks", marks],
            2,
            "TLS is not spoken",
        ),
        (
            &["--upstream", "a:1", "--marks", marks],
            2,
            "expected http://HOST:PORT",
        ),
        (&["--upstream", "http://a:1"], 2, "--marks"),
        (&["--request-max", "0s"], 2, "no request takes no time"),
        (
            &["--upstream", "http://a:1", "--marks", ":memory:"],
            71,
            "marks have to outlive",
        ),
        (
            &["--upstream", "http://a:1", "--marks", "/dev/null/x"],
            71,
            "cannot be opened",
        ),
        (
            &[
                "--upstream",
                "http://a:1",
                "--marks",
                marks,
                "--route",
                "a=optional",
            ],
            2,
            "PATTERN begins with",
        ),
        (
            &[
                "--upstream",
                "http://a:1",
                "--marks",
                marks,
                "--route",
                "/a=maybe",
            ],
            2,
            "PATTERN=lease:NAME",
        ),
        (
            &[
                "--upstream",
                "http://a:1",
                "--marks",
                marks,
                "--listen",
                "203.0.113.1:1",
            ],
            71,
            "cannot listen on 203.0.113.1:1",
        ),
        (
            &[
                "--upstream",
                "http://a:1",
                "--marks",
                marks,
                "--listen",
                "127.0.0.1:0",
                "--follow",
                "--endpoints",
                "no port",
            ],
            2,
            "no port",
        ),
    ];
    for (options, code, says) in cases {
        let said = run(&[&["guard", "http"], *options].concat());
        assert_eq!(said.code, Some(*code), "{said:?}");
        assert!(said.err.contains(says), "{says}: {}", said.err);
    }
    std::fs::write(
        marks,
        "no database, but a text that is long enough to be taken for one",
    )
    .unwrap();
    let said = run(&[
        "guard",
        "http",
        "--upstream",
        "http://a:1",
        "--marks",
        marks,
    ]);
    assert_eq!(said.code, Some(71), "{said:?}");
}
