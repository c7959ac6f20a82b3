//! The way to the collector. Nothing that it does, or leaves undone, reaches further than here: each
//! call has an end in time, each answer one in bytes, and what it does not take is dropped in the end.

use std::error::Error;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::Limited;
use hyper_util::client::legacy::connect::HttpConnector;
use rand::Rng;
use ringfence_tls::Connector;
use tokio::time::{sleep, timeout};
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt;
use tower::Service;

use super::figures::{Figures, Signal};
use super::messages::{ExportResponse, PartialSuccess};
use crate::authorities;
use crate::config::{Otlp, Trust};
use crate::limits::{
    OTLP_ANSWER_BYTES_MAX, OTLP_CONNECT_MAX, OTLP_PAUSE_MAX, OTLP_PAUSE_MIN, OTLP_TRIES_MAX,
};

/// How much of what a collector says of an error is logged, in letters.
const WORDS_MAX: usize = 200;
/// Shorter words of a header are no secrets, and would be found in every sentence.
const SECRET_BYTES_MIN: usize = 6;

/// A collector.
#[derive(Clone)]
pub(super) struct Collector {
    channel: Bounded,
    headers: MetadataMap,
    /// What a collector may repeat of them and no log may show.
    secrets: Vec<String>,
    timeout: Duration,
    figures: Figures,
}

impl Collector {
    /// Reads what TLS needs; it connects when there is something to export.
    ///
    /// # Errors
    /// What cannot be used, and what to do.
    pub(super) fn new(otlp: &Otlp, figures: Figures) -> Result<Self, String> {
        let most = u32::try_from(OTLP_ANSWER_BYTES_MAX).unwrap_or(u32::MAX);
        let endpoint = Endpoint::from(otlp.endpoint.clone())
            .user_agent(concat!("ringfence/", env!("CARGO_PKG_VERSION")))
            .map_err(|error| error.to_string())?
            .connect_timeout(OTLP_CONNECT_MAX)
            .initial_stream_window_size(most)
            .initial_connection_window_size(most)
            .http2_max_header_list_size(most);
        let channel = match &otlp.trust {
            Trust::Plain => endpoint.connect_with_connector_lazy(plain()),
            Trust::Machine => {
                let tls = authorities::trusting().map_err(|error| error.to_string())?;
                let tls = tls.https_only().enable_http2().wrap_connector(plain());
                endpoint.connect_with_connector_lazy(tls)
            }
            Trust::Files(tls) => {
                let tls = Connector::new(tls.clone()).map_err(|error| error.to_string())?;
                endpoint.connect_with_connector_lazy(tls.connect_timeout(OTLP_CONNECT_MAX))
            }
        };
        let values = otlp.headers.iter().map(|(_, value)| value.as_bytes());
        let values = values.map(|value| String::from_utf8_lossy(value).into_owned());
        Ok(Self {
            channel: Bounded(channel),
            secrets: values.flat_map(parts).collect(),
            headers: MetadataMap::from_headers(otlp.headers.iter().cloned().collect()),
            timeout: otlp.timeout,
            figures,
        })
    }

    /// What it says of an error, for a log.
    pub(super) fn words(&self, status: &Status) -> String {
        words(status, &self.secrets)
    }

    /// Exports something, in several tries. Returns how many items the collector did not take.
    pub(super) async fn export<M>(&self, signal: Signal, message: &M) -> Result<u64, Status>
    where
        M: prost::Message + Clone + 'static,
    {
        let mut pause = OTLP_PAUSE_MIN;
        let mut tries = 1;
        loop {
            let status = match self.export_once(signal, message).await {
                Ok(rejected) => return Ok(rejected),
                Err(status) => status,
            };
            if tries == OTLP_TRIES_MAX || !may_try_again(&status) {
                return Err(status);
            }
            tries += 1;
            let asked = asked_pause(&status).unwrap_or_default();
            // Not all nodes at once.
            let jittered = pause.mul_f64(rand::rng().random_range(0.5..1.0));
            sleep(jittered.max(asked).min(OTLP_PAUSE_MAX)).await;
            pause = (pause * 2).min(OTLP_PAUSE_MAX);
        }
    }

    /// The same in one try.
    pub(super) async fn export_once<M>(&self, signal: Signal, message: &M) -> Result<u64, Status>
    where
        M: prost::Message + Clone + 'static,
    {
        let path = match signal {
            Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        };
        let mut request = Request::new(message.clone());
        *request.metadata_mut() = self.headers.clone();
        let mut client =
            Grpc::new(self.channel.clone()).max_decoding_message_size(OTLP_ANSWER_BYTES_MAX);
        let call = async {
            client.ready().await.map_err(|error| unreachable(&error))?;
            let codec = ProstCodec::<M, ExportResponse>::default();
            let path = PathAndQuery::from_static(path);
            client.unary(request, path, codec).await
        };
        let answer = match timeout(self.timeout, call).await {
            Ok(answer) => answer,
            Err(_) => Err(Status::deadline_exceeded(format!(
                "it did not answer within {:?}",
                self.timeout
            ))),
        };
        let answer = answer.inspect_err(|_| self.figures.failed(signal))?;
        let rejected = match answer.into_inner().partial_success {
            Some(PartialSuccess { rejected, .. }) => u64::try_from(rejected).unwrap_or(0),
            None => 0,
        };
        Ok(rejected)
    }
}

