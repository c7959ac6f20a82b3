//! Which fence a request needs, and which it shows.

use http::{HeaderMap, Method, Request};
use ringfence_guard::Fence;
use ringfence_guard::tower::{Policy, TurnedAway};

use crate::Options;

/// Headers by which some services take another method than that of the request.
const OTHER_METHODS: [&str; 3] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
];

/// The fence under which a request comes; `None` if it needs and shows none.
pub(crate) fn fence_of<B>(
    options: &Options,
    request: &Request<B>,
) -> Result<Option<Fence>, TurnedAway> {
    let path = request.uri().path();
    let policy = match options.routes.policy_of(path) {
        // The service may read another path out of it, one that needs a fence.
        Policy::Optional if !is_plain(path) => &Policy::Required,
        policy => policy,
    };
    let is_safe = options.safe_methods && is_safe(request.method(), request.headers());
    let policy = match is_safe {
        true => &Policy::Optional,
        false => policy,
    };
    let fence = policy.fence_of(request.headers())?;
    match fence {
        Some(fence) if !fence.name.as_str().starts_with(&options.prefix) => {
            Err(TurnedAway::Malformed {
                expected: None,
                what: format!(
                    "lease `{}` is none of those that guard this service: their names begin with `{}`",
                    fence.name, options.prefix
                ),
            })
        }
        fence => Ok(fence),
    }
}

/// Whether a method changes nothing (RFC 9110, section 9.2.1), in whatever way the service takes it.
fn is_safe(method: &Method, headers: &HeaderMap) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
        && !OTHER_METHODS.iter().any(|name| headers.contains_key(*name))
}

/// Whether a path means one thing to all services. Not what some shorten, decode again or cut off.
fn is_plain(path: &str) -> bool {
    let segments = path.strip_prefix('/').unwrap_or(path).split('/');
    let last = segments.clone().count();
    let mut numbered = (1..).zip(segments);
    numbered.all(|(at, segment)| {
        // An empty one at the end is that of `/bank/`.
        (at == last || !segment.is_empty()) && segment != "." && segment != ".."
    }) && !path.contains(['%', '\\', ';'])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use ringfence_guard::tower::Routes;

    use super::*;
    use crate::{Limits, Undrained, Upstream};

    fn options(safe_methods: bool) -> Options {
        let mut routes = Routes::default();
        routes.add("/read/*".into(), Policy::Optional);
        Options {
            upstream: Upstream::parse("http://127.0.0.1:1").unwrap(),
            prefix: "bank/".into(),
            routes,
            safe_methods,
            drain: Duration::from_secs(1),
            undrained: Undrained::Refuse,
            request_max: Duration::from_secs(1),
            limits: Limits::default(),
        }
    }

    fn judged(options: &Options, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        match fence_of(options, &request.body(()).unwrap()) {
            Ok(None) => "none".into(),
            Ok(Some(fence)) => fence.to_string(),
            Err(away) => away.reason().into(),
        }
    }

    #[test]
    fn a_path_that_may_mean_another_one_needs_a_fence() {
        let options = options(false);
        for open in ["/read/", "/read/a", "/read/a/b.c", "/read/..a?x=../b"] {
            assert_eq!(judged(&options, "GET", open, &[]), "none", "{open}");
        }
        for shut in [
            "/write",
            "/read",
            "/read/../write",
            "/read/./x",
            "/read//x",
            "/read/..",
            "/read/%2e%2e/write",
            "/read/a%2f..%2f..%2fwrite",
            "/read/..;/write",
            "/read/a;x",
            "//read/x",
        ] {
            assert_eq!(
                judged(&options, "GET", shut, &[]),
                "MISSING_FENCE",
                "{shut}"
            );
        }
    }

    #[test]
    fn a_safe_method_needs_none_if_it_is_no_other_one() {
        let (safe, strict) = (options(true), options(false));
        for method in ["GET", "HEAD", "OPTIONS"] {
            assert_eq!(judged(&safe, method, "/write", &[]), "none");
            assert_eq!(judged(&strict, method, "/write", &[]), "MISSING_FENCE");
        }
        for method in ["POST", "PUT", "PATCH", "DELETE", "TRACE", "PURGE", "get"] {
            assert_eq!(
                judged(&safe, method, "/write", &[]),
                "MISSING_FENCE",
                "{method}"
            );
        }
        let other = [("X-HTTP-Method-Override", "DELETE")];
        assert_eq!(judged(&safe, "GET", "/write", &other), "MISSING_FENCE");
    }

    #[test]
    fn a_fence_that_is_shown_is_judged_wherever_it_is_and_of_these_names_alone() {
        let options = options(true);
        let shown = |lease, token| [("ringfence-lease", lease), ("ringfence-token", token)];
        assert_eq!(
            judged(&options, "GET", "/read/a", &shown("bank/x", "7")),
            "bank/x#7"
        );
        assert_eq!(
            judged(&options, "GET", "/read/a", &shown("shop/x", "7")),
            "MALFORMED_FENCE"
        );
        assert_eq!(
            judged(&options, "GET", "/read/a", &shown("bank/x", "x")),
            "MALFORMED_FENCE"
        );
    }
}
