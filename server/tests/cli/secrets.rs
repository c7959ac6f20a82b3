//! No secret stands where other processes or people can read it: command lines, environments, logs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use serde_json::json;

use crate::access::Node;
use crate::calls::{ask, json_of};
use crate::harness::{Said, await_that, pid, ringfence, run};
use crate::usage::commands_below;

/// The processes below this one, itself among them.
fn family(of: i32) -> BTreeSet<i32> {
    let mut found = BTreeSet::from([of]);
    loop {
        let before = found.len();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat.rsplit(") ").next().unwrap_or_default();
            let parent = parent.split(' ').nth(1).and_then(|ppid| ppid.parse().ok());
            if parent.is_some_and(|parent| found.contains(&parent)) {
                found.insert(pid);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// Asserts that no command line and no environment of these processes has it.
#[track_caller]
fn assert_hidden(secret: &str, of: i32) {
    for pid in family(of) {
        for file in ["cmdline", "environ"] {
            let path = format!("/proc/{pid}/{file}");
            let bytes = std::fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
            assert!(!text.contains(secret), "{path}: {text}");
        }
    }
}

#[track_caller]
fn assert_not_in(secret: &str, path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().find(|line| line.contains(secret));
    assert_eq!(line, None, "{}", path.display());
}

/// The middle one of the three parts of a session's handle.
fn secret_of(handle: &str) -> String {
    let secret = handle.split('.').nth(1);
    secret.expect("NUMBER.SECRET.CLUSTER").to_owned()
}

#[test]
fn no_secret_stands_in_a_command_line_an_environment_or_a_log_at_trace_level() {
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit.jsonl");
    let flags = ["--log=trace", "--audit-log", audit.to_str().unwrap()];
    let node = Node::start(&flags);
    let made = node
        .local(&["access", "token", "create", "deploy"])
        .object();
    let token = made["token"].as_str().unwrap().to_owned();
    let secret = token.splitn(3, '_').nth(2).unwrap().to_owned();
    let file = node.file("deploy.token", &token);
    node.local(&["access", "grant", "token:deploy", "acquire", "deploy/*"])
        .object();
    node.local(&["access", "mode", "enforced"]).object();

    // A holder whose work runs as a child, and sees what it has to see and no more.
    let (begun, log) = (folder.path().join("begun"), folder.path().join("lock.log"));
    let script = format!("echo begun > {}; sleep 600", begun.display());
    let mut holder = node.asked(&node.client, &["lock", "deploy/web", "--token-file"]);
    let holder = holder.arg(&file).args(["--", "sh", "-c", &script]);
    let log_file = std::fs::File::create(&log).unwrap();
    let holder = holder
        .env("RINGFENCE_LOG", "trace")
        .env("RUST_LOG", "trace");
    let holder = holder
        .stdout(log_file.try_clone().unwrap())
        .stderr(log_file);
    let mut holder = holder.stdin(Stdio::null()).spawn().unwrap();
    await_that("the work has begun", || begun.exists());
    assert_hidden(&secret, pid(&holder));
    assert_hidden(&secret, pid(&node.process));

    // Sessions have secrets too; a command prints its own, for scripts, and logs none.
    let opened = node.with_token(&file, &["session", "open", "--ttl", "60s"]);
    let handle = opened.object()["session"].as_str().unwrap().to_owned();
    let session_secret = secret_of(&handle);
    assert_eq!(session_secret.len(), 32, "{handle}");
    let wrong = node.file("wrong.token", &format!("{}x", &token[..token.len() - 1]));
    let refused = node.with_token(&wrong, &["lease", "acquire", "deploy/db"]);
    assert_eq!(refused.code, Some(77), "{refused:?}");
    assert!(!refused.err.contains(&secret[..20]), "{refused:?}");
    // The same over HTTP: a handle that is good, one that is none, and one of the node's making.
    let keep = json!({ "session": handle });
    let kept = ask(&node, Some(&token), "POST", "/v1/keep-alive", &keep);
    assert_eq!(kept.status, 200, "{kept:?}");
    let malformed = json!({ "session": format!("{handle}0"), "name": "deploy/db", "token": 1 });
    let refused = ask(&node, Some(&token), "POST", "/v1/release", &malformed);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(!refused.body.contains(&session_secret), "{refused:?}");
    let wanted = json!({ "name": "deploy/db", "ttl": "60s" });
    let granted = ask(&node, Some(&token), "POST", "/v1/acquire", &wanted);
    let made = json_of(&granted)["session"].as_str().unwrap().to_owned();
    let made_secret = secret_of(&made);
    let listed = node.local(&["session", "list"]);
    assert!(!listed.out.contains(&session_secret), "{listed:?}");

    holder.kill().unwrap();
    holder.wait().unwrap();
    // The work ends with its holder; what the node logs of that stands there soon.
    let node_log = node.dir.path().join("log");
    await_that("the node logs at trace level", || {
        std::fs::read_to_string(&node_log).is_ok_and(|log| log.contains("TRACE"))
    });
    await_that("the acts are written", || {
        std::fs::read_to_string(&audit).is_ok_and(|log| log.contains("mode enforced"))
    });
    for hidden in [&secret[..20], &session_secret, &made_secret] {
        for path in [&node_log, &log, &audit] {
            assert_not_in(hidden, path);
        }
    }
}

/// Whether this line of a shell shows the handle of a session to all who list processes.
fn passes_a_handle(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let command = words.iter().position(|word| word.ends_with("ringfence"));
    let words = command.map_or(&[][..], |at| &words[at..]);
    let is_value = |word: Option<&&str>| {
        word.is_some_and(|word| {
            !word.starts_with(['-', '&', '#', '|', ';', '>']) && !word.starts_with("2>")
        })
    };
    let by_option = |at: usize| words[at] == "--session" || words[at].starts_with("--session=");
    let by_place = |at: usize| {
        let is_command = matches!(words[at - 1..=at], ["session", "keep-alive" | "close"]);
        is_command && is_value(words.get(at + 1))
    };
    (1..words.len()).any(|at| by_option(at) || by_place(at))
}

/// All commands' examples, with the command in front.
fn examples() -> Vec<String> {
    let mut found = Vec::new();
    let mut paths: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(path) = paths.pop() {
        let words: Vec<&str> = path.iter().map(String::as_str).collect();
        let help = run(&[&words[..], &["--help"]].concat()).out;
        let shown = help.split_once("\nExample").unwrap_or_default().1;
        found.extend(
            shown
                .lines()
                .map(|line| format!("{}:{line}", path.join(" "))),
        );
        for below in commands_below(&words) {
            paths.push([&path[..], &[below]].concat());
        }
    }
    found
}

/// The lines of all shell blocks in the documents below this folder, with the document in front.
fn shell_lines(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if name.starts_with('.') || name == "target" || name == "node_modules" {
            continue;
        }
        if path.is_dir() {
            shell_lines(&path, found);
        } else if name.ends_with(".md") {
            let text = std::fs::read_to_string(&path).unwrap();
            let blocks = text.split("```").skip(1).step_by(2);
            let shells =
                blocks.filter(|block| block.starts_with("sh") || block.starts_with("bash"));
            let lines = shells.flat_map(|block| block.lines().skip(1));
            found.extend(lines.map(|line| format!("{}:{line}", path.display())));
        }
    }
}

#[test]
fn no_example_passes_a_session_as_an_argument() {
    for shown in [
        r#"  ringfence session keep-alive "$HANDLE" &"#,
        "ringfence session close 1.00",
        r#"ringfence lease release a 42 --session "$HANDLE""#,
        "x=$(target/debug/ringfence --json lease acquire a --session=$one)",
    ] {
        assert!(passes_a_handle(shown), "{shown}");
    }
    for hidden in ["ringfence session keep-alive &", "ringfence session close"] {
        assert!(!passes_a_handle(hidden), "{hidden}");
    }
    let mut lines = examples();
    let of_help = lines.len();
    shell_lines(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join(".."),
        &mut lines,
    );
    assert!(of_help > 100 && lines.len() > of_help + 100, "{of_help}");
    let passing = lines.iter().filter(|line| passes_a_handle(line));
    assert_eq!(passing.collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn a_malformed_handle_is_refused_without_its_secret() {
    let secret = "00f102030405060708090a0b0c0d0e0f";
    let handles = [
        format!("1..{secret}"),
        format!("1.{secret}0"),
        format!("1.{secret}.abc"),
        format!("0.{secret}"),
        format!("1{secret}"),
        secret.to_owned(),
        format!("session 1.{secret}z"),
    ];
    let refused = |said: &Said, fault: &str| {
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(!said.err.contains(&secret[..8]), "{}", said.err);
        assert!(said.err.contains(fault), "{fault}: {}", said.err);
    };
    for handle in &handles {
        for command in [
            &["session", "close", handle][..],
            &["session", "keep-alive", handle],
            &["lease", "release", "a", "1", "--session", handle],
            &["--json", "lease", "acquire", "a", "--session", handle],
        ] {
            refused(&run(command), "characters)");
            refused(&run(command), "not a session handle: ");
        }
        let mut by_environment = ringfence();
        by_environment.env("RINGFENCE_SESSION", handle);
        let said = by_environment.args(["session", "close"]).output().unwrap();
        refused(&said.into(), "not a session handle: ");
    }
    // A good one where another value belongs, or none.
    let good = format!("1.{secret}");
    for command in [
        &["lease", "release", "a", &good][..],
        &["session", "close", &good, &good],
        &["session", &good],
        &["access", "mode", &good],
    ] {
        refused(&run(command), "1.… (34 characters)");
    }
    refused(&run(&["session", "get", &format!("0.{secret}")]), "0.… (");
}

/// The mistake that ends in the logs of a pipeline.
#[test]
fn a_secret_in_the_place_of_its_file_is_not_repeated() {
    let random = "0123456789abcdefABCDEF0123456789abcdefABCDEF0123456789abcdefABCD";
    let kubeconfig = "apiVersion: v1\nusers: [{user: {token: hunter2}}]\n";
    let cases: [&[&str]; 7] = [
        &["lease", "list", "--token-file", "rft_5_hunter2hunter2"],
        &["doctor", "--token-file", "eyJhbGciOiJ.hunter2.hunter2"],
        &["lease", "list", "--cacert", random],
        &["lease", "list", "--key", random, "--cert", "n1.pem"],
        &["serve", "--kube-pods", "--kubeconfig", kubeconfig],
        &["serve", "--restore", random, "--digest", random],
        &["serve", "--config", random],
    ];
    for case in cases {
        let said: Said = ringfence().args(case).output().unwrap().into();
        assert_ne!(said.code, Some(0), "{case:?}");
        let all = format!("{}{}", said.out, said.err);
        assert!(!all.contains("hunter2") && !all.contains(random), "{all}");
        assert!(all.contains("content of a file perhaps"), "{all}");
    }
    let said: Said = ringfence()
        .args(["lease", "list", "--token-file", "no/such.token"])
        .output()
        .unwrap()
        .into();
    assert!(said.err.contains("no/such.token"), "{said:?}");
}
