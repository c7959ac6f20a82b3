//! A collector in the test's own process. It reads what a node sends with the code that the
//! OpenTelemetry project generates from its formats.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1 as metrics_service;
use opentelemetry_proto::tonic::collector::trace::v1 as trace_service;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span as Encoded;
use prost::Message;
use ringfence_tls::{Acceptor, Port, PortLimits};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tonic::metadata::MetadataMap;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::process::{GLANCE, PATIENCE};

/// A span, as tests look at it.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// Of the node that sent it: `service.instance.id`.
    pub(crate) node: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) name: String,
    /// `Server`, `Client` or `Internal`.
    pub(crate) kind: String,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) failed: bool,
}

#[derive(Default)]
struct Seen {
    spans: Vec<Span>,
    /// The newest value of each series, as `/metrics` writes it.
    series: BTreeMap<String, f64>,
    families: BTreeMap<String, String>,
    pages: usize,
    /// Everything, as it was sent.
    bytes: Vec<u8>,
    headers: Vec<MetadataMap>,
}

/// A collector that listens.
#[derive(Clone)]
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    /// The same with TLS, if it has a certificate.
    pub(crate) async fn start_with(tls: Option<Acceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let collector = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
        };
        let traces =
            trace_service::trace_service_server::TraceServiceServer::new(collector.clone());
        let metrics =
            metrics_service::metrics_service_server::MetricsServiceServer::new(collector.clone());
        let figures = Arc::default();
        let port = Port::new("client", listener, tls, PortLimits::http(100), figures);
        let served = Server::builder()
            .add_service(traces)
            .add_service(metrics)
            .serve_with_incoming(port.incoming());
        tokio::spawn(served);
        collector
    }

    pub(crate) fn flag(&self) -> String {
        format!("--otlp-endpoint=http://{}", self.address)
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.seen.lock().unwrap().spans.clone()
    }

    pub(crate) fn spans_of(&self, trace: &str) -> Vec<Span> {
        let of_trace = |span: &Span| span.trace == trace;
        self.spans().into_iter().filter(of_trace).collect()
    }

    /// The spans of a trace, once there are so many.
    pub(crate) async fn trace(&self, trace: &str, spans: usize) -> Vec<Span> {
        let there = async {
            loop {
                let seen = self.spans_of(trace);
                if seen.len() >= spans {
                    return seen;
                }
                sleep(GLANCE).await;
            }
        };
        match timeout(PATIENCE, there).await {
            Ok(spans) => spans,
            Err(_) => panic!("of {spans} spans came {:#?}", self.spans()),
        }
    }

    /// Waits for one more page of figures.
    pub(crate) async fn next_page(&self) -> (BTreeMap<String, String>, BTreeMap<String, f64>) {
        let before = self.seen.lock().unwrap().pages;
        let there = async {
            while self.seen.lock().unwrap().pages == before {
                sleep(GLANCE).await;
            }
            // A page may come in several messages.
            sleep(Duration::from_millis(200)).await;
        };
        timeout(PATIENCE, there).await.expect("a page of figures");
        let seen = self.seen.lock().unwrap();
        (seen.families.clone(), seen.series.clone())
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.seen.lock().unwrap().bytes.clone()
    }

    pub(crate) fn headers(&self) -> Vec<MetadataMap> {
        self.seen.lock().unwrap().headers.clone()
    }

    fn take<M: Message>(&self, request: &Request<M>) {
        let mut seen = self.seen.lock().unwrap();
        request.get_ref().encode(&mut seen.bytes).unwrap();
        seen.headers.push(request.metadata().clone());
    }
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("an attribute is {other:?}"),
    }
}

