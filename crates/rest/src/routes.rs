//! The calls by method and path.

use http::Method;

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    OpenSession,
    KeepAlive,
    Close,
    Acquire,
    Cancel,
    Release,
    Transfer,
    Revoke,
    ListLeases,
    GetLease,
    Check,
    History,
    HistoryOfToken,
    Watch,
    WatchFloors,
    OpenApi,
}

/// A call: its method, its path as OpenAPI writes it, and what it does. A name has slashes of its own,
/// so it takes all that is left.
pub(crate) const ROUTES: [(Method, &str, Does); 16] = [
    (Method::POST, "/v1/sessions", Does::OpenSession),
    (Method::POST, "/v1/keep-alive", Does::KeepAlive),
    (Method::POST, "/v1/close", Does::Close),
    (Method::POST, "/v1/acquire", Does::Acquire),
    (Method::POST, "/v1/cancel", Does::Cancel),
    (Method::POST, "/v1/release", Does::Release),
    (Method::POST, "/v1/transfer", Does::Transfer),
    (Method::POST, "/v1/revoke", Does::Revoke),
    (Method::GET, "/v1/leases", Does::ListLeases),
    (Method::GET, "/v1/leases/{name}", Does::GetLease),
    (Method::GET, "/v1/check/{name}/{token}", Does::Check),
    (Method::GET, "/v1/history", Does::HistoryOfToken),
    (Method::GET, "/v1/history/{name}", Does::History),
    (Method::GET, "/v1/watch", Does::Watch),
    (Method::GET, "/v1/floors", Does::WatchFloors),
    (Method::GET, "/v1/openapi.json", Does::OpenApi),
];

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// This call; what stands behind its fixed part.
    Call(Does, &'a str),
    /// The path is there for another method.
    OtherMethod(Method),
    /// No such path.
    Nothing,
}

/// Finds the call.
pub(crate) fn find<'a>(method: &Method, path: &'a str) -> Found<'a> {
    let of_path = ROUTES.iter().find_map(|(method, route, does)| {
        let rest = match route.find('{') {
            None => (path == *route).then_some(""),
            Some(at) => path
                .strip_prefix(&route[..at])
                .filter(|rest| !rest.is_empty()),
        };
        rest.map(|rest| (method, *does, rest))
    });
    match of_path {
        None => Found::Nothing,
        Some((allowed, does, rest)) if allowed == method => Found::Call(does, rest),
        Some((allowed, ..)) => Found::OtherMethod(allowed.clone()),
    }
}

/// The path of a call with one answer, as OpenAPI writes it; `None` for anything else.
#[must_use]
pub fn route_of(method: &Method, path: &str) -> Option<&'static str> {
    let Found::Call(does, _) = find(method, path) else {
        return None;
    };
    let (_, route, _) = ROUTES.iter().find(|(.., of)| *of == does)?;
    match does {
        Does::Watch | Does::WatchFloors | Does::OpenApi => None,
        _ => Some(route),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_name_takes_all_that_is_left_of_the_path() {
        let get = |path| find(&Method::GET, path);
        assert_eq!(get("/v1/leases"), Found::Call(Does::ListLeases, ""));
        let lease = Found::Call(Does::GetLease, "bank/x");
        assert_eq!(get("/v1/leases/bank/x"), lease);
        let check = Found::Call(Does::Check, "bank/x/42");
        assert_eq!(get("/v1/check/bank/x/42"), check);
        for path in [
            "/",
            "/v1",
            "/v1/",
            "/v1/leases/",
            "/v1/lease",
            "/V1/leases",
            "/v1/acquire/",
        ] {
            assert_eq!(get(path), Found::Nothing, "{path}");
        }
        assert_eq!(get("/v1/acquire"), Found::OtherMethod(Method::POST));
    }

    #[test]
    fn a_call_with_one_answer_has_a_route_without_its_names() {
        let get = |path| route_of(&Method::GET, path);
        assert_eq!(get("/v1/leases/bank/x"), Some("/v1/leases/{name}"));
        assert_eq!(get("/v1/check/bank/x/42"), Some("/v1/check/{name}/{token}"));
        for path in [
            "/v1/watch",
            "/v1/floors",
            "/v1/openapi.json",
            "/v1/acquire",
            "/",
        ] {
            assert_eq!(get(path), None, "{path}");
        }
    }

    #[test]
    fn the_served_description_has_each_call_and_no_other() {
        let described: serde_json::Value = serde_json::from_str(crate::OPENAPI).unwrap();
        assert_eq!(described["openapi"], "3.1.0");
        let paths = described["paths"].as_object().unwrap();
        let described = paths.iter().flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            methods.map(move |method| format!("{} {path}", method.to_uppercase()))
        });
        let described: BTreeSet<String> = described.collect();
        let served = ROUTES.map(|(method, path, _)| format!("{method} {path}"));
        assert_eq!(described, served.into_iter().collect());
    }

    #[test]
    fn each_reference_of_the_description_has_its_target() {
        let text = crate::OPENAPI;
        let described: serde_json::Value = serde_json::from_str(text).unwrap();
        let references = text.split("\"$ref\": \"#").skip(1);
        for pointer in references.map(|rest| rest.split('"').next().unwrap()) {
            assert!(described.pointer(pointer).is_some(), "{pointer}");
        }
    }

    #[test]
    fn the_page_for_callers_has_a_command_for_each_call() {
        let page = include_str!("../../../client/HTTP.md");
        let blocks = page
            .split("```sh")
            .skip(1)
            .map(|rest| rest.split("```").next().unwrap());
        let commands: String = blocks.collect();
        for (_, path, _) in ROUTES {
            let fixed = path.split('{').next().unwrap();
            assert!(commands.contains(&format!("$node{fixed}")), "{path}");
        }
    }
}
