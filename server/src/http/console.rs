//! The console: a page for people, and what it reads. It changes nothing.
//!
//! The page is three files in the binary, without data, so any caller may have it. What it reads
//! goes to the services with the credential that the reader has given the page.

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use ringfence_rest::{Console, admit_console};
use ringfence_services::problem;

use super::judge::{Judge, Shown};

const PAGE: &str = include_str!("console/page.html");
const STYLE: &str = include_str!("console/page.css");

/// The program, in the order in which its parts use each other.
const PROGRAM: &str = concat!(
    "\"use strict\";\n(() => {\n",
    include_str!("console/dom.js"),
    include_str!("console/words.js"),
    include_str!("console/node.js"),
    include_str!("console/timeline.js"),
    include_str!("console/cluster.js"),
    include_str!("console/leases.js"),
    include_str!("console/lease.js"),
    include_str!("console/sessions.js"),
    include_str!("console/ends.js"),
    include_str!("console/main.js"),
    "})();\n"
);

/// What the page may load: its own two files and its own reads. Nothing may frame it, and no form or
/// base of a hostile text takes effect.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// What reads for the page, and who may have it.
#[derive(Clone)]
struct Reads {
    judge: Judge,
    calls: Console,
    has_tls: bool,
}

/// The routes of the console.
pub(super) fn router(judge: Judge, has_tls: bool) -> Router {
    let calls = Console::new(&judge.context);
    let reads = Reads {
        judge,
        calls,
        has_tls,
    };
    Router::new()
        .route("/", get(|| async { Redirect::temporary("/console/") }))
        .route(
            "/console",
            get(|| async { Redirect::permanent("/console/") }),
        )
        .route("/console/", get(|| file("text/html; charset=utf-8", PAGE)))
        .route(
            "/console/page.css",
            get(|| file("text/css; charset=utf-8", STYLE)),
        )
        .route(
            "/console/page.js",
            get(|| file("text/javascript; charset=utf-8", PROGRAM)),
        )
        .route("/console/v1/{*rest}", get(read).with_state(reads))
}

async fn file(kind: &'static str, text: &'static str) -> Response {
    let mut response = ([(header::CONTENT_TYPE, kind)], text).into_response();
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        // The files belong to this version of the node.
        (header::CACHE_CONTROL, "no-cache"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A read, as the client port would judge it.
async fn read(
    State(reads): State<Reads>,
    ConnectInfo(Shown(connection)): ConnectInfo<Shown>,
    mut request: Request,
) -> Response {
    let identify = &reads.judge.identify;
    let admitted = identify.admit(&connection.peer, &connection.principals, &mut request);
    let (mut head, body) = request.into_parts();
    let admitted =
        admitted.and_then(|is_proven| admit_console(&mut head, is_proven || reads.has_tls));
    let mut response = match admitted {
        Err(refusal) => problem::refused(&head.headers, refusal),
        Ok(()) => {
            head.extensions.insert(connection.client.clone());
            let request = Request::from_parts(head, body);
            reads.calls.answer(request).await
        }
    };
    // Without a body of its own kind a browser could take a text of an answer for a page.
    let nosniff = HeaderValue::from_static("nosniff");
    response
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response.map(Body::new)
}
