//! Traces and metrics for a collector of OpenTelemetry, and collectors that harm no node.

mod bounds;
mod collector;
mod hostile;

use std::collections::BTreeMap;

use ringfence_client::{Client, TraceParent};
use ringfence_proto::v1;
use ringfence_proto::v1::client_frame::Body as Ask;
use ringfence_testkit::certificates::Authority;
use ringfence_tls::{Acceptor, Pem, ServerTls};
use tempfile::TempDir;
use tonic::Request;

use self::collector::{Collector, Span};
use crate::api::{Api, acquire_request};
use crate::cluster::{port_of, three_with};
use crate::process::{GLANCE, PATIENCE, Ports, Process, command};
use crate::stream::Wire;

/// A caller's trace, and its span in it.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

fn traceparent(sampled: bool) -> String {
    format!("00-{TRACE}-{CALLER}-0{}", u8::from(sampled))
}

/// The request in the caller's trace.
fn within<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let header = traceparent(true).parse().unwrap();
    request.metadata_mut().insert("traceparent", header);
    request
}

/// A node that exports, with these variables too.
async fn exporting(
    collector: &str,
    variables: &[(&str, &str)],
    more: &[&str],
) -> (Process, TempDir) {
    let dir = TempDir::new().unwrap();
    let flags = [&["--token-floor=0", "--name=n1", collector], more].concat();
    let at = dir.path().join("n1");
    let node = Process::start_in(variables, &at, Ports::free(), &flags);
    (node.ready().await, dir)
}

/// The only span of this name; the others of its trace are shown if it is not there.
#[track_caller]
fn named<'a>(spans: &'a [Span], name: &str, kind: &str) -> &'a Span {
    let mut found = spans
        .iter()
        .filter(|span| span.name == name && span.kind == kind);
    match (found.next(), found.next()) {
        (Some(only), None) => only,
        _ => panic!("not one {kind} span {name} in {spans:#?}"),
    }
}

const ACQUIRE: &str = "ringfence.v1.Leases/Acquire";
const FORWARD: &str = "ringfence.raft.v1.Peers/Forward";

/// What a request by way of a follower has to show. The parts of the leader are within those of the
/// follower, as far as the clocks of one machine say.
#[track_caller]
fn assert_whole(spans: &[Span], name: &str, follower: &str, leader: &str) {
    let of_call = named(spans, name, "Server");
    assert_eq!((&*of_call.parent, &*of_call.node), (CALLER, follower));
    let asking = named(spans, FORWARD, "Client");
    assert_eq!((&asking.parent, &*asking.node), (&of_call.id, follower));
    let serving = named(spans, FORWARD, "Server");
    assert_eq!((&serving.parent, &*serving.node), (&asking.id, leader));
    let commit = named(spans, "ringfence.commit", "Internal");
    let apply = named(spans, "ringfence.apply", "Internal");
    for part in [commit, apply] {
        assert_eq!((&part.parent, &*part.node), (&serving.id, leader));
    }
    assert_eq!(commit.ended, apply.begun);
    for span in spans {
        assert!(span.begun <= span.ended && !span.failed, "{span:#?}");
    }
    assert!(of_call.begun <= asking.begun && asking.ended <= of_call.ended);
}

