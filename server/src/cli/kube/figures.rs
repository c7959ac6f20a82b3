//! A port with figures, for a command that runs for long.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use ringfence_tls::{Port, PortFigures};
use tokio::net::TcpListener;

use crate::cli::Failure;
use crate::http;
use crate::ports::Http1;

/// The text form that Prometheus asks for by name.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Listens on an address.
///
/// # Errors
/// Why that is not possible, and what to do.
pub(super) fn listen(flag: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    ringfence_raft::listen(address).map_err(|why| {
        Failure::usage(format!("--{flag} {address}: {why}"))
            .hint("choose another address, or stop what uses this one")
    })
}

/// Shows `/metrics` and `/livez`, for as long as the process lives.
pub(super) fn show(listener: TcpListener, address: SocketAddr, registry: Registry) {
    let registry = Arc::new(registry);
    let metrics = move || {
        let registry = Arc::clone(&registry);
        async move { shown(&registry) }
    };
    let routes = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/metrics", get(metrics));
    // It ends on its own only if it cannot accept any more, which it says.
    let served = async move {
        let figures = Arc::<PortFigures>::default();
        let port = Port::new("http", listener, None, http::limits(None), figures);
        if let Err(error) = axum::serve(Http1::new(port, address), routes).await {
            tracing::error!(%error, "figures are not shown any more");
        }
    };
    drop(tokio::spawn(served));
}

fn shown(registry: &Registry) -> Response {
    let mut text = String::new();
    match text::encode(&mut text, registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
