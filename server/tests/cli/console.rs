//! The console: who may read what, which pages may not, and what people see in a real browser.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ringfence_testkit::browser::Browser;
use serde_json::{Value, json};

use crate::access::Node;
use crate::calls;
use crate::harness::{Dev, await_that, signal};

/// What is markup in a page that takes texts for markup.
const HOSTILE: &str = "<img src=x onerror=\"document.title='run'\">";

/// Status, head in small letters, and body.
fn get(node: &Node, path: &str, headers: &[&str]) -> (u16, String, String) {
    get_at(&node.http, path, headers)
}

pub(crate) fn get_at(http: &str, path: &str, headers: &[&str]) -> (u16, String, String) {
    let mut stream = TcpStream::connect(http).unwrap();
    let patience = Some(Duration::from_secs(10));
    stream.set_read_timeout(patience).unwrap();
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let host = if headers.contains("host: ") {
        ""
    } else {
        "host: n\r\n"
    };
    write!(stream, "GET {path} HTTP/1.0\r\n{host}{headers}\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

pub(crate) const OWN: &str = "ringfence-console: 1";
const LEASES: &str = "/console/v1/leases?prefix=team/";

/// Makes a call at the client port.
fn post(node: &Node, path: &str, body: &Value) -> Value {
    let answered = calls::ask(node, None, "POST", path, body);
    assert!([200, 201].contains(&answered.status), "{answered:?}");
    calls::json_of(&answered)
}

fn hold(node: &Node, name: &str, identity: &str) -> Value {
    let acquire = json!({ "name": name, "ttl": "60s", "identity": identity });
    post(node, "/v1/acquire", &acquire)
}

#[test]
fn the_page_has_no_data_and_a_policy_that_lets_it_load_nothing_else() {
    let node = Node::start(&["--access", "enforced"]);
    let (status, head, page) = get(&node, "/console/", &[]);
    assert_eq!(status, 200, "{head}");
    for rule in [
        "default-src 'none'",
        "script-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(head.contains(rule), "{rule}: {head}");
    }
    for header in [
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
    ] {
        assert!(head.contains(header), "{header}: {head}");
    }
    let files = ["page.css", "page.js"].map(|file| {
        let (status, head, text) = get(&node, &format!("/console/{file}"), &[]);
        assert_eq!(status, 200, "{head}");
        text
    });
    for text in files.iter().chain([&page]) {
        for foreign in [
            "https://",
            "@import",
            "innerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "localStorage",
            "sessionStorage",
            "document.cookie",
        ] {
            assert!(!text.contains(foreign), "{foreign}");
        }
    }
    assert_eq!(get(&node, "/", &[]).0, 307);
}

#[test]
fn the_console_reads_what_the_caller_may_observe_and_nothing_else() {
    let node = Node::start(&["--access", "enforced", "--failed-proofs-max=1000"]);
    await_that("rights bind", || {
        node.local(&["access", "mode"]).object()["mode"] == "enforced"
    });
    let made = node.local(&["access", "token", "create", "reader"]);
    let token = made.object()["token"].as_str().unwrap().to_owned();
    node.local(&["access", "grant", "local", "acquire", "team/*"])
        .object();
    node.local(&["lease", "acquire", "team/a", "--ttl", "60s"])
        .object();

    let (status, head, body) = get(&node, LEASES, &[OWN]);
    assert!([401, 403].contains(&status), "{head}: {body}");
    assert!(!body.contains("team/a"), "{body}");
    let bad = "authorization: Bearer rft_7_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    assert_eq!(get(&node, LEASES, &[OWN, bad]).0, 401);
    let shown = format!("authorization: Bearer {token}");
    assert_eq!(get(&node, LEASES, &[OWN, &shown]).0, 403);

    node.local(&["access", "grant", "token:reader", "observe", "team/*"])
        .object();
    let (status, _, body) = get(&node, LEASES, &[OWN, &shown]);
    assert_eq!(status, 200, "{body}");
    let listed: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(listed["leases"][0]["name"], "team/a", "{body}");
    // A prefix that no rule covers as a whole is refused, and never filtered.
    for beyond in ["leases", "sessions", "leases/other/a", "history/other/a"] {
        let path = format!("/console/v1/{beyond}");
        assert_eq!(get(&node, &path, &[OWN, &shown]).0, 403, "{beyond}");
    }
    node.local(&["access", "ban", "token:reader"]).object();
    for path in [LEASES, "/console/v1/cluster"] {
        assert_eq!(get(&node, path, &[OWN, &shown]).0, 403, "{path}");
    }
}

#[test]
fn a_page_of_another_site_reads_nothing() {
    let node = Node::start(&[]);
    hold(&node, "team/a", "worker");
    let same = "sec-fetch-site: same-origin";
    let (status, _, body) = get(&node, LEASES, &[OWN, same]);
    assert_eq!(status, 200, "{body}");
    for headers in [
        &[][..],
        &[same],
        &[OWN, "sec-fetch-site: cross-site"],
        &[OWN, "origin: http://evil.example"],
        // A name that leads here. Where rights do not bind, a credential that proves nothing is none.
        &[OWN, same, "host: evil.example:7422"],
        // What is not understood may lead a browser here all the same.
        &[OWN, same, "host: evil.example:7422:1"],
        &[OWN, same, "host: [::1"],
        &[
            OWN,
            same,
            "host: evil.example:7422",
            "authorization: Bearer x",
        ],
    ] {
        let (status, head, body) = get(&node, LEASES, headers);
        assert_eq!(status, 400, "{headers:?}: {head}");
        assert!(!body.contains("worker"), "{body}");
        assert!(!head.contains("access-control-allow"), "{head}");
    }
}

#[test]
fn the_pages_of_a_list_have_each_lease_once_and_the_node_keeps_none_for_them() {
    let node = Node::start(&[]);
    for nth in 0..7 {
        hold(&node, &format!("team/{nth}"), "worker");
    }
    let mut names = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("{LEASES}&limit=3&after={after}");
        let (status, _, body) = get(&node, &path, &[OWN]);
        assert_eq!(status, 200, "{body}");
        let page: Value = serde_json::from_str(&body).unwrap();
        let leases = page["leases"].as_array().unwrap();
        assert!(leases.len() <= 3, "{body}");
        names.extend(
            leases
                .iter()
                .map(|it| it["name"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else {
            break;
        };
        next.clone_into(&mut after);
    }
    let all: Vec<String> = (0..7).map(|nth| format!("team/{nth}")).collect();
    assert_eq!(names, all);
    assert_eq!(get(&node, "/console/v1/leases?limit=10001", &[OWN]).0, 400);
    assert_eq!(get(&node, "/console/v1/nothing", &[OWN]).0, 404);
}

#[test]
fn a_node_without_a_majority_says_so_and_since_when() {
    let dev = Dev::start(3);
    let nodes = dev.ready["nodes"].as_array().unwrap();
    for node in &nodes[1..] {
        let pid = node["pid"].as_i64().unwrap();
        signal(pid.try_into().unwrap(), rustix::process::Signal::KILL);
    }
    let http = nodes[0]["http"].as_str().unwrap();
    let status = || {
        let (status, _, body) = get_at(http, "/console/v1/cluster", &[OWN]);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<Value>(&body).unwrap()
    };
    await_that("the node says that it hears of no majority", || {
        status()["silence"]["ms"].as_u64() >= Some(2_000)
    });
    let Some(mut browser) = Browser::start("the console") else {
        return;
    };
    browser.visit(&format!("http://{http}/console/#cluster"));
    let verdict = browser.text("document.getElementById('verdict').textContent");
    assert!(
        ["No leader", "No majority"].contains(&verdict.as_str()),
        "{verdict}"
    );
    let reason = browser.text("document.getElementById('reason').textContent");
    assert!(
        reason.contains(" for ") && reason.contains(" s"),
        "{reason}"
    );
    assert!(reason.contains("No lease is granted or ended"), "{reason}");
    picture(&mut browser, "console-silent.png");
}

fn nothing_went_wrong(browser: &mut Browser, node: &Node) {
    let own = format!("http://{}/", node.http);
    let is_elsewhere = |address: &&String| {
        !address.starts_with(&own) && !address.starts_with("data:") && *address != "about:blank"
    };
    let elsewhere: Vec<&String> = browser.asked_for.iter().filter(is_elsewhere).collect();
    assert_eq!(elsewhere, Vec::<&String>::new());
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// Takes a picture if the environment names a directory for them.
pub(crate) fn picture(browser: &mut Browser, name: &str) {
    if let Some(directory) = std::env::var_os("RINGFENCE_PICTURES") {
        let path = std::path::Path::new(&directory).join(name);
        std::fs::write(path, browser.screenshot()).unwrap();
    }
}

fn address(node: &Node, fragment: &str) -> String {
    format!("http://{}/console/{fragment}", node.http)
}

#[test]
fn a_browser_shows_the_leases_live_and_takes_no_text_for_markup() {
    let node = Node::start(&[]);
    let Some(mut browser) = Browser::start("the console") else {
        return;
    };
    let granted = hold(&node, "team/hostile", HOSTILE);
    hold(&node, "team/plain", "worker-1");
    browser.visit(&address(&node, "#leases"));
    assert!(
        browser
            .text("document.querySelector('main').innerText")
            .contains(HOSTILE)
    );
    assert_eq!(browser.ask("document.images.length"), 0);

    // A grant that comes is there without a key or a click.
    browser.until("document.getElementById('live').textContent === 'live'");
    hold(&node, "team/new", "worker-2");
    browser.until("document.querySelector('main').innerText.includes('team/new')");

    // By keys alone: to the search, to a lease, and its history.
    browser.key("/", 0);
    assert_eq!(browser.text("document.activeElement.id"), "prefix");
    browser.order("Input.insertText", json!({ "text": "team/h" }));
    browser.until("document.querySelectorAll('main tbody tr').length === 1");
    assert_eq!(
        browser.text("location.hash"),
        "#leases?prefix=team%2Fh",
        "the address can be handed on"
    );
    let revoke = json!({
        "name": "team/hostile", "token": granted["token"], "reason": HOSTILE, "operator": "op", "now": true
    });
    post(&node, "/v1/revoke", &revoke);
    hold(&node, "team/hostile", "worker-3");
    browser.ask("document.querySelector('main tbody a').focus()");
    browser.order(
        "Input.dispatchKeyEvent",
        json!({ "type": "keyDown", "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r" }),
    );
    browser.until("document.querySelectorAll('main svg rect').length === 2");
    browser.until("document.querySelector('main').innerText.includes('revoked by op')");
    picture(&mut browser, "console-lease.png");

    browser.ask("location.hash = '#ends'");
    browser.until("document.querySelectorAll('main tbody tr').length > 0");
    let shown = browser.text("document.querySelector('main').innerText");
    assert!(
        shown.contains("revoked by op") && shown.contains(HOSTILE),
        "{shown}"
    );
    browser.ask("location.hash = '#sessions'");
    browser.until("document.querySelector('main').innerText.includes('worker-3')");
    browser.ask("location.hash = '#cluster'");
    browser.until("document.querySelector('main').innerText.includes('Slowest fsync')");
    assert_eq!(
        browser.text("document.getElementById('verdict').textContent"),
        "Serving"
    );
    assert_eq!(browser.ask("document.images.length"), 0);
    assert!(
        browser
            .text("document.title")
            .ends_with("Ringfence console")
    );
    nothing_went_wrong(&mut browser, &node);
}

#[test]
fn a_browser_shows_the_history_of_a_lease_with_ends_that_were_not_confirmed() {
    let node = Node::start(&[]);
    let Some(mut browser) = Browser::start("the console") else {
        return;
    };
    // What happens takes its time, so that the bars have a length.
    let pause = |browser: &mut Browser| {
        browser.ask("new Promise((over) => setTimeout(over, 700))");
    };
    let mut grants = Vec::new();
    for holder in ["worker-a", "worker-b", "worker-a", "worker-c"] {
        let granted = hold(&node, "orders/eu", holder);
        pause(&mut browser);
        let token = &granted["token"];
        match holder {
            "worker-b" => post(
                &node,
                "/v1/revoke",
                &json!({ "name": "orders/eu", "token": token, "operator": "dana", "reason": "stuck", "now": true }),
            ),
            _ => post(
                &node,
                "/v1/release",
                &json!({ "name": "orders/eu", "token": token, "session": granted["session"] }),
            ),
        };
        grants.push(token.clone());
    }
    hold(&node, "orders/eu", "worker-b");
    pause(&mut browser);
    browser.visit(&address(&node, "#lease=orders%2Feu"));
    browser.until("document.querySelectorAll('main svg rect').length === 5");
    browser.until("document.getElementById('live').textContent === 'live'");
    assert_eq!(browser.ask("document.querySelectorAll('.dirty').length"), 1);
    assert_eq!(
        browser.ask("document.querySelectorAll('svg .open').length"),
        1
    );
    let shown = browser.text("document.querySelector('main').innerText");
    assert!(shown.contains("revoked by dana: stuck"), "{shown}");
    for token in grants {
        assert!(shown.contains(&token.to_string()), "{token}: {shown}");
    }
    browser.size(1280, 720);
    picture(&mut browser, "console.png");
    nothing_went_wrong(&mut browser, &node);
}

#[test]
fn a_browser_shows_light_and_dark_and_a_narrow_window() {
    let node = Node::start(&[]);
    let Some(mut browser) = Browser::start("the console") else {
        return;
    };
    for (nth, name) in ["orders/eu", "orders/us", "jobs/nightly", "db/primary"]
        .iter()
        .enumerate()
    {
        hold(&node, name, &format!("worker-{nth}"));
    }
    let ground = "getComputedStyle(document.body).backgroundColor";
    let mut seen = Vec::new();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        for view in ["cluster", "leases"] {
            browser.visit(&address(&node, &format!("#{view}")));
            picture(&mut browser, &format!("console-{view}-{scheme}.png"));
        }
        seen.push(browser.text(ground));
    }
    assert_ne!(seen[0], seen[1]);
    browser.ask("document.getElementById('theme').click()");
    assert_eq!(browser.text(ground), seen[0]);
    browser.size(420, 800);
    assert_eq!(browser.ask("document.documentElement.scrollWidth"), 420);
    picture(&mut browser, "console-narrow.png");
    nothing_went_wrong(&mut browser, &node);
}

#[test]
fn a_browser_asks_for_a_token_and_keeps_it_in_memory_alone() {
    let node = Node::start(&["--access", "enforced", "--failed-proofs-max=1000"]);
    await_that("rights bind", || {
        node.local(&["access", "mode"]).object()["mode"] == "enforced"
    });
    let Some(mut browser) = Browser::start("the console") else {
        return;
    };
    let made = node.local(&["access", "token", "create", "reader"]);
    let token = made.object()["token"].as_str().unwrap().to_owned();
    node.local(&["access", "grant", "token:reader", "observe", "*"])
        .object();
    node.local(&["access", "grant", "local", "acquire", "team/*"])
        .object();
    node.local(&["lease", "acquire", "team/a", "--ttl", "60s"])
        .object();
    browser.visit(&address(&node, "#leases"));
    browser.until("!document.getElementById('signing').hidden");
    assert!(!browser.text("document.body.innerText").contains("team/a"));
    picture(&mut browser, "console-token.png");
    browser.ask("document.getElementById('token').focus()");
    browser.order("Input.insertText", json!({ "text": token }));
    browser.ask("document.getElementById('signing').requestSubmit()");
    browser.until("document.querySelector('main').innerText.includes('team/a')");
    let kept = browser.text(
        "JSON.stringify([localStorage, sessionStorage, document.cookie, location.href]) \
         + document.documentElement.outerHTML + document.getElementById('token').value",
    );
    assert!(!kept.contains(&token), "{kept}");
    let own = format!("http://{}/", node.http);
    assert!(browser.asked_for.iter().all(|it| !it.contains(&token)));
    browser.visit(&format!("{own}console/#leases"));
    browser.until("!document.getElementById('signing').hidden");
}

#[test]
fn a_refused_view_holds_up_neither_the_head_nor_what_is_allowed_later() {
    let node = Node::start(&["--access", "enforced", "--failed-proofs-max=1000"]);
    await_that("rights bind", || {
        node.local(&["access", "mode"]).object()["mode"] == "enforced"
    });
    let Some(mut browser) = Browser::start("the console") else {
        return;
    };
    let made = node.local(&["access", "token", "create", "reader"]);
    let token = made.object()["token"].as_str().unwrap().to_owned();
    node.local(&["access", "grant", "token:reader", "observe", "team/*"])
        .object();
    node.local(&["access", "grant", "local", "acquire", "team/*"])
        .object();
    // The view is refused, the head is not.
    browser.visit(&address(&node, "#sessions"));
    browser.until("!document.getElementById('signing').hidden");
    browser.ask("document.getElementById('token').focus()");
    browser.order("Input.insertText", json!({ "text": token }));
    browser.ask("document.getElementById('signing').requestSubmit()");
    browser.until("document.getElementById('verdict').textContent === 'Serving'");
    browser.until("document.getElementById('notice').innerText.includes('observe')");
    let held = |browser: &mut Browser, count: usize| {
        let figure =
            "[...document.querySelectorAll('#figures div')].map((it) => it.innerText).join()";
        browser.until(&format!("/lease names\\s*{count}/.test({figure})"));
    };
    held(&mut browser, 0);
    node.local(&["lease", "acquire", "team/a", "--ttl", "60s"])
        .object();
    held(&mut browser, 1);

    // What was refused is asked for again after a while.
    node.local(&["access", "grant", "token:reader", "observe", "*"])
        .object();
    browser.ask("{ const now = Date.now; Date.now = () => now() + 31000; }");
    browser.until("document.querySelectorAll('main tbody tr').length === 1");
    browser.until("document.getElementById('notice').hidden");

    // A right that is taken away takes what was shown by it along.
    node.local(&["access", "revoke", "token:reader", "observe", "*"])
        .object();
    browser.until("document.querySelector('main').classList.contains('refused')");
    assert!(
        !browser
            .text("document.querySelector('main').innerText")
            .contains("TTL")
    );
    node.local(&["access", "ban", "token:reader"]).object();
    browser.until("document.getElementById('verdict').textContent === 'Not shown'");
    browser.ask("{ const now = Date.now; Date.now = () => now() + 31000; }");
    node.local(&["access", "unban", "token:reader"]).object();
    browser.ask("{ const now = Date.now; Date.now = () => now() + 31000; }");
    browser.until("document.getElementById('verdict').textContent === 'Serving'");
}
