//! `ringfence kube webhook serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use prometheus_client::registry::Registry;
use ringfence_kube::PREFIX;
use ringfence_kube::policy::Carrier;
use ringfence_kube::webhook::{Answer, Offer, Review, judge};
use ringfence_tls::{Acceptor, Port, PortFigures, PortLimits, ServerTls};

use super::asking::Cluster;
use super::door::{Door, REVIEW_BYTES_MAX};
use super::reviews::Reviews;
use crate::cli::kube::figures;
use crate::cli::stderr::log_to_stderr;
use crate::cli::{Failure, Global, signals};
use crate::limits::HTTP_SILENCE_MAX;
use crate::ports::Http1;
use crate::{descriptors, metrics};

/// The most connections of API servers; the oldest makes room.
const CONNECTIONS_MAX: usize = 1_024;
/// How long reviews under way may take at the end.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Answer an API server's question whether a write may be done, by asking the cluster
///
/// The grant of each write's fence has to be in force. If the cluster does not answer within 1.5s,
/// neither does this, and the failure policy of the manifest decides. It answers at most 512
/// questions at a time and 32 MiB of them, each within 2s, and tells the others so at once.
/// Certificates are read again when they change.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence kube webhook serve --listen '[::]:7443' --cert-file tls.crt --key-file tls.key \
    --carrier impersonate --endpoints ringfence.ringfence.svc:7420

Print what makes the API server ask it with `ringfence kube webhook manifest`.")]
pub(crate) struct Serve {
    /// Where the API server asks, with TLS: POST /judge
    #[arg(long, default_value = "[::]:7443", value_name = "IP:PORT")]
    listen: SocketAddr,
    /// The certificate of this port: a PEM file
    #[arg(long, value_name = "FILE")]
    cert_file: PathBuf,
    /// The key of --cert-file, not encrypted: a PEM file
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// Where /metrics and /livez are served, without TLS
    #[arg(long, default_value = "[::]:7424", value_name = "IP:PORT")]
    listen_http: SocketAddr,
    /// How a write carries its fence, as `kube policy` has it
    #[arg(long, value_name = "CARRIER")]
    carrier: Carrier,
    /// What leases are called that are mirrored, as `serve --kube-prefix` says it
    #[arg(long, value_name = "PREFIX", default_value = PREFIX)]
    kube_prefix: String,
}

/// What every question needs.
struct Judge {
    cluster: Cluster,
    carrier: Carrier,
    prefix: String,
    reviews: Reviews,
}

impl Serve {
    pub(super) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        log_to_stderr();
        let tls = ServerTls {
            certificate: self.cert_file.into(),
            key: self.key_file.into(),
            client_ca: None,
            demand_client_certificate: false,
            peer_names: Vec::new(),
            admit_plain: false,
        };
        let tls = Acceptor::http1(tls).map_err(|why| Failure::usage(why.to_string()))?;
        let listener = figures::listen("listen", self.listen)?;
        let http = figures::listen("listen-http", self.listen_http)?;
        let judge = Arc::new(Judge {
            cluster: Cluster::new(global),
            carrier: self.carrier,
            prefix: self.kube_prefix,
            reviews: Reviews::default(),
        });
        let door = Door::new(judge.reviews.clone());
        let mut registry = Registry::with_prefix("ringfence");
        judge
            .reviews
            .register(registry.sub_registry_with_prefix("kube_webhook"));
        let port_figures = Arc::<PortFigures>::default();
        metrics::register_port(&mut registry, "webhook", &port_figures);
        figures::show(http, self.listen_http, registry);
        let routes = Router::new()
            .route("/judge", post(answer))
            .layer(DefaultBodyLimit::max(REVIEW_BYTES_MAX))
            .layer(middleware::from_fn_with_state(door, Door::enter))
            .route("/livez", get(|| async { "ok\n" }))
            .with_state(judge);
        tracing::info!(listen = %self.listen, carrier = %self.carrier, "asks the cluster");
        let (stop, stopping) = tokio::sync::oneshot::channel::<()>();
        descriptors::raise();
        let limits = PortLimits::http1(CONNECTIONS_MAX, HTTP_SILENCE_MAX);
        let port = Port::new("webhook", listener, Some(tls), limits, port_figures);
        let served = axum::serve(Http1::new(port, self.listen), routes)
            .with_graceful_shutdown(async move { drop(stopping.await) });
        let mut served = tokio::spawn(async move { served.await });
        tokio::select! {
            ended = &mut served => {
                let why = ended.map_or_else(|error| error.to_string(), |ended| format!("{ended:?}"));
                return Err(Failure::new(1, "FAULT", format!("the webhook ended on its own: {why}")));
            }
            _ = signals::stop() => {}
        }
        stop.send(()).ok();
        // Connections that an API server keeps open do not hold it up.
        tokio::time::timeout(DRAIN_MAX, served).await.ok();
        Ok(ExitCode::SUCCESS)
    }
}

async fn answer(State(judge): State<Arc<Judge>>, body: Bytes) -> Response {
    let review = match Review::parse(&body) {
        Ok(review) => review,
        Err(why) => {
            judge.reviews.count("malformed");
            return (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response();
        }
    };
    let answer = match judge.answer(&review).await {
        Ok(answer) => answer,
        Err(why) => {
            judge.reviews.count("unanswered");
            tracing::warn!(why, "no answer: the failure policy decides");
            let told = format!("ringfence: the cluster was asked in vain: {why}\n");
            return (StatusCode::SERVICE_UNAVAILABLE, told).into_response();
        }
    };
    judge.reviews.count(match &answer {
        Answer::Admitted => "admitted",
        Answer::Refused(_) => "refused",
    });
    let json = review.answer(&answer).to_string();
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}

impl Judge {
    async fn answer(&self, review: &Review) -> Result<Answer, String> {
        match review.offer(self.carrier, &self.prefix) {
            Offer::Settled(answer) => Ok(answer),
            Offer::Fence { lease, token } => {
                let standing = self.cluster.standing(&lease, token).await?;
                Ok(judge(&lease, token, standing))
            }
        }
    }
}