fn attributes(pairs: &[KeyValue]) -> BTreeMap<String, String> {
    let of_pair = |pair: &KeyValue| (pair.key.clone(), text(pair.value.as_ref()));
    let all: BTreeMap<_, _> = pairs.iter().map(of_pair).collect();
    assert_eq!(all.len(), pairs.len(), "an attribute is there twice");
    all
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn span(node: &str, span: &Encoded) -> Span {
    Span {
        node: node.to_owned(),
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        name: span.name.clone(),
        kind: format!("{:?}", span.kind()),
        begun: span.start_time_unix_nano,
        ended: span.end_time_unix_nano,
        attributes: attributes(&span.attributes),
        failed: span.status.as_ref().is_some_and(|status| status.code == 2),
    }
}

#[tonic::async_trait]
impl trace_service::trace_service_server::TraceService for Collector {
    async fn export(
        &self,
        request: Request<trace_service::ExportTraceServiceRequest>,
    ) -> Result<Response<trace_service::ExportTraceServiceResponse>, Status> {
        self.take(&request);
        let mut seen = self.seen.lock().unwrap();
        for of_node in request.into_inner().resource_spans {
            let resource = attributes(&of_node.resource.unwrap().attributes);
            let node = &resource["service.instance.id"];
            let spans = of_node.scope_spans.iter().flat_map(|scope| &scope.spans);
            seen.spans.extend(spans.map(|one| span(node, one)));
        }
        Ok(Response::new(Default::default()))
    }
}

/// A series as a line of `/metrics` names it.
fn series(name: &str, ending: &str, labels: &[KeyValue], more: Option<(&str, String)>) -> String {
    let labels = labels
        .iter()
        .map(|pair| (&*pair.key, text(pair.value.as_ref())));
    let labels: Vec<String> = labels
        .chain(more)
        .map(|(key, value)| format!("{key}=\"{value}\""))
        .collect();
    match labels.is_empty() {
        true => format!("{name}{ending}"),
        false => format!("{name}{ending}{{{}}}", labels.join(",")),
    }
}

impl Seen {
    fn take(&mut self, metric: Metric) {
        let name = metric.name;
        let (kind, points, ending) = match metric.data.unwrap() {
            metric::Data::Gauge(gauge) => ("gauge", gauge.data_points, ""),
            metric::Data::Sum(sum) => {
                assert!(
                    sum.is_monotonic && sum.aggregation_temporality == 2,
                    "{name}"
                );
                ("counter", sum.data_points, "_total")
            }
            metric::Data::Histogram(histogram) => {
                assert_eq!(histogram.aggregation_temporality, 2, "{name}");
                for point in histogram.data_points {
                    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
                    assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
                    let of = |ending| series(&name, ending, &point.attributes, None);
                    self.series.insert(of("_count"), point.count as f64);
                    self.series.insert(of("_sum"), point.sum.unwrap());
                }
                self.families.insert(name, "histogram".to_owned());
                return;
            }
            other => panic!("{name} is {other:?}"),
        };
        for point in points {
            assert!(point.start_time_unix_nano > 0, "{name}");
            assert!(point.time_unix_nano >= point.start_time_unix_nano, "{name}");
            let value = match point.value.unwrap() {
                number_data_point::Value::AsDouble(value) => value,
                number_data_point::Value::AsInt(value) => value as f64,
            };
            let of = series(&name, ending, &point.attributes, None);
            self.series.insert(of, value);
        }
        self.families.insert(name, kind.to_owned());
    }
}

#[tonic::async_trait]
impl metrics_service::metrics_service_server::MetricsService for Collector {
    async fn export(
        &self,
        request: Request<metrics_service::ExportMetricsServiceRequest>,
    ) -> Result<Response<metrics_service::ExportMetricsServiceResponse>, Status> {
        self.take(&request);
        let mut seen = self.seen.lock().unwrap();
        let of_nodes = request.into_inner().resource_metrics;
        let scopes = of_nodes
            .into_iter()
            .flat_map(|of_node| of_node.scope_metrics);
        for metric in scopes.flat_map(|scope| scope.metrics) {
            seen.take(metric);
        }
        seen.pages += 1;
        Ok(Response::new(Default::default()))
    }
}
