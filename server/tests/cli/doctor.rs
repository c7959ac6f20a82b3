//! `doctor` and `debug bundle`, against real nodes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use ringfence_testkit::certificates::Authority;
use serde_json::{Value, json};

use crate::access::Node;
use crate::fake_node::FakeNode;
use crate::harness::{Dev, Said, await_that, ringfence};

fn finding(said: &Said, check: &str) -> Value {
    let found = said.objects().into_iter().find(|it| it["check"] == check);
    found.unwrap_or_else(|| panic!("no {check}: {said:?}"))
}

fn doctor(endpoints: &str, arguments: &[&str]) -> Said {
    let mut command = ringfence();
    command
        .args([
            "--json",
            "--timeout",
            "10s",
            "--endpoints",
            endpoints,
            "doctor",
        ])
        .args(arguments);
    command.output().unwrap().into()
}

#[test]
fn a_healthy_cluster_has_no_findings_and_one_that_lost_its_majority_has_a_next_step() {
    let dev = Dev::start(3);
    // One endpoint is enough: the members are asked, too.
    let nodes = dev.ready["nodes"].as_array().unwrap();
    let first = nodes[0]["client"].as_str().unwrap();
    // A cluster just begun leads a moment before its node says that it is ready.
    let mut healthy = doctor(first, &[]);
    await_that("doctor finds nothing", || {
        healthy = doctor(first, &[]);
        healthy.code == Some(0)
    });
    assert_eq!(healthy.code, Some(0), "{healthy:?}");
    for check in [
        "quorum",
        "leader",
        "ready",
        "lag",
        "version",
        "level",
        "clocks",
        "peer port",
    ] {
        let found = finding(&healthy, check);
        assert_eq!(
            (&found["verdict"], &found["next"]),
            (&"ok".into(), &"".into()),
            "{found}"
        );
    }
    assert!(
        finding(&healthy, "quorum")["found"]
            .as_str()
            .unwrap()
            .starts_with("3 of 3")
    );

    let stop = |node: &Value| {
        let pid = node["pid"].as_u64().unwrap().to_string();
        assert!(
            Command::new("kill")
                .args(["-KILL", &pid])
                .status()
                .unwrap()
                .success()
        );
    };
    stop(&nodes[1]);
    let one_less = doctor(first, &[]);
    let quorum = finding(&one_less, "quorum");
    assert_eq!(quorum["verdict"], "warning", "{quorum}");
    assert_eq!(
        one_less.code,
        Some(1),
        "a node that does not answer: {one_less:?}"
    );
    stop(&nodes[2]);
    let lost = doctor(first, &[]);
    let quorum = finding(&lost, "quorum");
    assert_eq!(quorum["verdict"], "problem", "{quorum}");
    assert!(
        quorum["next"].as_str().unwrap().contains("RECOVERY.md"),
        "{quorum}"
    );
    // The node that is left leads still, or names a leader that is gone.
    let leader = finding(&lost, "leader");
    assert_eq!(leader["verdict"], "problem", "{leader}");
    assert!(
        leader["next"].as_str().unwrap().contains("RECOVERY.md"),
        "{leader}"
    );
    assert_eq!(lost.code, Some(1), "{lost:?}");
    its_status_is_no_success(first);
}

/// Of a node that hears of no majority any more.
fn its_status_is_no_success(node: &str) {
    let status = |more: &[&str]| -> Said {
        let mut command = ringfence();
        command
            .args(["--endpoints", node, "cluster", "status"])
            .args(more);
        command.output().unwrap().into()
    };
    let mut shown = status(&[]);
    await_that("the node notices", || {
        shown = status(&[]);
        shown.code == Some(69)
    });
    assert!(shown.out.contains("no majority for "), "{shown:?}");
    assert!(shown.err.contains("no majority"), "{shown:?}");
    let json = status(&["--json"]);
    assert_eq!(json.code, Some(69), "{json:?}");
    assert!(json.objects()[0]["silence"]["ms"].is_u64(), "{json:?}");
}

#[test]
fn without_any_answer_the_code_says_so() {
    let said = doctor("127.0.0.1:1", &[]);
    assert_eq!(said.code, Some(69), "{said:?}");
    assert_eq!(finding(&said, "node")["verdict"], "problem");
}

