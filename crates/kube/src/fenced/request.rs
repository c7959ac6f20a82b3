//! What a request to the API server does, by its head.

use http::header::UPGRADE;
use http::{Method, request};

/// Subresources that open a connection to what runs behind an object. Their requests look like reads,
/// and whatever is sent over them is not seen by anybody here.
const CONNECTIONS: [&str; 4] = ["exec", "attach", "portforward", "proxy"];

/// Marks a request that goes without a fence, since it is to be refused for that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bare;

impl Bare {
    /// Whether a request is marked so.
    pub(super) fn is(parts: &request::Parts) -> bool {
        parts.extensions.get::<Self>().is_some()
    }
}

/// Whether a request may change something: all that is not known to be a read, and everything that
/// opens a connection.
pub(super) fn is_write(parts: &request::Parts) -> bool {
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS];
    !reads.contains(&parts.method) || is_connection(parts)
}

/// Whether a request opens a connection, the API server's operation `CONNECT`. A watch over a
/// websocket counts as well: it costs a look at the clock.
pub(super) fn is_connection(parts: &request::Parts) -> bool {
    let named = subresource(parts.uri.path());
    parts.headers.contains_key(UPGRADE) || named.is_some_and(|sub| CONNECTIONS.contains(&sub))
}

/// The subresource that a path of the API names. By its place, since objects may be called like one;
/// what stands before `/api` or `/apis` is a proxy's.
pub(super) fn subresource(path: &str) -> Option<&str> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let api = parts
        .iter()
        .position(|part| matches!(*part, "api" | "apis"))?;
    let (["api", _, below @ ..] | ["apis", _, _, below @ ..]) = &parts[api..] else {
        return None;
    };
    match below {
        ["namespaces", _, _, _, subresource, ..] => Some(subresource),
        // A namespace itself, its own subresources, what is in it: the objects and lists of them.
        ["namespaces", ..] => None,
        [_, _, subresource, ..] => Some(subresource),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn writes(request: request::Builder) -> bool {
        is_write(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn a_connection_is_a_write_whatever_its_method() {
        for path in [
            "/api/v1/namespaces/a/pods/b/exec?command=rm",
            "/api/v1/namespaces/a/pods/b/attach",
            "/api/v1/namespaces/a/pods/b/portforward?ports=80",
            "/api/v1/namespaces/a/pods/b:80/proxy/delete/all",
            "/api/v1/namespaces/a/services/https:b:web/proxy/",
            "/api/v1/nodes/b/proxy/run",
            "/k8s/clusters/c-1/api/v1/namespaces/a/pods/b/exec",
        ] {
            assert!(writes(Request::get(path)), "{path}");
            assert!(writes(Request::post(path)), "{path}");
        }
        let upgraded = Request::get("/somewhere/else").header("Upgrade", "websocket");
        assert!(writes(upgraded));
    }

    #[test]
    fn reads_stay_reads_also_of_what_is_called_like_a_connection() {
        for path in [
            "/api/v1/namespaces/a/pods/b",
            "/api/v1/namespaces/a/pods/b/log",
            "/api/v1/namespaces/a/configmaps/proxy",
            "/api/v1/namespaces/exec/pods/exec",
            "/api/v1/namespaces/exec",
            "/apis/apps/v1/namespaces/a/deployments/exec/status",
            "/api/v1/nodes/proxy",
            "/version",
        ] {
            assert!(!writes(Request::get(path)), "{path}");
            assert!(writes(Request::patch(path)), "{path}");
        }
    }
}
