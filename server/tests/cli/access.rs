//! `access`: who may do what, against a running node in each mode.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use ringfence_testkit::ports::Port;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Said, await_that, ringfence};

/// A cluster of one whose data directory the test knows.
pub(crate) struct Node {
    pub(crate) process: Child,
    pub(crate) client: String,
    pub(crate) http: String,
    pub(crate) dir: TempDir,
    ports: [Port; 3],
}

impl Node {
    pub(crate) fn start(flags: &[&str]) -> Self {
        let ports = [(); 3].map(|()| Port::any());
        let dir = tempfile::tempdir().unwrap();
        let process = Self::spawn(dir.path(), &ports, flags);
        let [client, _, http] = ports.each_ref().map(|port| port.address().to_string());
        let node = Self {
            process,
            client,
            http,
            dir,
            ports,
        };
        node.serves();
        node
    }

    /// Starts the node again, which has ended, with these flags.
    pub(crate) fn start_again(&mut self, flags: &[&str]) {
        self.process = Self::spawn(self.dir.path(), &self.ports, flags);
        self.serves();
    }

    fn spawn(dir: &Path, ports: &[Port; 3], flags: &[&str]) -> Child {
        let at = ports.each_ref().map(|port| port.address().to_string());
        let file = |name: &str| {
            let mut options = std::fs::File::options();
            options.create(true).append(true).open(dir.join(name))
        };
        ringfence()
            .args(["serve", "--name", "n1", "--token-floor=0"])
            .args(["--listen-client", &at[0], "--listen-peer", &at[1]])
            .args(["--listen-http", &at[2], "--wal-segment-bytes=1048576"])
            .args(["--initial-cluster", &format!("n1={}", at[1])])
            .args(flags)
            .arg("--data-dir")
            .arg(dir.join("data"))
            .stdout(file("out").unwrap())
            .stderr(file("log").unwrap())
            .spawn()
            .unwrap()
    }

    fn serves(&self) {
        await_that("the cluster of one knows rights", || {
            let status = self.run(&["cluster", "status"]);
            let level = status.code.filter(|code| *code == 0);
            level.is_some() && status.objects()[0]["level"].as_u64() >= Some(4)
        });
    }

    pub(crate) fn asked(&self, endpoint: &str, arguments: &[&str]) -> Command {
        let mut command = ringfence();
        command
            .env("RINGFENCE_ENDPOINTS", endpoint)
            .args(["--timeout", "3s"])
            .args(arguments);
        command
    }

    /// A command without any credential, with `--json`.
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        let mut command = self.asked(&self.client, &["--json"]);
        command.args(arguments).output().unwrap().into()
    }

    /// The same with the output that people get.
    pub(crate) fn say(&self, arguments: &[&str]) -> Said {
        self.asked(&self.client, arguments).output().unwrap().into()
    }

    /// A command by the socket in the data directory.
    pub(crate) fn local(&self, arguments: &[&str]) -> Said {
        let socket = self.dir.path().join("data/admin.sock");
        let mut command = self.asked(&format!("unix:{}", socket.display()), &["--json"]);
        command.args(arguments).output().unwrap().into()
    }

    /// A command that shows a token, with `--json`.
    pub(crate) fn with_token(&self, file: &Path, arguments: &[&str]) -> Said {
        let mut command = self.asked(&self.client, &["--json"]);
        command.env("RINGFENCE_TOKEN_FILE", file).args(arguments);
        command.output().unwrap().into()
    }

    /// Writes a text to a file of its own.
    pub(crate) fn file(&self, name: &str, text: &str) -> std::path::PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

#[track_caller]
pub(crate) fn refused(said: &Said, code: i32, reason: &str) {
    let seen = (said.code, said.reason());
    assert_eq!(seen, (Some(code), reason.to_owned()), "{said:?}");
    assert_eq!(said.out, "");
}

pub(crate) fn texts(value: &Value) -> Vec<String> {
    let rules = value.as_array().unwrap().iter();
    let text = |rule: &Value| {
        let names = rule["names"].as_str().unwrap_or("-");
        let (of, verb) = (rule["principals"].as_str(), rule["verb"].as_str());
        format!("{} {} {names}", of.unwrap(), verb.unwrap())
    };
    rules.map(text).collect()
}

