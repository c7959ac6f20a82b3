//! A client port with TLS, and the clients that come to it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use ringfence_client::{Client, SessionOptions, Tls};
use ringfence_testkit::certificates::{Authority, Signed};
use tempfile::TempDir;

use crate::process::{PATIENCE, Ports, Process};

/// A node, and the files of its certificates.
struct Secured {
    node: Process,
    folder: TempDir,
    servers: Authority,
    clients: Authority,
}

impl Secured {
    /// A node with TLS; `demanding` one turns away clients without a certificate.
    async fn start(demanding: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
        let own = servers.sign(&["127.0.0.1"]).save(folder.path(), "node");
        let ca = clients.save(folder.path(), "clients");
        drop(servers.save(folder.path(), "servers"));
        drop(clients.sign(&[]).save(folder.path(), "client"));
        let mut flags = vec![
            format!("--cert-file={}", own.certificate.display()),
            format!("--key-file={}", own.key.display()),
            format!("--trusted-ca-file={}", ca.display()),
        ];
        if demanding {
            flags.push("--client-cert-auth".to_owned());
        }
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let node = Process::start(&folder.path().join("data"), Ports::free(), &flags);
        Self {
            node: node.ready().await,
            folder,
            servers,
            clients,
        }
    }

    /// A certificate that the node shows from now on.
    fn replace(&self, with: &Signed) {
        let saved = with.save(self.folder.path(), "node");
        assert_eq!(saved.certificate, self.file("node.pem"));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.node.ports.client)
    }

    fn trusting(&self) -> Tls {
        Tls::new().ca_file(self.file("servers.pem"))
    }

    async fn connect(&self, tls: Tls) -> Result<Client, String> {
        let builder = Client::builder().endpoints([self.address()]).tls(tls);
        builder.connect().await.map_err(|error| error.to_string())
    }

    /// What a command says to a client's question.
    fn list(&self, scheme: &str, flags: &[(&str, &Path)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
        command.env_clear().stdin(Stdio::null());
        let endpoint = format!("{scheme}{}", self.address());
        command.args(["--timeout", "2s", "--endpoints", &endpoint]);
        for (flag, path) in flags {
            command.arg(flag).arg(path);
        }
        command.args(["lease", "list"]).output().unwrap()
    }
}

async fn take(client: &Client, name: &str) {
    let options = SessionOptions::default();
    let session = client.open_session(options).await.unwrap();
    let lease = session.acquire(name).send().await.unwrap();
    assert!(lease.is_valid());
    lease.release().await.unwrap();
    session.close().await.unwrap();
}