#[tokio::test]
async fn one_trace_shows_a_call_from_the_follower_to_its_entry_at_the_leader() {
    let collector = Collector::start().await;
    let flag = collector.flag();
    let flags: &[&str] = &[&flag, "--trace-sample=0"];
    let (nodes, _dir) = three_with([flags; 3]).await;
    let mut api = Api::of(&nodes[0]).await;
    let leader = api.status().await.leader_id;
    let follower = if leader == 1 { 2 } else { 1 };
    let (leader, at) = (format!("n{leader}"), format!("n{follower}"));
    let url = format!("http://127.0.0.1:{}", port_of(follower, &nodes));
    let mut api = Api::at(url.clone()).await;
    let alice = api.open("alice").await;

    let request = within(acquire_request(&alice, 1, "billing/ledger"));
    api.leases.acquire(request).await.unwrap();
    let spans = collector.trace(TRACE, 5).await;
    assert_whole(&spans, ACQUIRE, &at, &leader);
    let of_call = named(&spans, ACQUIRE, "Server");
    let expected = [
        ("ringfence.lease.name", "billing/ledger"),
        ("rpc.method", ACQUIRE),
        ("rpc.response.status_code", "OK"),
        ("rpc.system.name", "grpc"),
    ];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(of_call.attributes, BTreeMap::from(expected));
    let index = &named(&spans, "ringfence.apply", "Internal").attributes["ringfence.log.index"];
    assert!(index.parse::<u64>().unwrap() > 0);
    println!("{}", drawn(&spans, CALLER));

    // The same by the library, which finds the leader and names its caller in a frame of its stream.
    let client = Client::builder()
        .endpoints([url])
        .trace_context(|| TraceParent::parse(&traceparent(true).replace("4bf92f", "5bf92f")))
        .connect()
        .await
        .unwrap();
    let lease = client.lock("billing/other").await.unwrap();
    let trace = TRACE.replace("4bf92f", "5bf92f");
    let spans = collector.trace(&trace, 3).await;
    let of_call = spans
        .iter()
        .find(|span| span.attributes.get("ringfence.lease.name") == Some(&"billing/other".into()))
        .expect("the span of the acquire");
    assert_eq!(of_call.parent, CALLER);
    assert_eq!(of_call.attributes["ringfence.transport"], "stream");
    lease.release().await.unwrap();
}

/// A trace as text, the parts below their whole, each with its node and its time in microseconds.
fn drawn(spans: &[Span], parent: &str) -> String {
    fn draw(spans: &[Span], parent: &str, depth: usize, lines: &mut Vec<String>) {
        let mut parts: Vec<&Span> = spans.iter().filter(|span| span.parent == parent).collect();
        parts.sort_by_key(|span| span.begun);
        for span in parts {
            let micros = (span.ended - span.begun) / 1_000;
            let label = format!("{}{} {}", "  ".repeat(depth), span.kind, span.name);
            lines.push(format!("{label:<52} {} {micros:>7} us", span.node));
            draw(spans, &span.id, depth + 1, lines);
        }
    }
    let mut lines = Vec::new();
    draw(spans, parent, 0, &mut lines);
    lines.join("\n")
}

#[tokio::test]
async fn frames_and_calls_in_json_have_spans_and_refusals_their_reasons() {
    let collector = Collector::start().await;
    let (node, _dir) = exporting(&collector.flag(), &[], &["--trace-sample=0"]).await;
    let mut api = Api::of(&node).await;
    let (alice, bob) = (api.open("alice").await, api.open("bob").await);
    api.acquire(&alice, 1, "db").await.unwrap();

    let mut wire = Wire::open(&mut api).await.unwrap();
    let ask = Ask::Acquire(acquire_request(&bob, 1, "db"));
    let frame = v1::ClientFrame {
        id: 1,
        body: Some(ask),
        traceparent: traceparent(true).into(),
    };
    let untraced = v1::ClientFrame {
        id: 2,
        body: Some(Ask::Acquire(acquire_request(&bob, 2, "other"))),
        // No format, and no text: it is ignored, and the stream goes on.
        traceparent: vec![0xff, 0xfe].into(),
    };
    wire.send(vec![frame, untraced]);
    wire.reply().await;
    wire.reply().await;
    let spans = collector.trace(TRACE, 3).await;
    let refused = named(&spans, ACQUIRE, "Server");
    assert_eq!(refused.attributes["ringfence.reason"], "HELD");
    let status = &refused.attributes["rpc.response.status_code"];
    assert_eq!(status, "FAILED_PRECONDITION");
    assert!(!refused.failed, "the node has done what it should");
    assert_eq!(collector.spans().len(), 3, "{:#?}", collector.spans());

    let trace = TRACE.replace("4bf92f", "6bf92f");
    let header = traceparent(true).replace("4bf92f", "6bf92f");
    let client = reqwest_like(&node, "/v1/leases/db", &header).await;
    assert_eq!(client, 200);
    let spans = collector.trace(&trace, 1).await;
    let read = named(&spans, "GET /v1/leases/{name}", "Server");
    assert_eq!(read.attributes["http.route"], "/v1/leases/{name}");
    assert_eq!(read.attributes["http.response.status_code"], "200");
    assert_eq!(read.attributes["url.path"], "/v1/leases/db");
    assert_eq!(read.attributes["url.scheme"], "http");
    assert_eq!(read.attributes["server.address"], "localhost");
    assert_eq!(read.attributes["ringfence.lease.name"], "db");
}

