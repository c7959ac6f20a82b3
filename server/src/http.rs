//! The HTTP port: `/livez`, `/readyz` and `/metrics`, for probes and for Prometheus.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use ringfence_tls::{Port, PortLimits};

use crate::descriptors::room_for_probes;
use crate::limits::{HTTP_CONNECTIONS_MAX, HTTP_SILENCE_MAX};
use crate::metrics::Metrics;
use crate::ports::Http1;
use crate::progress::Progress;

/// The text form that Prometheus asks for by name.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The limits of ports like this one, in a process that may have so many files open.
pub(crate) fn limits(descriptors: Option<u64>) -> PortLimits {
    let connections = room_for_probes(HTTP_CONNECTIONS_MAX, descriptors);
    PortLimits::http1(connections, HTTP_SILENCE_MAX)
}

/// Serves the port at `address` until `stop` resolves.
pub(crate) async fn serve(
    port: Port,
    address: SocketAddr,
    progress: Progress,
    metrics: Arc<Metrics>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let routes = Router::new()
        // A node that knows that it cannot go on ends its process; this finds the others.
        .route("/livez", get(alive).with_state(progress.clone()))
        .route("/readyz", get(ready).with_state(progress))
        .route("/metrics", get(show).with_state(metrics));
    axum::serve(Http1::new(port, address), routes)
        .with_graceful_shutdown(stop)
        .await
}

async fn alive(State(progress): State<Progress>) -> Response {
    verdict("stuck", progress.alive())
}

async fn ready(State(progress): State<Progress>) -> Response {
    verdict("not ready", progress.check())
}

fn verdict(otherwise: &str, found: Result<(), String>) -> Response {
    match found {
        Ok(()) => "ok\n".into_response(),
        Err(why) => {
            let told = format!("{otherwise}: {why}\n");
            (StatusCode::SERVICE_UNAVAILABLE, told).into_response()
        }
    }
}

async fn show(State(metrics): State<Arc<Metrics>>) -> Response {
    match metrics.encode() {
        Ok(shown) => ([(header::CONTENT_TYPE, OPEN_METRICS)], shown).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