#[tokio::test]
async fn the_metrics_say_how_long_the_certificate_is_valid() {
    let secured = Secured::start(false).await;
    let (status, text) = secured.node.http("/metrics").unwrap();
    assert_eq!(status, 200);
    let series = "ringfence_certificate_expiry_seconds{port=\"client\"} ";
    let left = text.lines().find_map(|line| line.strip_prefix(series));
    let left: f64 = left.unwrap_or_else(|| panic!("{text}")).parse().unwrap();
    // The certificates of tests end in the year 4096.
    assert!((6e10..7e10).contains(&left), "{left}");
    let peer = series.replace("client", "peer");
    assert!(!text.contains(&peer), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_held_over_tls() {
    let secured = Secured::start(true).await;
    let shown = secured
        .trusting()
        .certificate_files(secured.file("client.pem"), secured.file("client.key"));

    let client = secured.connect(shown).await.unwrap();
    take(&client, "jobs/secured").await;

    let (ca, cert) = (secured.file("servers.pem"), secured.file("client.pem"));
    let key = secured.file("client.key");
    for scheme in ["", "https://"] {
        let said = secured.list(
            scheme,
            &[("--cacert", &ca), ("--cert", &cert), ("--key", &key)],
        );
        assert!(said.status.success(), "{said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_turned_away_hears_what_to_do() {
    let secured = Secured::start(true).await;
    let strangers = Authority::new("strangers");

    let bare = secured.connect(secured.trusting()).await.unwrap_err();
    assert!(
        bare.contains("demands a client certificate; give one"),
        "{bare}"
    );

    let strange = strangers.sign(&[]);
    let strange = secured
        .trusting()
        .certificate_pem(strange.certificate, strange.key);
    let strange = secured.connect(strange).await.unwrap_err();
    assert!(
        strange.contains("does not trust the CA of this client"),
        "{strange}"
    );

    let expired = secured.clients.sign_expired(&[]);
    let expired = secured
        .trusting()
        .certificate_pem(expired.certificate, expired.key);
    let expired = secured.connect(expired).await.unwrap_err();
    assert!(
        expired.contains("certificate has expired; give a new one"),
        "{expired}"
    );

    let suspicious = Tls::new().ca_pem(strangers.pem());
    let suspicious = secured.connect(suspicious).await.unwrap_err();
    assert!(
        suspicious.contains("name the one that signed it"),
        "{suspicious}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_tls_is_told_that_the_port_has_it() {
    let secured = Secured::start(false).await;

    let plain = Client::connect([secured.address()])
        .await
        .unwrap_err()
        .to_string();
    assert!(
        plain.contains("this port speaks TLS: use https://"),
        "{plain}"
    );

    let said = secured.list("", &[]);
    assert_eq!(said.status.code(), Some(69));
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(told.contains("use https:// and name the CA"), "{told}");
    let said = secured.list("https://", &[]);
    assert_eq!(said.status.code(), Some(2));
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(told.contains("--cacert ca.pem"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_certificate_ends_a_command_otherwise_than_a_server_that_is_not_there() {
    let secured = Secured::start(true).await;
    let strangers = Authority::new("strangers");
    let folder = secured.folder.path();
    let of = |signed: Signed, name: &str| {
        let files = signed.save(folder, name);
        Some((files.certificate, files.key))
    };
    let stranger = of(strangers.sign(&[]), "stranger");
    // Of a CA that has the name of the server's, and another key.
    let twin = of(Authority::new("clients").sign(&[]), "twin");
    let expired = of(secured.clients.sign_expired(&[]), "expired");
    let good = of(secured.clients.sign(&[]), "good");
    let free = Ports::free().client;
    let own = secured.node.ports.client;
    for (port, shown, code, word) in [
        (own, &stranger, 77, "does not trust the CA"),
        (own, &twin, 77, "has not signed this client's certificate"),
        (own, &expired, 77, "has expired"),
        (own, &None, 77, "demands a client certificate"),
        (own, &good, 0, ""),
        (free, &stranger, 69, "UNAVAILABLE"),
    ] {
        for command in [
            ["lease", "list"],
            ["session", "list"],
            ["cluster", "status"],
            ["cluster", "members"],
        ] {
            let mut asked = Command::new(env!("CARGO_BIN_EXE_ringfence"));
            asked.env_clear().stdin(Stdio::null());
            asked.args(["--json", "--timeout=5s", "--cacert"]);
            asked.arg(secured.file("servers.pem"));
            if let Some((certificate, key)) = shown {
                asked.arg("--cert").arg(certificate).arg("--key").arg(key);
            }
            asked
                .arg(format!("--endpoints=127.0.0.1:{port}"))
                .args(command);
            let Output {
                status,
                stdout,
                stderr,
            } = asked.output().unwrap();
            let (stdout, stderr) = (String::from_utf8(stdout), String::from_utf8(stderr));
            let (stdout, stderr) = (stdout.unwrap(), stderr.unwrap());
            assert_eq!(status.code(), Some(code), "{command:?}: {stdout}{stderr}");
            assert!(stderr.contains(word), "{command:?}: {stderr}");
            let refused = stderr.contains("UNAUTHENTICATED");
            assert_eq!(refused, code == 77, "{command:?}: {stderr}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_tls_is_told_that_the_port_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let node = Process::start(&folder.path().join("data"), Ports::free(), &[]);
    let node = node.ready().await;

    let tls = Tls::new().ca_pem(Authority::new("ours").pem());
    let address = format!("https://127.0.0.1:{}", node.ports.client);
    let builder = Client::builder().endpoints([address]).tls(tls);
    let why = builder.connect().await.unwrap_err().to_string();
    assert!(why.contains("it does not speak TLS; use http://"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_replaced_without_a_restart() {
    let secured = Secured::start(false).await;
    let before = secured.connect(secured.trusting()).await.unwrap();
    let later = Authority::new("a later one");
    let former = Tls::new().ca_pem(secured.servers.pem());

    drop(
        later
            .sign(&["127.0.0.1", "n1.example"])
            .save(secured.folder.path(), "node"),
    );

    let why = secured.connect(former).await.unwrap_err();
    assert!(why.contains("none of the CAs that were named"), "{why}");
    let after = secured
        .connect(Tls::new().ca_pem(later.pem()))
        .await
        .unwrap();
    take(&after, "jobs/after").await;
    // A connection lasts, whatever becomes of the file.
    take(&before, "jobs/before").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_cannot_be_used_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new("ours");
    let (own, other) = (ours.sign(&["x"]), ours.sign(&["x"]));
    let own = own.save(folder.path(), "own");
    let other = other.save(folder.path(), "other");

    let mut command = crate::process::command();
    command.arg("--cert-file").arg(&own.certificate);
    let refused = command.arg("--key-file").arg(&other.key);
    let refused = tokio::time::timeout(PATIENCE, async { refused.output().unwrap() }).await;

    let refused = refused.unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(told.contains("--key-file is `"), "{told}");
    assert!(
        told.contains("it is not the key of the certificate"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_of_chaos_is_worked_on_with_tls() {
    let secured = Secured::start(false).await;
    let report = secured.file("report");
    let chaos = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
        command.env_clear().stdin(Stdio::null());
        // Files are named from where the command stands, and its clients stand elsewhere.
        command.current_dir(secured.folder.path());
        command.args(["chaos", "--clients=2", "--duration=3s", "--report"]);
        command.arg(&report).arg("--target").arg(secured.address());
        command.args(flags).output().unwrap()
    };

    let output = chaos(&["--cacert=servers.pem"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let told = std::fs::read(report.join("report.json")).expect(&said);
    let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
    assert_ne!(told["verdict"], "invalid", "{told}");
    let history = std::fs::read_to_string(report.join("history.jsonl")).unwrap();
    assert!(history.contains("\"granted\""), "{history:.2000}");

    let output = chaos(&[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("the target does not serve"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn http_1_and_2_are_spoken_over_tls_with_the_same_demands() {
    let secured = Secured::start(true).await;
    let curl = |version: &str, shows: bool| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", version, "-w", " %{http_version} %{http_code}"]);
        curl.arg("--cacert").arg(secured.file("servers.pem"));
        if shows {
            curl.arg("--cert").arg(secured.file("client.pem"));
            curl.arg("--key").arg(secured.file("client.key"));
        }
        curl.arg(format!("https://{}/v1/leases", secured.address()));
        curl.output().expect("the tests need curl")
    };
    for (flag, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let said = curl(flag, true);
        let out = String::from_utf8_lossy(&said.stdout);
        assert!(out.ends_with(&format!("}} {version} 200")), "{said:?}");
        assert!(!curl(flag, false).status.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_is_named_in_the_log_and_the_node_goes_on() {
    let secured = Secured::start(false).await;
    let named = |text: &str| secured.node.logged().contains(text);
    assert!(!named("a certificate is refused"));
    secured.replace(&secured.servers.sign_expired(&["127.0.0.1"]));
    let said = async {
        while !named("a certificate is refused: it has ended, on 2020-01-01") {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, said).await;
    assert!(in_time.is_ok(), "{}", secured.node.logged());
    assert!(named("ERROR") && named("#a-certificate-has-expired"));

    secured.replace(&secured.servers.sign(&["127.0.0.1"]));
    let client = secured.connect(secured.trusting()).await;
    client.expect("the node goes on").shutdown().await.unwrap();
}