/// Asks the client port by HTTP/1.1; the status of the answer.
async fn reqwest_like(node: &Process, path: &str, traceparent: &str) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = ("127.0.0.1", node.ports.client);
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\ntraceparent: {traceparent}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_metrics_of_a_collector_are_those_of_the_page() {
    let collector = Collector::start().await;
    let variables = [
        ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "deployment.environment.name=test",
        ),
    ];
    let (node, _dir) = exporting(&collector.flag(), &variables, &["--trace-sample=0"]).await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    api.acquire(&alice, 1, "db").await.unwrap();
    api.acquire(&alice, 2, "db/2").await.unwrap();

    drop(collector.next_page().await);
    let (families, exported) = collector.next_page().await;
    let (_, page) = node.http("/metrics").unwrap();
    let shown: BTreeMap<String, String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|line| line.split_once(' '))
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect();
    assert_eq!(families, shown);
    let on_page: BTreeMap<&str, f64> = page
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains("_bucket"))
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(series, value)| (series, value.parse().unwrap()))
        .collect();
    let names: Vec<&str> = exported.keys().map(String::as_str).collect();
    let expected: Vec<&str> = on_page.keys().copied().collect();
    assert_eq!(names, expected);
    // What nothing has moved since.
    let requests = on_page
        .keys()
        .filter(|name| name.starts_with("ringfence_requests_total{"));
    for series in requests {
        assert_eq!(exported[*series], on_page[series], "{series}");
    }
    let acquired = "ringfence_requests_total{call=\"acquire\",result=\"OK\"}";
    assert_eq!(exported[acquired], 2.0);
    let said = String::from_utf8_lossy(&collector.bytes()).into_owned();
    assert!(said.contains("deployment.environment.name"), "no resource");
}

#[tokio::test]
async fn a_collector_with_tls_is_trusted_by_a_file_or_by_the_machine_and_not_without() {
    let dir = TempDir::new().unwrap();
    let authority = Authority::new("collectors");
    let ca = authority.save(dir.path(), "ca");
    let ca = ca.to_str().unwrap();
    let own = authority.sign(&["127.0.0.1"]).save(dir.path(), "collector");
    let tls = ServerTls {
        certificate: Pem::File(own.certificate),
        key: Pem::File(own.key),
        client_ca: None,
        demand_client_certificate: false,
        peer_names: Vec::new(),
        admit_plain: false,
    };
    let collector = Collector::start_with(Some(Acceptor::new(tls).unwrap())).await;
    let flag = collector.flag().replace("http://", "https://");
    let trusted = [
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", ca),
        ("SSL_CERT_FILE", ca),
    ];
    for (at, variable) in trusted.into_iter().enumerate() {
        let (node, _dir) = exporting(&flag, &[variable], &["--trace-sample=0"]).await;
        let mut api = Api::of(&node).await;
        let first = format!("{at}bf92f");
        let mut request = Request::new(v1::StatusRequest {});
        let header = traceparent(true).replace("4bf92f", &first);
        request
            .metadata_mut()
            .insert("traceparent", header.parse().unwrap());
        api.cluster.status(request).await.unwrap();
        let spans = collector.trace(&TRACE.replace("4bf92f", &first), 1).await;
        named(&spans, "ringfence.v1.Cluster/Status", "Server");
    }

    let (node, _dir) = exporting(&flag, &[], &["--trace-sample=0"]).await;
    let mut api = Api::of(&node).await;
    let before = collector.spans().len();
    api.cluster
        .status(within(v1::StatusRequest {}))
        .await
        .unwrap();
    let refused = async {
        while !node.logged().contains("certificate") {
            tokio::time::sleep(GLANCE).await;
        }
    };
    let refused = tokio::time::timeout(2 * PATIENCE, refused).await;
    assert!(refused.is_ok(), "{}", node.logged());
    assert_eq!(collector.spans().len(), before);
}

