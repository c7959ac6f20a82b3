//! The HTTP port: `/livez`, `/readyz` and `/metrics`, for probes and for Prometheus, and `/console/`, for
//! browsers.
//!
//! Health and the page of the console are for all callers: the page has no data in it. Everything else
//! is judged as calls at the client port are: by the same credentials and rules, and with the same
//! limits of failed proofs.

mod console;
mod judge;

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use ringfence_tls::{Port, PortLimits};

use self::judge::{Door, Shown, judged};
use crate::descriptors::room_for_probes;
use crate::limits::{HTTP_CONNECTIONS_MAX, HTTP_SILENCE_MAX};
use crate::metrics::Metrics;
use crate::progress::Progress;

pub(crate) use self::judge::Judge;

/// The text form that Prometheus asks for by name.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The limits of ports like this one, in a process that may have so many files open.
pub(crate) fn limits(descriptors: Option<u64>) -> PortLimits {
    let connections = room_for_probes(HTTP_CONNECTIONS_MAX, descriptors);
    PortLimits::http1(connections, HTTP_SILENCE_MAX)
}

/// Serves the port until `stop` resolves.
pub(crate) async fn serve(
    port: Port,
    judge: Judge,
    progress: Progress,
    metrics: Arc<Metrics>,
    has_tls: bool,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let health = Router::new()
        // A node that knows that it cannot go on ends its process; this finds the others.
        .route("/livez", get(alive).with_state(progress.clone()))
        .route("/readyz", get(ready).with_state(progress));
    let others = Router::new()
        .route("/metrics", get(show).with_state(metrics))
        .fallback(absent)
        .layer(from_fn_with_state(judge.clone(), judged));
    let console = console::router(judge.clone(), has_tls);
    let routes = health.merge(console).merge(others);
    let routes = routes.into_make_service_with_connect_info::<Shown>();
    axum::serve(Door::new(port, judge), routes)
        .with_graceful_shutdown(stop)
        .await
}

async fn alive(State(progress): State<Progress>) -> Response {
    verdict("stuck", progress.alive(), None)
}

async fn ready(State(progress): State<Progress>) -> Response {
    verdict("not ready", progress.check(), progress.remark())
}

fn verdict(otherwise: &str, found: Result<(), String>, remark: Option<&str>) -> Response {
    match (found, remark) {
        (Ok(()), None) => "ok\n".into_response(),
        (Ok(()), Some(remark)) => format!("ok\n{remark}\n").into_response(),
        (Err(why), _) => {
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

async fn absent() -> Response {
    let told = "no such page; there are /livez, /readyz, /metrics and /console/\n";
    (StatusCode::NOT_FOUND, told).into_response()
}
