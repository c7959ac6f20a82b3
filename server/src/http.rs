//! The HTTP port: `/livez`, `/readyz` and `/metrics`, for probes and for Prometheus.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use ringfence_raft::Node;
use tokio::net::TcpListener;

use crate::metrics::Metrics;
use crate::progress;

/// The text form that Prometheus asks for by name.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves the port until `stop` resolves.
pub(crate) async fn serve(
    listener: TcpListener,
    node: Node,
    metrics: Arc<Metrics>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let routes = Router::new()
        // It answers, so it lives: a node that cannot go on ends its process.
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready).with_state(node))
        .route("/metrics", get(show).with_state(metrics));
    axum::serve(listener, routes)
        .with_graceful_shutdown(stop)
        .await
}

async fn ready(State(node): State<Node>) -> Response {
    match progress::check(&node) {
        Ok(()) => "ok\n".into_response(),
        Err(why) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not ready: {why}\n"),
        )
            .into_response(),
    }
}

async fn show(State(metrics): State<Arc<Metrics>>) -> Response {
    match metrics.encode() {
        Ok(shown) => ([(header::CONTENT_TYPE, OPEN_METRICS)], shown).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