#[test]
fn the_disk_and_the_certificates_of_a_machine_are_looked_at() {
    let node = Node::start(&[]);
    let data = node.dir.path().join("data");
    let said = doctor(&node.client, &["--data-dir", data.to_str().unwrap()]);
    for check in ["disk room", "fsync"] {
        let found = finding(&said, check);
        assert_ne!(found["found"], "", "{found}");
        assert_ne!(found["verdict"], "unknown", "{found}");
    }
    let is_probe = |name: &str| name.starts_with(".ringfence-doctor");
    let left = std::fs::read_dir(&data).unwrap();
    assert!(
        left.flatten()
            .all(|it| !is_probe(&it.file_name().to_string_lossy()))
    );

    let missing = doctor(&node.client, &["--data-dir", "/no/such/directory"]);
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert_eq!(finding(&missing, "fsync")["verdict"], "problem");
    let config = node.file("bad.toml", "listen-client = \"nowhere\"\n");
    let bad = doctor(&node.client, &["--config", config.to_str().unwrap()]);
    assert_eq!(bad.code, Some(1), "{bad:?}");
    assert_eq!(finding(&bad, "configuration")["verdict"], "problem");
}

#[test]
fn certificates_that_begin_later_and_authorities_that_have_ended_are_found() {
    let node = Node::start(&[]);
    let folder = node.dir.path();
    let authority = Authority::new("ca");
    let shown = authority.sign_future(&["localhost"]).save(folder, "later");
    let ended = Authority::ended("ended");
    let trusted = node.file("trusted.pem", ended.pem());
    let both = node.file("both.pem", &format!("{}{}", ended.pem(), authority.pem()));
    let body = ended.pem().lines().filter(|line| !line.starts_with('-'));
    let der: String = body.collect();
    let key = "A".repeat(43);
    let of_issuer = |more: Value| {
        let mut key = json!({ "kty": "OKP", "crv": "Ed25519", "x": key, "kid": "a" });
        let more = more.as_object().unwrap().clone();
        key.as_object_mut().unwrap().extend(more);
        json!({ "keys": [key] }).to_string()
    };
    let jwks = [
        node.file("good.json", &of_issuer(json!({}))),
        node.file("exp.json", &of_issuer(json!({ "exp": 1_000 }))),
        node.file("x5c.json", &of_issuer(json!({ "x5c": [der] }))),
        node.file("none.json", "{\"keys\":[]}"),
    ];
    let issuers = jwks.iter().enumerate().map(|(nth, path)| {
        let path = path.display();
        format!("\"i{nth}=https://i{nth}.example,audience=ringfence,jwks={path}\"")
    });
    let issuers: Vec<String> = issuers.collect();
    let config = |authority: &Path| {
        let text = format!(
            "name = \"n1\"\nlisten-client = \"127.0.0.1:7420\"\ndata-dir = \"{}\"\ncert-file = \"{}\"\nkey-file = \"{}\"\n\
             trusted-ca-file = \"{}\"\njwt-issuer = [{}]\n",
            folder.join("data").display(),
            shown.certificate.display(),
            shown.key.display(),
            authority.display(),
            issuers.join(", "),
        );
        node.file("n1.toml", &text)
    };
    let found = |said: &Said, subject: &str| {
        let objects = said.objects();
        let is_it = |it: &&Value| it["subject"].as_str().unwrap().starts_with(subject);
        let found = objects.iter().find(is_it);
        let found = found.unwrap_or_else(|| panic!("no {subject}: {said:?}"));
        (found["verdict"].clone(), found["found"].to_string())
    };

    let path = config(&trusted);
    let said = doctor(&node.client, &["--config", path.to_str().unwrap()]);
    let (verdict, text) = found(&said, "client: ");
    assert_eq!(verdict, "problem", "{text}");
    assert!(text.contains("valid from 2090-01-01"), "{text}");
    let (verdict, text) = found(&said, "client CA: ");
    assert_eq!(verdict, "problem", "{text}");
    assert!(text.contains("has ended, on 2020-01-01"), "{text}");
    for (issuer, expected, part) in [
        ("issuer i0: ", "ok", "1 key"),
        ("issuer i1: ", "warning", "has ended"),
        ("issuer i2: ", "warning", "has ended, on 2020-01-01"),
        ("issuer i3: ", "problem", "no key for signatures"),
    ] {
        let (verdict, text) = found(&said, issuer);
        assert_eq!(verdict, expected, "{issuer}{text}");
        assert!(text.contains(part), "{issuer}{text}");
    }
    let path = config(&both);
    let said = doctor(&node.client, &["--config", path.to_str().unwrap()]);
    let (verdict, text) = found(&said, "client CA: ");
    assert_eq!(verdict, "warning", "{text}");
    assert!(text.contains("one of 2 has ended"), "{text}");
}