#[test]
fn anonymous_does_not_lock_itself_out_and_may_enforce_once_it_has_the_right() {
    let node = Node::start(&[]);
    assert_eq!(node.run(&["access", "mode"]).object()["mode"], "off");
    let me = node.run(&["access", "whoami"]).object();
    assert_eq!(
        (&me["principal"], &me["mode"]),
        (&json!("anonymous"), &json!("off"))
    );

    let lock_out = node.run(&["access", "mode", "enforced"]);
    refused(&lock_out, 2, "INVALID_ARGUMENT");
    let message = lock_out.error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("admin"), "{message}");
    assert_eq!(node.run(&["access", "mode"]).object()["mode"], "off");

    let granted = node.run(&["access", "grant", "anonymous", "admin"]);
    assert_eq!(granted.object()["changed"], true);
    let again = node.run(&["access", "grant", "anonymous", "admin"]);
    assert_eq!(again.object()["changed"], false);
    let enforced = node.run(&["access", "mode", "enforced"]).object();
    assert_eq!(
        (&enforced["mode"], &enforced["changed"]),
        (&json!("enforced"), &json!(true))
    );

    // Without any lease there is no use for a session.
    let denied = node.run(&["lease", "acquire", "jobs/a"]);
    refused(&denied, 77, "PERMISSION_DENIED");
    let granted = node.run(&["access", "grant", "anonymous", "acquire", "jobs/*"]);
    assert_eq!(granted.code, Some(0), "{granted:?}");
    node.run(&["lease", "acquire", "jobs/a"]).object();

    // What it has no rule for is refused, with the rule that it would take.
    let denied = node.run(&["lease", "acquire", "other/a"]);
    refused(&denied, 77, "PERMISSION_DENIED");
    let error = denied.error();
    assert_eq!(
        (&error["principal"], &error["verb"], &error["names"]),
        (&json!("anonymous"), &json!("acquire"), &json!("other/a"))
    );
    let told = node.say(&["lease", "acquire", "other/a"]);
    assert_eq!(told.code, Some(77), "{told:?}");
    let first = told.err.lines().next().unwrap();
    for part in ["anonymous", "acquire", "other/a", "access grant"] {
        assert!(first.contains(part), "`{part}` is not in: {first}");
    }

    // Nor does it take the right from itself.
    let revoked = node.run(&["access", "revoke", "anonymous", "admin"]);
    refused(&revoked, 2, "INVALID_ARGUMENT");
}

#[test]
fn a_rule_that_makes_everybody_an_administrator_is_granted_with_a_warning() {
    let node = Node::start(&[]);
    let said = node.say(&["access", "grant", "*", "admin"]);
    assert_eq!(
        (said.code, said.out.as_str()),
        (Some(0), "granted: * admin\n")
    );
    let warnings = said
        .err
        .lines()
        .filter(|line| line.starts_with("warning: "));
    let warnings: Vec<&str> = warnings.collect();
    assert_eq!(warnings.len(), 1, "{said:?}");
    assert!(warnings[0].contains("ringfence access revoke '*' admin"));
    let narrow = node.say(&["access", "grant", "token:ops", "admin"]);
    assert!(!narrow.err.contains("warning"), "{narrow:?}");
}

