//! The HTTP port of a node: health for all callers, figures for those that may observe them, and TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ringfence_services::FIGURES;
use ringfence_testkit::certificates::{Authority, Signed};

use crate::access::Node;
use crate::harness::await_that;

/// What a node answered.
#[derive(Debug)]
struct Answer {
    status: u16,
    /// In small letters.
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        let mut lines = self.head.lines();
        lines.find_map(|line| line.strip_prefix(&prefix))
    }
}

/// Asks for a page on an open connection, which is closed behind it.
fn ask(mut stream: TcpStream, path: &str, headers: &[&str]) -> Option<Answer> {
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: n\r\nconnection: close\r\n{headers}\r\n"
    )
    .ok()?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok()?;
    answer_of(bytes)
}

fn answer_of(bytes: Vec<u8>) -> Option<Answer> {
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some(Answer {
        status: head.split(' ').nth(1)?.parse().ok()?,
        head: head.to_lowercase(),
        body: body.to_owned(),
    })
}

fn connect(node: &Node) -> TcpStream {
    let stream = TcpStream::connect(&node.http).unwrap();
    let patience = Some(Duration::from_secs(10));
    stream.set_read_timeout(patience).unwrap();
    stream
}

fn get(node: &Node, path: &str, headers: &[&str]) -> Answer {
    ask(connect(node), path, headers).unwrap()
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}")
}

fn enforced(flags: &[&str]) -> Node {
    let node = Node::start(&[&["--access", "enforced"], flags].concat());
    await_that("rights bind", || {
        node.local(&["access", "mode"]).object()["mode"] == "enforced"
    });
    node
}

/// A new cluster token of this name.
fn token(node: &Node, name: &str) -> String {
    let made = node.local(&["access", "token", "create", name]).object();
    made["token"].as_str().unwrap().to_owned()
}

#[test]
fn health_is_told_to_everybody_and_figures_to_who_may_observe_them() {
    let node = enforced(&[]);
    await_that("it is ready", || get(&node, "/readyz", &[]).status == 200);
    assert_eq!(get(&node, "/livez", &[]).status, 200);

    for page in ["/metrics", "/debug", "/livez/more"] {
        let bare = get(&node, page, &[]);
        assert_eq!(bare.status, 401, "{bare:?}");
        let challenge = bare.header("www-authenticate");
        assert_eq!(challenge, Some("bearer realm=\"ringfence\""), "{bare:?}");
    }

    let shown = bearer(&token(&node, "prometheus"));
    let denied = get(&node, "/metrics", &[&shown]);
    assert_eq!(denied.status, 403, "{denied:?}");
    assert_eq!(
        denied.body,
        format!(
            "no rule allows token:prometheus to observe {FIGURES}; ask an administrator for it: \
             ringfence access grant token:prometheus observe {FIGURES}\n"
        )
    );
    node.local(&["access", "grant", "token:prometheus", "observe", FIGURES])
        .object();
    let allowed = get(&node, "/metrics", &[&shown]);
    assert_eq!(allowed.status, 200, "{allowed:?}");
    // Both refusals were counted, by what they lacked.
    let counted = "ringfence_denied_total{verb=\"observe\",enforced=\"true\"} 4";
    assert!(allowed.body.contains(counted), "{}", allowed.body);
    let absent = get(&node, "/debug", &[&shown]);
    assert_eq!(absent.status, 404, "{absent:?}");
    // Health needs no credential, and a bad one is no reason to withhold it.
    let bad = bearer(&format!("rft_7_{}", "A".repeat(43)));
    assert_eq!(get(&node, "/livez", &[&bad]).status, 200);

    for headers in [
        &[bad.as_str()][..],
        &[&shown, &shown],
        &["authorization: Basic YTpi"],
    ] {
        let refused = get(&node, "/metrics", headers);
        assert_eq!(refused.status, 401, "{headers:?}: {refused:?}");
        let challenge = refused.header("www-authenticate").unwrap();
        assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
        assert_eq!(refused.body.lines().count(), 1, "{refused:?}");
    }

    node.local(&["access", "ban", "token:prometheus"]).object();
    assert_eq!(get(&node, "/metrics", &[&shown]).status, 403);
    node.local(&["access", "unban", "token:prometheus"])
        .object();
    assert_eq!(get(&node, "/metrics", &[&shown]).status, 200);
    node.local(&["access", "token", "revoke", "prometheus"])
        .object();
    let revoked = get(&node, "/metrics", &[&shown]);
    assert_eq!(revoked.status, 401, "{revoked:?}");

    // Where a firewall decides who reaches the port, a rule may admit all callers.
    node.local(&["access", "grant", "anonymous", "observe", FIGURES])
        .object();
    assert_eq!(get(&node, "/metrics", &[]).status, 200);
}

#[test]
fn what_would_be_refused_is_shown_counted_and_logged_while_rights_are_permissive() {
    let node = Node::start(&[]);
    let count = |body: &str| body.contains("ringfence_denied_total{verb=\"observe\"");
    let bad = bearer(&format!("rft_7_{}", "A".repeat(43)));
    for headers in [&[][..], &[bad.as_str()]] {
        let off = get(&node, "/metrics", headers);
        assert_eq!((off.status, count(&off.body)), (200, false), "{off:?}");
    }
    node.local(&["access", "mode", "permissive"]).object();
    for headers in [&[][..], &[bad.as_str()]] {
        assert_eq!(get(&node, "/metrics", headers).status, 200);
    }
    let shown = get(&node, "/metrics", &[]);
    let counted = "ringfence_denied_total{verb=\"observe\",enforced=\"false\"} 3";
    assert!(shown.body.contains(counted), "{}", shown.body);
    let log = std::fs::read_to_string(node.dir.path().join("log")).unwrap();
    let said = log.lines().find(|line| line.contains("lacks the right"));
    let said = said.unwrap_or_else(|| panic!("{log}"));
    assert!(
        said.contains(FIGURES) && said.contains("anonymous"),
        "{said}"
    );
}

