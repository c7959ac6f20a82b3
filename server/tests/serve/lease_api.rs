//! The Lease endpoint with rights, asked by curl: who may read and write, what is refused in the words
//! of Kubernetes, and what a watch shows. Real electors are in the tests' module of the Go client.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use ringfence_testkit::certificates::Authority;
use ringfence_testkit::ports::Port;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::process::{Ports, Process};

pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/shop/leases";
pub(crate) const WEB: &str = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/web";

/// A node with a Lease endpoint, where rights are enforced.
pub(crate) struct Secured {
    pub(crate) node: Process,
    pub(crate) folder: TempDir,
    port: Port,
}

/// What the endpoint answers.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: Value,
}

impl Secured {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let servers = Authority::new("servers");
        let own = servers.sign(&["127.0.0.1"]).save(folder.path(), "node");
        drop(servers.save(folder.path(), "servers"));
        let port = Port::any();
        let flags = [
            format!("--cert-file={}", own.certificate.display()),
            format!("--key-file={}", own.key.display()),
            format!("--listen-lease-api=127.0.0.1:{}", port.number()),
            "--access=enforced".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let node = Process::start(&folder.path().join("data"), Ports::free(), &flags);
        let node = node.ready().await;
        Self { node, folder, port }
    }

    /// An operator's command over the admin socket.
    pub(crate) fn operate(&self, args: &[&str]) -> String {
        let socket = self.folder.path().join("data/admin.sock");
        let endpoint = format!("unix:{}", socket.display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
        command.env_clear().stdin(Stdio::null());
        let done = command.args(["--endpoints", &endpoint]).args(args).output();
        let Output { status, stdout, .. } = done.unwrap();
        assert!(status.success(), "{args:?}");
        String::from_utf8(stdout).unwrap().trim().to_owned()
    }

    /// The token of a new principal with these rules.
    pub(crate) fn principal(&self, name: &str, rules: &[(&str, &str)]) -> String {
        let token = self.operate(&["access", "token", "create", name]);
        for (verb, names) in rules {
            let principal = format!("token:{name}");
            self.operate(&["access", "grant", &principal, verb, names]);
        }
        token
    }

    pub(crate) fn curl(&self, token: Option<&str>, path: &str) -> Command {
        let mut command = Command::new("curl");
        command.stdin(Stdio::null()).args(["-s", "-i", "--cacert"]);
        command.arg(self.folder.path().join("servers.pem"));
        if let Some(token) = token {
            let header = format!("Authorization: Bearer {token}");
            command.args(["-H", &header]);
        }
        command.arg(self.url(path));
        command
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port.number())
    }