/// On the machine of a node that listens anywhere.
#[test]
fn without_endpoints_the_node_of_this_machine_is_asked_over_its_socket() {
    let node = Node::start(&[]);
    let data_dir = node.dir.path().join("data");
    let look = || -> Said {
        let mut command = ringfence();
        command
            .args(["--json", "doctor", "--data-dir"])
            .arg(&data_dir);
        command.output().unwrap().into()
    };
    let mut said = look();
    // One that was just started is not ready at once.
    await_that("doctor finds no problem", || {
        said = look();
        said.code == Some(0)
    });
    assert_eq!(finding(&said, "leader")["verdict"], "ok", "{said:?}");
    let socket = format!("unix:{}", data_dir.join("admin.sock").display());
    let answered = said
        .objects()
        .into_iter()
        .any(|it| it["subject"].as_str() == Some(&socket));
    assert!(answered, "{said:?}");
}

/// A Pod has variables and no file.
#[test]
fn the_variables_of_a_node_say_where_its_certificates_and_its_disk_are() {
    let node = FakeNode::new(1, "n1").serve();
    let folder = tempfile::tempdir().unwrap();
    let expired = Authority::new("ca").sign_expired(&["localhost"]);
    let expired = expired.save(folder.path(), "n1");
    let look = |name: Option<&str>, port: &str| -> Said {
        let mut command = ringfence();
        let endpoint = node.address.to_string();
        command.args(["--json", "--endpoints", &endpoint, "doctor"]);
        command.envs(name.map(|name| ("RINGFENCE_NAME", name)));
        command.env("RINGFENCE_DATA_DIR", folder.path());
        command.env("RINGFENCE_CERT_FILE", &expired.certificate);
        command.env("RINGFENCE_KEY_FILE", &expired.key);
        command.env("RINGFENCE_LISTEN_CLIENT", port);
        command.output().unwrap().into()
    };
    let said = look(Some("n1"), "127.0.0.1:7420");
    assert_eq!(finding(&said, "configuration")["subject"], "environment");
    let certificate = finding(&said, "certificate");
    assert_eq!(certificate["verdict"], "problem", "{said:?}");
    assert!(
        certificate["found"].as_str().unwrap().contains("has ended"),
        "{certificate}"
    );
    let next = certificate["next"].as_str().unwrap();
    assert!(next.contains("#a-certificate-has-expired"), "{next}");
    assert!(
        finding(&said, "disk room")["found"]
            .as_str()
            .unwrap()
            .contains("MiB free")
    );

    let said = look(Some("n1"), "nowhere");
    let wrong = finding(&said, "configuration");
    assert_eq!(wrong["verdict"], "warning", "flags may say more: {said:?}");
    assert!(
        wrong["found"].as_str().unwrap().contains("nowhere"),
        "{wrong}"
    );

    // A node without a name has the standard one.
    let said = look(None, "127.0.0.1:7420");
    assert_eq!(
        finding(&said, "certificate")["verdict"],
        "problem",
        "{said:?}"
    );
    // The directory alone is what --data-dir is.
    let mut command = ringfence();
    let endpoint = node.address.to_string();
    command.args(["--json", "--endpoints", &endpoint, "doctor"]);
    let said: Said = command
        .env("RINGFENCE_DATA_DIR", folder.path())
        .output()
        .unwrap()
        .into();
    let is_configuration = |it: &Value| it["check"] == "configuration";
    assert!(!said.objects().iter().any(is_configuration), "{said:?}");
}

#[test]
fn versions_that_differ_and_a_level_that_lags_are_warnings() {
    let mut old = FakeNode::new(1, "n1");
    old.status.version = "0.0.9".to_owned();
    (old.status.log_version, old.status.level) = (4, 4);
    let mut new = FakeNode::new(2, "n2");
    (new.status.log_version, new.status.level) = (5, 4);
    let (old, new) = (old.serve(), new.serve());
    let endpoints = format!("{},{}", old.address, new.address);
    let said = doctor(&endpoints, &[]);
    let version = finding(&said, "version");
    assert_eq!(version["verdict"], "warning", "{version}");
    let listed = version["found"].as_str().unwrap();
    assert!(listed.contains("0.0.9, "), "{version}");
    assert_eq!(finding(&said, "level")["verdict"], "ok", "all know level 4");

    // All that answer know more than the cluster uses: a member that does not answer holds it up.
    let said = doctor(&new.address.to_string(), &[]);
    assert_eq!(finding(&said, "version")["verdict"], "ok");
    let level = finding(&said, "level");
    assert_eq!(level["verdict"], "warning", "{level}");
    assert!(level["next"].as_str().unwrap().contains("older"), "{level}");
}

