//! What needs a fence, and what is refused because it may be read as another request.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use http_body_util::{Empty, Full};
use ringfence_core::LeaseName;

use super::*;
use crate::{Limits, Undrained, Upstream};

fn judge(routes: &[(&str, &str)], safe_methods: bool) -> Judge {
    let mut named = Routes::default();
    for (pattern, policy) in routes {
        let policy = match *policy {
            "optional" => Policy::Optional,
            "required" => Policy::Required,
            lease => Policy::Lease(LeaseName::parse(lease).unwrap()),
        };
        named.add((*pattern).into(), policy);
    }
    Judge::new(&Options {
        upstream: Upstream::parse("http://127.0.0.1:1").unwrap(),
        prefix: "bank/".into(),
        routes: named,
        safe_methods,
        drain: Duration::from_secs(1),
        undrained: Undrained::Refuse,
        request_max: Duration::from_secs(1),
        limits: Limits::default(),
    })
}

fn said(judged: Result<Option<Fence>, Rejected>) -> String {
    match judged {
        Ok(None) => "none".into(),
        Ok(Some(fence)) => fence.to_string(),
        Err(Rejected::TurnedAway(away)) => away.reason().into(),
        Err(Rejected::Failed(failure)) => failure.reason().into(),
    }
}

fn judged(judge: &Judge, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Empty::<&[u8]>::new()).unwrap();
    said(judge.fence_of(&request))
}

const SHOWN: [(&str, &str); 2] = [("ringfence-lease", "bank/x"), ("ringfence-token", "7")];

#[test]
fn where_routes_say_what_a_path_needs_one_that_is_not_plain_is_refused_also_with_a_fence() {
    let judge = judge(
        &[("/read/*", "optional"), ("/admin/*", "bank/admin")],
        false,
    );
    for open in ["/read/", "/read/a", "/read/a/b.c", "/read/..a?x=../b%2f"] {
        assert_eq!(judged(&judge, "GET", open, &[]), "none", "{open}");
    }
    for odd in [
        "/read/../write",
        "/read/./x",
        "/read//x",
        "/read/..",
        "/read/%2e%2e/write",
        "/read/a%2f..%2f..%2fwrite",
        "/read/%61",
        "/read/..;/write",
        "/read/a;x",
        "//read/x",
        "//admin/x",
        "/./admin/x",
        "/%61dmin/x",
        "/admin%2Fx",
        "/x/../admin/x",
        "/admin./x",
        "/x\\..\\admin",
        "/admin/x\u{e4}",
    ] {
        let Ok(_) = odd.parse::<http::Uri>() else {
            continue;
        };
        assert_eq!(
            judged(&judge, "GET", odd, &[]),
            "MALFORMED_REQUEST",
            "{odd}"
        );
        assert_eq!(
            judged(&judge, "POST", odd, &SHOWN),
            "MALFORMED_REQUEST",
            "{odd}"
        );
    }
    let unrouted = super::tests::judge(&[], false);
    assert_eq!(judged(&unrouted, "POST", "/a//%2e", &SHOWN), "bank/x#7");
}

#[test]
fn neither_case_nor_a_slash_at_the_end_leads_around_a_rule() {
    let judge = judge(
        &[
            ("/admin", "bank/admin"),
            ("/Open/*", "optional"),
            ("/open/safe/*", "required"),
        ],
        false,
    );
    for path in ["/admin", "/Admin", "/ADMIN/", "/admin/"] {
        assert_eq!(
            judged(&judge, "POST", path, &SHOWN),
            "WRONG_LEASE",
            "{path}"
        );
    }
    // An exemption counts as it is written.
    assert_eq!(judged(&judge, "POST", "/Open/a", &[]), "none");
    assert_eq!(judged(&judge, "POST", "/open/a", &[]), "MISSING_FENCE");
    assert_eq!(judged(&judge, "POST", "/Open/Safe/a", &[]), "MISSING_FENCE");
    let two = super::tests::judge(&[("/a", "bank/a"), ("/A", "bank/b")], false);
    assert_eq!(judged(&two, "POST", "/a", &SHOWN), "MALFORMED_REQUEST");
}