fn plain() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(OTLP_CONNECT_MAX));
    // `https://` is for what is around it.
    tcp.enforce_http(false);
    tcp
}

fn unreachable(error: &tonic::transport::Error) -> Status {
    Status::unavailable(innermost(error).to_string())
}

/// What led to an error in the first place.
fn innermost<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut cause = error;
    while let Some(earlier) = cause.source() {
        cause = earlier;
    }
    cause
}

/// Whether OTLP lets this be tried again.
fn may_try_again(status: &Status) -> bool {
    match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        Code::ResourceExhausted => asked_pause(status).is_some(),
        _ => false,
    }
}

/// How long the collector asks to wait.
fn asked_pause(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

/// What of a header's value is a secret if it stands alone: the whole, and each word, as that behind
/// `Bearer`. Longer ones first.
fn parts(value: String) -> Vec<String> {
    let words = value.split([' ', ',', ';', '=']).map(str::to_owned);
    let mut parts: Vec<String> = words
        .chain([value.clone()])
        .filter(|part| part.len() >= SECRET_BYTES_MIN)
        .collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
    parts
}

/// What a collector says of an error, cut short and in one line, without these secrets.
fn words(status: &Status, secrets: &[String]) -> String {
    let cause = status.source().map(|first| innermost(first).to_string());
    let text = match cause {
        Some(cause) => format!("{}: {cause}", status.message()),
        None => status.message().to_owned(),
    };
    let text = secrets
        .iter()
        .fold(text, |text, secret| text.replace(secret.as_str(), "***"));
    let plain = text.chars().map(|letter| match letter.is_control() {
        true => ' ',
        false => letter,
    });
    format!(
        "{:?}: {}",
        status.code(),
        plain.take(WORDS_MAX).collect::<String>()
    )
}

/// A channel whose answers end at [`OTLP_ANSWER_BYTES_MAX`], however many messages they are of.
#[derive(Clone)]
struct Bounded(Channel);

impl Service<http::Request<Body>> for Bounded {
    type Response = http::Response<Body>;
    type Error = tonic::transport::Error;
    type Future = futures_util::future::MapOk<
        <Channel as Service<http::Request<Body>>>::Future,
        fn(http::Response<Body>) -> http::Response<Body>,
    >;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        use futures_util::TryFutureExt as _;
        let bound: fn(http::Response<Body>) -> http::Response<Body> =
            |answer| answer.map(|body| Body::new(Limited::new(body, OTLP_ANSWER_BYTES_MAX)));
        self.0.call(request).map_ok(bound)
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn what_otlp_lets_be_tried_again_is() {
        for code in [Code::Unavailable, Code::DeadlineExceeded, Code::Aborted] {
            assert!(may_try_again(&Status::new(code, "")), "{code:?}");
        }
        for code in [
            Code::InvalidArgument,
            Code::Unauthenticated,
            Code::Unimplemented,
        ] {
            assert!(!may_try_again(&Status::new(code, "")), "{code:?}");
        }
        let full = Status::new(Code::ResourceExhausted, "");
        assert!(!may_try_again(&full));
        let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(7)));
        let later = Status::with_error_details(Code::ResourceExhausted, "", details);
        assert!(may_try_again(&later));
        assert_eq!(asked_pause(&later), Some(Duration::from_secs(7)));
    }

    #[test]
    fn what_a_collector_repeats_of_a_header_is_not_logged() {
        let secrets = parts("Bearer hunter2-and-more".to_owned());
        for said in [
            "invalid credentials: Bearer hunter2-and-more",
            "no such token hunter2-and-more",
        ] {
            let words = words(&Status::unauthenticated(said), &secrets);
            assert!(
                words.contains("***") && !words.contains("hunter2"),
                "{words}"
            );
        }
    }

    #[test]
    fn what_a_collector_says_is_cut_short_and_stays_in_its_line() {
        let status = Status::internal(format!("first\nsecond\u{1b}[31m{}", "x".repeat(1_000)));
        let words = words(&status, &[]);
        assert!(words.starts_with("Internal: first second"), "{words}");
        assert!(words.chars().count() < WORDS_MAX + 20);
        assert!(!words.contains(['\n', '\u{1b}']));
    }
}