#[test]
fn what_a_node_says_of_itself_moves_no_cursor_and_ends_no_command() {
    let hostile = "n1\u{1b}[2J\nquorum  n1  ok";
    let mut other = FakeNode::new(2, "n2");
    let mut node = FakeNode::new(1, hostile);
    (node.status.version, node.status.role) = ("9\u{7}".to_owned(), "leader\r".to_owned());
    node.members = vec![ringfence_proto::v1::Member {
        node_id: 1,
        name: hostile.to_owned(),
        peer_address: "127.0.0.1:1\u{1b}[31m".to_owned(),
        voter: true,
        ..Default::default()
    }];
    for date in [
        "Sun, 06 Nov 1994 9223372036854775807:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:-9223372036854775808 GMT",
        "Sun, 06 Nov 9223372036854775807 08:49:37 GMT",
        ", ",
    ] {
        (node.date, other.date) = (date.to_owned(), date.to_owned());
        let (node, other) = (node.clone().serve(), other.clone().serve());
        let endpoints = format!("{},{}", node.address, other.address);
        let mut command = ringfence();
        command.args(["--timeout", "3s", "--endpoints", &endpoints, "doctor"]);
        let said: Said = command.output().unwrap().into();
        assert_eq!(said.code, Some(0), "{date}: {said:?}");
        assert!(said.out.contains("clocks"), "{date}: {said:?}");
        let is_hidden = |letter: char| letter.is_control() && letter != '\n';
        assert!(!said.out.contains(is_hidden), "{date}: {said:?}");
        assert!(!said.err.contains(is_hidden), "{date}: {said:?}");
        let forged = |line: &str| line.starts_with("quorum  n1  ok");
        assert!(!said.out.lines().any(forged), "{date}: {said:?}");
    }
}

fn unpack(bundle: &Path, into: &Path) {
    let done = Command::new("tar")
        .arg("-xzf")
        .arg(bundle)
        .arg("-C")
        .arg(into)
        .status();
    assert!(done.unwrap().success());
}

#[test]
fn a_bundle_has_what_explains_a_problem_and_no_secret() {
    let node = Node::start(&[]);
    let secret = format!("rft_7_{}", "S".repeat(43));
    // A value of the configuration, which files and messages repeat.
    let planted = "Pl4nted-Sesame";
    let opened = node.run(&["session", "open"]).object();
    let handle = opened["session"].as_str().unwrap().to_owned();
    let config = node.file(
        "ringfence.toml",
        &format!(
            "name = \"n1\"\nlisten-client = \"127.0.0.1:7420\"\nlisten-http = \"{}\"\n# was: {secret}\n\
             join = [\"{planted}@127.0.0.1:1\"]\n[passwords]\nof = [\n  \"first\",\n  \"{planted}\",\n]\n",
            node.http
        ),
    );
    let long = format!("{}\n", "x".repeat(1_000)).repeat(6_000);
    let log = format!("{long}WARN refused {secret}\nsession={handle} lost\nthe last line\n");
    let log = node.file("node.log", &log);
    node.file(&format!("data/{planted}.tmp"), "");
    let bundle = node.dir.path().join("bundle.tar.gz");
    let arguments = [
        "debug",
        "bundle",
        "--output",
        bundle.to_str().unwrap(),
        "--config",
        config.to_str().unwrap(),
        "--data-dir",
        node.dir.path().join("data").to_str().unwrap(),
        "--log",
        log.to_str().unwrap(),
        // The configuration is no valid one.
        "--http",
        &node.http,
    ]
    .map(str::to_owned);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let made = node.run(&arguments).object();
    assert_eq!(made["missing"], Value::Array(Vec::new()), "{made}");
    let mode = std::fs::metadata(&bundle).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let folder = tempfile::tempdir().unwrap();
    unpack(&bundle, folder.path());
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(read("metrics.txt").contains("ringfence_sessions 1"));
    assert!(read("status.jsonl").contains("\"role\":\"leader\""));
    assert!(read("doctor.jsonl").contains("\"check\":\"fsync\""));
    assert!(read("config.toml").contains("name = \"n1\""));
    assert!(!read("data-dir.txt").is_empty());
    let log = read("log.txt");
    assert!(log.ends_with("the last line\n"), "the end is what is taken");
    assert!(log.len() <= 4 << 20, "{}", log.len());
    let bytes = handle.split('.').nth(1).unwrap();
    for name in [
        "metrics.txt",
        "status.jsonl",
        "doctor.jsonl",
        "config.toml",
        "log.txt",
        "data-dir.txt",
        "about.txt",
    ] {
        let text = read(name);
        assert!(!text.contains(planted), "{name}: {text}");
        assert!(!text.contains(&secret), "{name}");
        assert!(!text.contains(bytes), "{name}");
    }

    // What is there is not replaced.
    let again = node.run(&arguments);
    assert_eq!(again.code, Some(71), "{again:?}");
}