    pub(crate) fn ask(
        &self,
        token: Option<&str>,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        let mut command = self.curl(token, path);
        command.args(["-X", method, "--max-time", "20"]);
        if let Some(body) = body {
            let kind = match method {
                "PATCH" => "application/merge-patch+json",
                _ => "application/json",
            };
            command.args(["-H", &format!("Content-Type: {kind}")]);
            command.args(["-d", &body.to_string()]);
        }
        let Output { stdout, .. } = command.output().unwrap();
        let text = String::from_utf8(stdout).unwrap();
        let (headers, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = headers.split(' ').nth(1).and_then(|code| code.parse().ok());
        Answer {
            status: status.unwrap_or_else(|| panic!("{method} {path}: {text}")),
            headers: headers.to_lowercase(),
            body: serde_json::from_str(body).unwrap_or_default(),
        }
    }
}

pub(crate) fn web(holder: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": "web" },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 6 },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_of_any_size_is_answered_or_refused() {
    let node = Secured::start().await;
    let reader = node.principal("reader", &[("observe", "k8s/shop/*")]);
    for (number, expected) in [
        ("0", 200),
        ("1", 200),
        ("4294967296", 200),
        ("18446744073709551615", 200),
        ("18446744073709551616", 400),
        ("-1", 400),
    ] {
        let list = format!("{LEASES}?limit={number}");
        let answer = node.ask(Some(&reader), "GET", &list, None);
        assert_eq!(answer.status, expected, "{list}: {}", answer.body);
    }
    assert!(
        !node.node.logged().contains("panicked"),
        "{}",
        node.node.logged()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_of_the_lease_endpoint_needs_its_right() {
    let node = Secured::start().await;
    let electors = node.principal("electors", &[("acquire", "k8s/shop/*")]);
    let reader = node.principal("reader", &[("observe", "k8s/shop/*")]);
    let operator = node.principal("operator", &[("revoke", "k8s/shop/*"), ("observe", "*")]);
    let stranger = node.principal("stranger", &[("acquire", "k8s/bank/*")]);
    let patch = json!({ "metadata": { "annotations": { "team": "a" } } });
    let watch = format!("{LEASES}?watch=true&timeoutSeconds=1");
    let mut stale = web("two");
    stale["metadata"]["resourceVersion"] = json!("1");

    // It outlasts the calls below on a machine that is busy.
    let mut held = web("one");
    held["spec"]["leaseDurationSeconds"] = json!(60);
    let made = node.ask(Some(&electors), "POST", LEASES, Some(&held));
    assert_eq!(made.status, 201, "{}", made.body);
    assert!(
        made.headers.contains("ringfence-fence: k8s/shop/web#"),
        "{}",
        made.headers
    );
    assert!(
        made.headers.contains("ringfence-valid-for: 87300"),
        "{}",
        made.headers
    );

    // Of each call: what is asked, and the status without a credential, for a stranger, a reader and an elector.
    let cases: [(&str, &str, Option<&Value>, [u16; 4]); 7] = [
        ("GET", WEB, None, [403, 403, 200, 200]),
        ("GET", LEASES, None, [403, 403, 200, 200]),
        ("GET", &watch, None, [403, 403, 200, 200]),
        ("POST", LEASES, Some(&web("two")), [403, 403, 403, 409]),
        ("PUT", WEB, Some(&stale), [403, 403, 403, 409]),
        ("PATCH", WEB, Some(&patch), [403, 403, 403, 200]),
        ("DELETE", WEB, None, [403, 403, 403, 403]),
    ];
    let callers = [None, Some(&stranger), Some(&reader), Some(&electors)];
    for (method, path, body, statuses) in cases {
        for (caller, expected) in callers.into_iter().zip(statuses) {
            let token = caller.map(String::as_str);
            let answer = node.ask(token, method, path, body);
            assert_eq!(answer.status, expected, "{method} {path}: {}", answer.body);
        }
    }
    // An absent name is refused as one that is there.
    for path in [
        WEB,
        "/apis/coordination.k8s.io/v1/namespaces/shop/leases/absent",
    ] {
        let answer = node.ask(Some(&stranger), "GET", path, None);
        assert_eq!(answer.status, 403);
        assert_eq!(answer.body["reason"], "Forbidden");
    }
    let deleted = node.ask(Some(&operator), "DELETE", WEB, None);
    assert_eq!(deleted.status, 200, "{}", deleted.body);
    assert_eq!(node.ask(Some(&reader), "GET", WEB, None).status, 404);
    // Its holder may believe for one more TTL.
    let refused = node.ask(Some(&electors), "POST", LEASES, Some(&web("two")));
    assert_eq!(refused.status, 409, "{}", refused.body);
    node.operate(&["access", "ban", "token:electors"]);
    assert_eq!(node.ask(Some(&electors), "GET", LEASES, None).status, 403);
    drop(node.node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_based_on_a_version_and_a_watch_shows_each() {
    let node = Secured::start().await;
    let one = node.principal("one", &[("acquire", "k8s/shop/*")]);
    let two = node.principal("two", &[("acquire", "k8s/shop/*")]);
    let watch = format!("{LEASES}?watch=true&timeoutSeconds=6");
    let watching = node.curl(Some(&two), &watch).stdout(Stdio::piped()).spawn();
    let watching = watching.unwrap();
    sleep(Duration::from_secs(1)).await;
    let made = node.ask(Some(&one), "POST", LEASES, Some(&web("one")));
    let put = |token: &str, holder: &str, version: &Value| {
        let mut body = web(holder);
        body["metadata"]["resourceVersion"] = version.clone();
        node.ask(Some(token), "PUT", WEB, Some(&body))
    };
    let first = made.body["metadata"]["resourceVersion"].clone();
    let renewed = put(&one, "one", &first);
    assert_eq!(renewed.status, 200, "{}", renewed.body);
    let fence = |answer: &Answer| {
        let mut lines = answer.headers.lines();
        let found = lines.find(|line| line.starts_with("ringfence-fence"));
        found.unwrap().to_owned()
    };
    assert_eq!(fence(&made), fence(&renewed), "a renewal keeps the token");
    let again = put(&one, "one", &first);
    assert_eq!(
        (again.status, &again.body["reason"]),
        (409, &json!("Conflict"))
    );
    let second = renewed.body["metadata"]["resourceVersion"].clone();
    // Another principal that calls itself the same.
    let stolen = put(&two, "one", &second);
    assert_eq!(stolen.status, 409, "{}", stolen.body);
    let unversioned = node.ask(Some(&one), "PUT", WEB, Some(&web("one")));
    assert_eq!(unversioned.status, 422, "{}", unversioned.body);

    let lines = watching.wait_with_output().unwrap().stdout;
    let lines = String::from_utf8(lines).unwrap();
    let seen: Vec<Value> = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .map(|event| {
            json!([
                event["type"],
                event["object"]["metadata"]["resourceVersion"]
            ])
        })
        .collect();
    let added = json!(["ADDED", first]);
    // Versions that followed one another at once are one event.
    let modified = json!(["MODIFIED", second]);
    let all = [added.clone(), modified.clone()];
    let last = [json!(["ADDED", second])];
    assert!(seen == all || seen == last, "{seen:?}: {lines}");
    drop(node.node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_page_reaches_no_call_of_the_lease_endpoint() {
    let node = Secured::start().await;
    let one = node.principal("one", &[("acquire", "k8s/shop/*")]);
    // What a browser sends for any page without asking first.
    for from in ["Origin: http://evil.example", "Sec-Fetch-Site: cross-site"] {
        let mut command = node.curl(Some(&one), LEASES);
        command.args([
            "-H",
            "Content-Type:",
            "-H",
            from,
            "-d",
            &web("page").to_string(),
        ]);
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert!(said.lines().next().unwrap().contains(" 403"), "{said}");
    }
    let made = node.ask(Some(&one), "POST", LEASES, Some(&web("program")));
    assert_eq!(made.status, 201, "nothing was made before: {}", made.body);
    drop(node.node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_without_news_ends_with_the_right_and_with_the_ban_of_its_caller() {
    let node = Secured::start().await;
    let rule = ("observe", "k8s/shop/*");
    let banned = node.principal("banned", &[rule]);
    let revoked = node.principal("revoked", &[rule]);
    let stays = node.principal("stays", &[rule]);
    let watch = format!("{LEASES}?watch=true&allowWatchBookmarks=true&timeoutSeconds=8");
    let watch = |token: &str| {
        let mut command = node.curl(Some(token), &watch);
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let watching = [&banned, &revoked, &stays].map(|token| watch(token));
    sleep(Duration::from_secs(1)).await;
    node.operate(&["access", "ban", "token:banned"]);
    node.operate(&["access", "revoke", "token:revoked", rule.0, rule.1]);
    let seen = watching.map(|watching| {
        let lines = watching.wait_with_output().unwrap().stdout;
        String::from_utf8(lines).unwrap()
    });
    for lines in &seen[..2] {
        let last = lines.lines().last().unwrap_or_default();
        let event: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{lines}"));
        assert_eq!(event["type"], "ERROR", "{lines}");
        let code = event["object"]["code"].as_u64();
        assert!(matches!(code, Some(401 | 403)), "{lines}");
    }
    assert!(!seen[2].contains("ERROR"), "{}", seen[2]);
    drop(node.node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_answers_what_the_write_would() {
    let node = Secured::start().await;
    // Its token names no Pod: it may acquire and renew, and not release.
    let owner = node.principal("owner", &[("acquire", "k8s/shop/*")]);
    let made = node.ask(Some(&owner), "POST", LEASES, Some(&web("one")));
    assert_eq!(made.status, 201, "{}", made.body);
    let mut release = web("");
    release["metadata"]["resourceVersion"] = made.body["metadata"]["resourceVersion"].clone();
    let rehearsed = format!("{WEB}?dryRun=All");
    let cases = [("PUT", Some(&release), 409), ("DELETE", None, 403)];
    for (method, body, status) in cases {
        for path in [rehearsed.as_str(), WEB] {
            let answer = node.ask(Some(&owner), method, path, body);
            assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        }
    }
    let created = format!("{LEASES}?dryRun=All");
    let mut other = web("one");
    other["metadata"]["name"] = json!("other");
    let would = node.ask(Some(&owner), "POST", &created, Some(&other));
    assert_eq!(would.status, 201, "{}", would.body);
    assert_eq!(would.body["spec"]["holderIdentity"], "one");
    assert!(
        !would.headers.contains("ringfence-fence"),
        "nothing was granted"
    );
    let absent = node.ask(Some(&owner), "GET", &format!("{LEASES}/other"), None);
    assert_eq!(absent.status, 404, "{}", absent.body);
    drop(node.node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_a_session_holds_is_read_listed_and_watched() {
    let node = Secured::start().await;
    let reader = node.principal("reader", &[("observe", "k8s/shop/*")]);
    let elector = node.principal("elector", &[("acquire", "k8s/shop/*")]);
    let watch = format!("{LEASES}?watch=true&timeoutSeconds=6");
    let watching = node
        .curl(Some(&reader), &watch)
        .stdout(Stdio::piped())
        .spawn();
    let watching = watching.unwrap();
    sleep(Duration::from_secs(1)).await;
    node.operate(&["access", "grant", "local", "acquire", "k8s/shop/*"]);
    let acquire = [
        "lease",
        "acquire",
        "k8s/shop/web",
        "--ttl",
        "30s",
        "--identity",
        "native",
    ];
    node.operate(&acquire);
    let held = node.ask(Some(&reader), "GET", WEB, None);
    assert_eq!(
        held.body["spec"]["holderIdentity"], "native",
        "{}",
        held.body
    );
    assert_eq!(held.body["spec"]["leaseDurationSeconds"], 30);
    let listed = node.ask(Some(&reader), "GET", LEASES, None);
    assert_eq!(listed.body["items"][0]["spec"], held.body["spec"]);
    let mut stolen = web("native");
    stolen["metadata"]["resourceVersion"] = held.body["metadata"]["resourceVersion"].clone();
    let refused = node.ask(Some(&elector), "PUT", WEB, Some(&stolen));
    assert_eq!(refused.status, 409, "{}", refused.body);
    let lines = watching.wait_with_output().unwrap().stdout;
    let lines = String::from_utf8(lines).unwrap();
    assert!(lines.contains("\"holderIdentity\":\"native\""), "{lines}");
    drop(node.node);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_cannot_be_are_invalid_by_their_field() {
    let node = Secured::start().await;
    let owner = node.principal("owner", &[("acquire", "k8s/shop/*")]);
    let mut long = web("one");
    long["spec"]["leaseDurationSeconds"] = json!(3_600);
    // A client that still sends its body is answered all the same.
    let mut large = web("one");
    large["metadata"]["annotations"] = json!({ "large": "x".repeat(100_000) });
    let some = format!("{LEASES}?dryRun=Some");
    let cases = [
        (LEASES, &long, "spec.leaseDurationSeconds"),
        (some.as_str(), &web("one"), "dryRun"),
        (some.as_str(), &large, "dryRun"),
    ];
    for (path, body, field) in cases {
        let answer = node.ask(Some(&owner), "POST", path, Some(body));
        assert_eq!(answer.status, 422, "{path}: {}", answer.body);
        assert_eq!(answer.body["reason"], "Invalid");
        let cause = &answer.body["details"]["causes"][0];
        assert_eq!(cause["field"], field, "{}", answer.body);
    }
    drop(node.node);
}

#[tokio::test]
async fn the_lease_endpoint_is_not_served_without_tls() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command
        .env_clear()
        .args(["serve", "--data-dir"])
        .arg(folder.path());
    command.args([
        "--listen-client=127.0.0.1:7420",
        "--listen-lease-api=127.0.0.1:7425",
    ]);
    let done = command.output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("--listen-lease-api"), "{said}");
    assert!(said.contains("--cert-file"), "{said}");
}