#[test]
fn failed_proofs_count_in_the_limits_of_the_client_port() {
    let node = enforced(&["--failed-proofs-max", "1"]);
    let bad = bearer("e30.e30.e30");
    let statuses: Vec<u16> = (0..16)
        .map(|_| get(&node, "/metrics", &[&bad]).status)
        .collect();
    assert_eq!((statuses[0], statuses[15]), (401, 429), "{statuses:?}");
    let limited = get(&node, "/metrics", &[&bad]);
    assert_eq!(limited.header("retry-after"), Some("1"), "{limited:?}");
    assert!(
        limited.body.contains("too many failed proofs"),
        "{limited:?}"
    );
    // The client port counts with it. What a second gives back is taken again meanwhile.
    let file = node.file("bad", "e30.e30.e30");
    let is_over = AtomicBool::new(false);
    let said = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                get(&node, "/metrics", &[&bad]);
            }
        });
        let said = node.with_token(&file, &["access", "whoami"]);
        is_over.store(true, Ordering::Relaxed);
        said
    });
    assert_eq!(said.code, Some(69), "{said:?}");
    assert!(said.err.contains("too many failed proofs"), "{said:?}");
    // A probe shows nothing, and is answered.
    assert_eq!(get(&node, "/livez", &[]).status, 200);
}

/// Asks over TLS, trusting this authority, and shows this certificate. `None` if there is no answer.
fn ask_tls(
    node: &Node,
    authority: &Authority,
    own: Option<&Signed>,
    page: &str,
    headers: &[&str],
) -> Option<Answer> {
    let folder = tempfile::tempdir().unwrap();
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-i", "--http1.1", "--max-time", "10", "--cacert"]);
    curl.arg(authority.save(folder.path(), "trusted"));
    if let Some(own) = own {
        let files = own.save(folder.path(), "own");
        curl.arg("--cert").arg(files.certificate);
        curl.arg("--key").arg(files.key);
    }
    headers.iter().for_each(|line| {
        curl.args(["-H", line]);
    });
    curl.arg(format!("https://{}{page}", node.http));
    answer_of(curl.output().expect("the tests need curl").stdout)
}

/// A node whose HTTP port has TLS, with its certificate in this folder.
fn with_tls(folder: &Path, servers: &Authority, clients: &Authority) -> Node {
    let own = servers.sign(&["127.0.0.1"]).save(folder, "node");
    let ca = clients.save(folder, "clients").display().to_string();
    let (cert, key) = (own.certificate.display(), own.key.display());
    enforced(&[
        &format!("--http-cert-file={cert}"),
        &format!("--http-key-file={key}"),
        &format!("--http-trusted-ca-file={ca}"),
        "--client-cert-principal=dns",
    ])
}

#[test]
fn the_port_speaks_tls_and_a_certificate_names_its_caller() {
    let folder = tempfile::tempdir().unwrap();
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let node = with_tls(folder.path(), &servers, &clients);

    let plain = get(&node, "/livez", &[]);
    assert_eq!(plain.status, 400, "{plain:?}");
    assert!(plain.body.contains("this port speaks TLS: use https://"));

    let bare =
        |page: &str, headers: &[&str]| ask_tls(&node, &servers, None, page, headers).unwrap();
    assert_eq!(bare("/livez", &[]).status, 200);
    assert_eq!(bare("/metrics", &[]).status, 401);
    let shown = bearer(&token(&node, "prometheus"));
    assert_eq!(bare("/metrics", &[&shown]).status, 403);

    let own = clients.sign(&["prometheus.example"]);
    let known = |page: &str| ask_tls(&node, &servers, Some(&own), page, &[]).unwrap();
    let denied = known("/metrics");
    assert_eq!(denied.status, 403, "{denied:?}");
    let principal = "cert:dns:prometheus.example";
    let rule = format!("ringfence access grant {principal} observe {FIGURES}\n");
    assert!(denied.body.ends_with(&rule), "{denied:?}");
    node.local(&["access", "grant", principal, "observe", FIGURES])
        .object();
    assert_eq!(known("/metrics").status, 200);
    // A token that is shown counts, and the certificate beside it does not.
    let both = ask_tls(&node, &servers, Some(&own), "/metrics", &[&shown]);
    assert_eq!(both.unwrap().status, 403);

    let strange = Authority::new("strangers").sign(&["prometheus.example"]);
    let strange = ask_tls(&node, &servers, Some(&strange), "/livez", &[]);
    assert!(strange.is_none(), "{strange:?}");
}

#[test]
fn the_certificate_of_the_port_is_replaced_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let node = with_tls(folder.path(), &servers, &clients);
    let is_live = |authority: &Authority| {
        let answer = ask_tls(&node, authority, None, "/livez", &[]);
        answer.is_some_and(|answer| answer.status == 200)
    };
    assert!(is_live(&servers));
    let later = Authority::new("a later one");
    drop(later.sign(&["127.0.0.1"]).save(folder.path(), "node"));
    assert!(is_live(&later) && !is_live(&servers));
}