#[test]
fn a_safe_method_needs_none_if_it_is_no_other_one() {
    let (safe, strict) = (judge(&[], true), judge(&[], false));
    for method in ["GET", "HEAD", "OPTIONS"] {
        assert_eq!(judged(&safe, method, "/write?method=a&x", &[]), "none");
        assert_eq!(judged(&strict, method, "/write", &[]), "MISSING_FENCE");
    }
    for method in ["POST", "PUT", "PATCH", "DELETE", "TRACE", "PURGE", "get"] {
        assert_eq!(
            judged(&safe, method, "/write", &[]),
            "MISSING_FENCE",
            "{method}"
        );
    }
    for name in [
        "X-HTTP-Method-Override",
        "X-HTTP-Method",
        "X-Method-Override",
        "X_Http_Method_Override",
    ] {
        let other = [(name, "DELETE")];
        assert_eq!(
            judged(&safe, "GET", "/write", &other),
            "MISSING_FENCE",
            "{name}"
        );
    }
    for query in [
        "_method=DELETE",
        "a=b&_METHOD=delete",
        "%5fmethod=DELETE",
        "%5Fm%65thod=DELETE",
        "a;_method=DELETE",
        "x-http-method-override=PUT",
        "_method",
    ] {
        let path = format!("/write?{query}");
        assert_eq!(judged(&safe, "GET", &path, &[]), "MISSING_FENCE", "{query}");
    }
    // Services look for the method in a form, too.
    let with_body = Request::get("/write").body(Full::<bytes::Bytes>::from("_method=DELETE"));
    assert_eq!(said(safe.fence_of(&with_body.unwrap())), "MISSING_FENCE");
}

#[test]
fn a_header_that_names_another_path_is_refused_where_the_path_or_no_fence_decides() {
    let (safe, strict) = (judge(&[], true), judge(&[], false));
    let routed = judge(&[("/admin", "bank/admin")], false);
    for name in [
        "X-Original-URL",
        "X-Rewrite-URL",
        "X_Original_URL",
        "X-Forwarded-Uri",
    ] {
        let other = [(name, "/admin")];
        assert_eq!(
            judged(&safe, "GET", "/a", &other),
            "MALFORMED_REQUEST",
            "{name}"
        );
        let fenced = [SHOWN[0], SHOWN[1], other[0]];
        assert_eq!(
            judged(&routed, "GET", "/a", &fenced),
            "MALFORMED_REQUEST",
            "{name}"
        );
        assert_eq!(judged(&strict, "GET", "/a", &fenced), "bank/x#7", "{name}");
    }
}

#[test]
fn a_fence_that_is_shown_is_judged_wherever_it_is_and_of_these_names_alone() {
    let judge = judge(&[("/read/*", "optional")], true);
    let shown = |lease, token| [("ringfence-lease", lease), ("ringfence-token", token)];
    for (lease, token, expected) in [
        ("bank/x", "7", "bank/x#7"),
        ("shop/x", "7", "MALFORMED_FENCE"),
        ("bank/x", "x", "MALFORMED_FENCE"),
    ] {
        let said = judged(&judge, "GET", "/read/a", &shown(lease, token));
        assert_eq!(said, expected);
    }
    let twice = [SHOWN[0], SHOWN[1], ("ringfence-token", "9")];
    assert_eq!(judged(&judge, "GET", "/read/a", &twice), "MALFORMED_FENCE");
    let disguised = [SHOWN[0], SHOWN[1], ("ringfence_token", "9")];
    assert_eq!(
        judged(&judge, "GET", "/read/a", &disguised),
        "MALFORMED_REQUEST"
    );
}

#[test]
fn an_exact_route_wins_against_a_wildcard_above_it() {
    let judge = judge(
        &[
            ("/*", "required"),
            ("/healthz", "optional"),
            ("/api/*", "bank/x"),
            ("/api/other", "bank/other"),
            ("/open", "optional"),
            ("/open/*", "required"),
        ],
        false,
    );
    assert_eq!(judged(&judge, "GET", "/healthz", &[]), "none");
    // What a service may read as another path counts as that, too.
    assert_eq!(judged(&judge, "GET", "/healthz/", &[]), "MISSING_FENCE");
    assert_eq!(judged(&judge, "GET", "/open", &[]), "MISSING_FENCE");
    assert_eq!(judged(&judge, "GET", "/api/a", &SHOWN), "bank/x#7");
    assert_eq!(judged(&judge, "GET", "/api/other", &SHOWN), "WRONG_LEASE");
    let other = [("ringfence-lease", "bank/other"), SHOWN[1]];
    assert_eq!(judged(&judge, "GET", "/api/other", &other), "bank/other#7");
}

#[test]
fn where_routes_say_what_a_path_needs_no_other_destination_is_named() {
    let routed = judge(&[("/pub/*", "optional")], false);
    let named = [("Destination", "http://a/secret")];
    assert_eq!(
        judged(&routed, "MOVE", "/pub/x", &named),
        "MALFORMED_REQUEST"
    );
    let unrouted = judge(&[], false);
    let shown = [SHOWN[0], SHOWN[1], named[0]];
    assert_eq!(judged(&unrouted, "MOVE", "/pub/x", &shown), "bank/x#7");
}