#[test]
fn whoever_reaches_the_data_directory_sets_rights_first_and_comes_back_in() {
    let node = Node::start(&[]);
    let me = node.local(&["access", "whoami"]).object();
    assert_eq!(me["principal"], "local");
    node.local(&["access", "mode", "enforced"]).object();

    for command in [
        &["access", "list"][..],
        &["access", "mode", "off"],
        &["access", "ban", "token:x"],
        &["access", "token", "list"],
        &["access", "test", "--as", "token:x", "admin"],
        &["lease", "acquire", "jobs/a"],
        &["lease", "list"],
        &["cluster", "configure", "--ttl-max", "10m"],
    ] {
        refused(&node.run(command), 77, "PERMISSION_DENIED");
    }
    // To know who one is takes no right.
    assert_eq!(
        node.run(&["access", "whoami"]).object()["principal"],
        "anonymous"
    );
    let own = node.run(&["access", "test", "acquire", "jobs/a"]);
    assert_eq!(
        (own.code, &own.objects()[0]["allowed"]),
        (Some(1), &json!(false))
    );

    let status = node.local(&["cluster", "status"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    node.local(&["access", "mode", "off"]).object();
    node.run(&["lease", "acquire", "jobs/a"]).object();
}

#[test]
fn a_token_proves_its_bearer_until_it_is_revoked_or_banned() {
    let node = Node::start(&[]);
    let made = node.local(&["access", "token", "create", "deploy", "--ttl", "1d"]);
    let made = made.object();
    assert_eq!(made["principal"], "token:deploy");
    let token = made["token"].as_str().unwrap();
    assert!(
        token.starts_with(&format!("rft_{}_", made["id"])),
        "{token}"
    );
    let file = node.file("token", &format!("{token}\n"));
    node.local(&["access", "mode", "enforced"]).object();

    let me = node.with_token(&file, &["access", "whoami"]).object();
    assert_eq!(me["principal"], "token:deploy");
    refused(
        &node.with_token(&file, &["lease", "acquire", "deploy/web"]),
        77,
        "PERMISSION_DENIED",
    );
    node.local(&["access", "grant", "token:deploy", "acquire", "deploy/*"]);
    node.with_token(&file, &["lease", "acquire", "deploy/web"])
        .object();
    let tested = ["access", "test", "--as", "token:deploy", "acquire"];
    let yes = node.local(&[&tested[..], &["deploy/*"]].concat());
    assert_eq!(yes.object()["rule"]["names"], "deploy/*");
    let no = node.local(&[&tested[..], &["other/x"]].concat());
    assert_eq!(
        (no.code, &no.objects()[0]["allowed"]),
        (Some(1), &json!(false))
    );

    // The secret stands nowhere but in what was printed.
    let listed = node.local(&["access", "token", "list"]);
    // A secret may contain `_` itself.
    let secret = token.splitn(3, '_').nth(2).unwrap();
    assert!(listed.out.contains("token:deploy"), "{listed:?}");
    assert!(!listed.out.contains(secret), "{listed:?}");
    let log = std::fs::read_to_string(node.dir.path().join("log")).unwrap();
    assert!(!log.contains(secret));

    node.local(&["access", "ban", "token:deploy"]).object();
    let banned = node.with_token(&file, &["lease", "acquire", "deploy/web"]);
    refused(&banned, 77, "PERMISSION_DENIED");
    assert!(
        banned.error()["message"]
            .as_str()
            .unwrap()
            .contains("banned")
    );
    let test = node.local(&[&tested[..], &["deploy/*"]].concat());
    assert_eq!(
        (test.code, &test.objects()[0]["banned"]),
        (Some(1), &json!(true))
    );
    node.local(&["access", "unban", "token:deploy"]).object();
    node.with_token(&file, &["lease", "list", "--prefix", "deploy/"]);

    node.local(&["access", "token", "revoke", "deploy"])
        .object();
    let revoked = node.with_token(&file, &["lease", "acquire", "deploy/web"]);
    refused(&revoked, 77, "UNAUTHENTICATED");
    // It says so at once, however long it may take.
    let mut patient = ringfence();
    patient.args(["--timeout=300s", "--endpoints", &node.client]);
    patient
        .arg("--token-file")
        .arg(&file)
        .args(["access", "whoami"]);
    let mut patient = patient.stderr(Stdio::null()).spawn().unwrap();
    await_that("a refused command ends", || {
        patient.try_wait().unwrap().is_some()
    });
    assert_eq!(patient.wait().unwrap().code(), Some(77));
    refused(
        &node.local(&["access", "token", "revoke", "deploy"]),
        1,
        "NOT_FOUND",
    );
    let none = node.file("empty", "\n");
    refused(
        &node.with_token(&none, &["access", "whoami"]),
        2,
        "INVALID_ARGUMENT",
    );
}

#[test]
fn a_token_is_printed_alone_for_a_shell_and_everything_else_on_stderr() {
    let node = Node::start(&[]);
    let made = node.say(&["access", "token", "create", "ci"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let lines: Vec<&str> = made.out.lines().collect();
    assert_eq!(lines.len(), 1, "{made:?}");
    assert!(lines[0].starts_with("rft_"), "{made:?}");
    assert!(made.err.contains("token:ci"), "{made:?}");
}

#[test]
fn a_cluster_formed_with_a_mode_begins_in_it() {
    for mode in ["permissive", "enforced"] {
        let node = Node::start(&["--access", mode]);
        await_that("the mode is set", || {
            node.run(&["access", "mode"]).object()["mode"] == mode
        });
        let acquired = node.run(&["lease", "acquire", "jobs/a"]);
        match mode {
            "enforced" => {
                refused(&acquired, 77, "PERMISSION_DENIED");
                // The narrowest rule that would do, also where no session could be opened.
                assert!(
                    acquired.err.contains("anonymous acquire jobs/a"),
                    "{acquired:?}"
                );
            }
            _ => drop(acquired.object()),
        }
        assert_eq!(node.local(&["access", "list"]).object()["mode"], mode);
    }
}

#[test]
fn a_mode_that_is_given_at_a_restart_counts_while_rights_were_never_changed() {
    let mode = |node: &Node| node.local(&["access", "mode"]).object()["mode"].clone();
    let restarted = |changes: &[&[&str]]| {
        let mut node = Node::start(&[]);
        for change in changes {
            node.local(change).object();
        }
        node.process.kill().unwrap();
        node.process.wait().unwrap();
        node.start_again(&["--access", "permissive"]);
        node
    };
    let never = restarted(&[]);
    await_that("the mode is set", || mode(&never) == "permissive");
    let changed = restarted(&[&["access", "grant", "token:a", "observe", "*"]]);
    let says = |node: &Node| {
        let log = std::fs::read_to_string(node.dir.path().join("log")).unwrap();
        log.contains("--access permissive does not count")
    };
    await_that("it says so", || says(&changed));
    assert_eq!(mode(&changed), "off");
    let taken_back = restarted(&[
        &["access", "mode", "permissive"],
        &["access", "mode", "off"],
    ]);
    await_that("it says so", || says(&taken_back));
    assert_eq!(mode(&taken_back), "off");
    assert!(!says(&never));
}

#[test]
fn limits_of_principals_are_shown_and_changed() {
    let node = Node::start(&[]);
    let shown = node.local(&["access", "limits"]).object();
    assert_eq!(
        (&shown["sessions"], &shown["leases"]),
        (&json!(100_000), &json!(1_000_000))
    );
    let set = node
        .local(&["access", "limits", "--sessions", "5"])
        .object();
    assert_eq!(
        (&set["sessions"], &set["leases"]),
        (&json!(5), &json!(1_000_000))
    );
    assert_eq!(node.local(&["access", "limits"]).object()["sessions"], 5);
}

#[test]
fn a_holder_whose_token_is_replaced_in_time_keeps_its_lease() {
    let node = Node::start(&[]);
    let create = || {
        let made = node
            .local(&["access", "token", "create", "deploy"])
            .object();
        made["token"].as_str().unwrap().to_owned()
    };
    let file = node.file("token", &create());
    node.local(&["access", "grant", "token:deploy", "acquire", "deploy/*"])
        .object();
    node.local(&["access", "mode", "enforced"]).object();

    let marker = node.dir.path().join("begun");
    let script = format!("echo $RINGFENCE_TOKEN > {}; sleep 12", marker.display());
    let mut command = node.asked(&node.client, &["lock", "deploy/web", "--ttl", "6s"]);
    let mut holder = command
        .env("RINGFENCE_TOKEN_FILE", &file)
        .args(["--", "sh", "-c", &script])
        .spawn()
        .unwrap();
    await_that("the work has begun", || marker.exists());

    // The token that it showed is worth nothing; its keep-alives are refused until it shows this.
    node.local(&["access", "token", "revoke", "deploy"])
        .object();
    std::fs::write(&file, create()).unwrap();

    let ended = holder.wait().unwrap();
    assert_eq!(ended.code(), Some(0), "the lease was lost meanwhile");
}