#[tokio::test]
async fn no_secret_reaches_the_collector() {
    let collector = Collector::start().await;
    let variables = [
        ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Bearer%20c0llector",
        ),
    ];
    let (node, _dir) = exporting(&collector.flag(), &variables, &["--trace-sample=1"]).await;
    let mut api = Api::of(&node).await;
    let secret = b"s3ss10n-s3cr3t-!";
    let request = v1::OpenRequest {
        secret: secret.to_vec().into(),
        ..crate::api::open_request("alice")
    };
    let opened = api.sessions.open(request).await.unwrap().into_inner();
    let handle = v1::SessionHandle {
        session: opened.session,
        secret: secret.to_vec().into(),
    };
    let mut request = within(v1::AcquireRequest {
        data: b"h0lder-data".to_vec().into(),
        ..acquire_request(&handle, 1, "db")
    });
    let token = "Bearer rft_7_cr3dential".parse().unwrap();
    request.metadata_mut().insert("authorization", token);
    let acquired = api.leases.acquire(request).await;
    assert!(acquired.is_ok(), "{acquired:?}");
    let mut wire = Wire::open(&mut api).await.unwrap();
    let keep_alive = v1::KeepAliveRequest {
        id: 1,
        sessions: vec![handle.clone()],
        ..Default::default()
    };
    wire.ask([(1, Ask::KeepAlive(keep_alive))]);
    wire.reply().await;
    drop(
        api.sessions
            .close(v1::CloseRequest {
                session: Some(handle),
            })
            .await
            .unwrap(),
    );
    drop(collector.trace(TRACE, 3).await);
    drop(collector.next_page().await);

    let sent = collector.bytes();
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let words: [Vec<u8>; 6] = [
        secret.to_vec(),
        hex(secret).into_bytes(),
        b"c3NzMTBuLXMzY3Iz".to_vec(),
        b"cr3dential".to_vec(),
        b"h0lder-data".to_vec(),
        b"c0llector".to_vec(),
    ];
    for word in words {
        let found = sent.windows(word.len()).any(|part| part == word);
        assert!(!found, "{} was sent", String::from_utf8_lossy(&word));
    }
    // The collector's own secret is where it belongs, and in no log.
    let shown = collector.headers();
    let shown = shown
        .iter()
        .map(|headers| headers.get("authorization").unwrap());
    assert!(shown.into_iter().all(|header| header == "Bearer c0llector"));
    assert!(!node.logged().contains("c0llector"), "{}", node.logged());
}

#[tokio::test]
async fn a_configuration_that_cannot_be_used_is_refused_without_its_secrets() {
    let refused = |flag: &str, variable: (&str, &str)| {
        let mut command = command();
        command.arg(flag).env(variable.0, variable.1);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            !said.contains("s3cret") && !said.contains("panicked"),
            "{said}"
        );
        said
    };
    let good = "--otlp-endpoint=http://127.0.0.1:4317";
    let nothing = ("OTEL_SERVICE_NAME", "leases");
    let said = refused("--otlp-endpoint=http://u:s3cret@host:4317", nothing);
    assert!(
        said.contains("--otlp-endpoint") && said.contains("HOST:PORT"),
        "{said}"
    );
    let said = refused("--trace-sample=1.5", nothing);
    assert!(said.contains("--trace-sample is `1.5`"), "{said}");
    let said = refused(good, ("OTEL_EXPORTER_OTLP_HEADERS", "authorization:s3cret"));
    assert!(
        said.contains("OTEL_EXPORTER_OTLP_HEADERS is no list"),
        "{said}"
    );
    let said = refused(good, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"));
    assert!(
        said.contains("OTEL_EXPORTER_OTLP_PROTOCOL is not `grpc`"),
        "{said}"
    );
}
