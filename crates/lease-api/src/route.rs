//! What a request asks for, by its method, path and query.

use crate::options::{DeleteOptions, ListOptions, ReadOptions, WatchOptions, WriteOptions};
use crate::query::{Query, unquoted};
use crate::status::Failure;

/// A document of discovery, the same for every caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document {
    /// `/version`
    Version,
    /// `/api`
    Api,
    /// `/apis`
    Groups,
    /// `/apis/coordination.k8s.io`
    Group,
    /// `/apis/coordination.k8s.io/v1`
    Resources,
    /// `/openapi/v3`
    OpenApi,
    /// `/openapi/v3/apis/coordination.k8s.io/v1`
    OpenApiOfLeases,
}

/// One lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What a request asks for. Names are decoded, and not checked: one that no lease can have is not
/// found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A document of discovery.
    Document(Document),
    /// One lease.
    Get(Key, ReadOptions),
    /// The leases of a namespace; of all if it is `None`.
    List(Option<String>, ListOptions),
    /// Their changes.
    Watch(Option<String>, WatchOptions),
    /// A new lease in this namespace.
    Create(String, WriteOptions),
    /// Replaces a lease, or creates it.
    Update(Key, WriteOptions),
    /// Changes a lease.
    Patch(Key, WriteOptions),
    /// Removes a lease.
    Delete(Key, DeleteOptions),
}

impl Route {
    /// What kube-apiserver calls it: as rules of access name it. `None` for documents.
    #[must_use]
    pub fn verb(&self) -> Option<&'static str> {
        match self {
            Self::Document(_) => None,
            Self::Get(..) => Some("get"),
            Self::List(..) => Some("list"),
            Self::Watch(..) => Some("watch"),
            Self::Create(..) => Some("create"),
            Self::Update(..) => Some("update"),
            Self::Patch(..) => Some("patch"),
            Self::Delete(..) => Some("delete"),
        }
    }
}

/// Reads method, path and the query behind `?`.
///
/// 400: a query that is none. 404: another path, a subresource included. 405: another method of a
/// path that is there, a deletion of a whole namespace's leases included. 422: an option's value
/// that is none.
pub fn parse(method: &str, path: &str, query: Option<&str>) -> Result<Route, Failure> {
    if let Some(document) = document(path) {
        return match method {
            "GET" => Ok(Route::Document(document)),
            other => Err(Failure::method_not_allowed(&other.to_ascii_lowercase())),
        };
    }
    let place = place(path)?;
    let query = Query::parse(query)?;
    match (place, method) {
        (Place::All, "GET") => many(None, &query),
        (Place::Namespace(namespace), "GET") => many(Some(namespace), &query),
        (Place::Namespace(namespace), "POST") => Ok(Route::Create(namespace, query.write()?)),
        (Place::Namespace(_), "DELETE") => Err(Failure::method_not_allowed("deletecollection")),
        (Place::One(key), "GET") => Ok(Route::Get(key, query.read()?)),
        (Place::One(key), "PUT") => Ok(Route::Update(key, query.write()?)),
        (Place::One(key), "PATCH") => Ok(Route::Patch(key, query.write()?)),
        (Place::One(key), "DELETE") => Ok(Route::Delete(key, query.delete()?)),
        (_, other) => Err(Failure::method_not_allowed(&other.to_ascii_lowercase())),
    }
}

fn document(path: &str) -> Option<Document> {
    // kubectl asks for some of them with a slash at the end.
    let bare = path.strip_suffix('/').unwrap_or(path);
    Some(match bare {
        "/version" => Document::Version,
        "/api" => Document::Api,
        "/apis" => Document::Groups,
        "/apis/coordination.k8s.io" => Document::Group,
        "/apis/coordination.k8s.io/v1" => Document::Resources,
        "/openapi/v3" => Document::OpenApi,
        "/openapi/v3/apis/coordination.k8s.io/v1" => Document::OpenApiOfLeases,
        _ => return None,
    })
}

enum Place {
    All,
    Namespace(String),
    One(Key),
}

fn place(path: &str) -> Result<Place, Failure> {
    let rest = path.strip_prefix("/apis/coordination.k8s.io/v1/");
    let rest = rest.ok_or_else(Failure::no_path)?;
    let segments: Vec<&str> = rest.split('/').collect();
    let part = |raw: &str| {
        let text = unquoted(raw, false)?;
        let fine = !text.is_empty() && !text.contains('/');
        fine.then_some(text).ok_or_else(Failure::no_path)
    };
    match segments.as_slice() {
        ["leases"] => Ok(Place::All),
        ["namespaces", namespace, "leases"] => Ok(Place::Namespace(part(namespace)?)),
        ["namespaces", namespace, "leases", name] => Ok(Place::One(Key {
            namespace: part(namespace)?,
            name: part(name)?,
        })),
        _ => Err(Failure::no_path()),
    }
}

fn many(namespace: Option<String>, query: &Query) -> Result<Route, Failure> {
    if query.is_watch() {
        return Ok(Route::Watch(namespace, query.watch()?));
    }
    Ok(Route::List(namespace, query.list()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BASE: &str = "/apis/coordination.k8s.io/v1";

    fn code(method: &str, path: &str) -> u16 {
        parse(method, path, None).map_or_else(|no| no.code(), |_| 200)
    }

    fn key() -> Key {
        Key {
            namespace: "shop".to_owned(),
            name: "leader".to_owned(),
        }
    }

    #[test]
    fn each_request_of_an_election_has_its_route() {
        let of = format!("{BASE}/namespaces/shop/leases");
        let one = format!("{of}/leader");
        let route = |method, path: &str| parse(method, path, None).unwrap();
        assert_eq!(
            route("GET", &one),
            Route::Get(key(), ReadOptions::default())
        );
        assert_eq!(
            route("PUT", &one),
            Route::Update(key(), WriteOptions::default())
        );
        assert_eq!(
            route("PATCH", &one),
            Route::Patch(key(), WriteOptions::default())
        );
        assert_eq!(
            route("DELETE", &one),
            Route::Delete(key(), DeleteOptions::default())
        );
        let shop = || "shop".to_owned();
        assert_eq!(
            route("POST", &of),
            Route::Create(shop(), WriteOptions::default())
        );
        assert_eq!(
            route("GET", &of),
            Route::List(Some(shop()), ListOptions::default())
        );
        let all = format!("{BASE}/leases");
        assert_eq!(
            route("GET", &all),
            Route::List(None, ListOptions::default())
        );
        let watch = parse("GET", &all, Some("watch=true&resourceVersion=7")).unwrap();
        assert_eq!(watch.verb(), Some("watch"));
    }

    #[test]
    fn what_is_not_here_is_refused() {
        let of = format!("{BASE}/namespaces/shop/leases");
        assert_eq!(code("DELETE", &of), 405);
        assert_eq!(code("PUT", &of), 405);
        assert_eq!(code("POST", &format!("{of}/leader")), 405);
        assert_eq!(code("POST", &format!("{BASE}/leases")), 405);
        assert_eq!(code("POST", "/version"), 405);
        for path in [
            "/",
            "/healthz",
            "/api/v1/namespaces",
            "/apis/coordination.k8s.io/v1beta1",
            &format!("{of}/leader/status"),
            &format!("{of}/"),
            &format!("{of}/a%2Fb"),
            &format!("{BASE}/watch/namespaces/shop/leases"),
            &format!("{BASE}/namespaces//leases"),
            &format!("{BASE}/namespaces/shop"),
        ] {
            assert_eq!(code("GET", path), 404, "{path}");
        }
        assert_eq!(code("GET", &format!("{of}/%zz")), 400);
    }

    #[test]
    fn documents_are_found_with_and_without_a_slash() {
        for (path, document) in [
            ("/version", Document::Version),
            ("/version/", Document::Version),
            ("/api", Document::Api),
            ("/apis", Document::Groups),
            ("/apis/coordination.k8s.io/", Document::Group),
            (BASE, Document::Resources),
            ("/openapi/v3", Document::OpenApi),
            (
                "/openapi/v3/apis/coordination.k8s.io/v1",
                Document::OpenApiOfLeases,
            ),
        ] {
            assert_eq!(
                parse("GET", path, Some("timeout=32s")),
                Ok(Route::Document(document))
            );
        }
    }

    proptest! {
        #[test]
        fn no_request_is_a_panic(
            method in "[A-Z]{0,7}",
            path in "(/apis/coordination.k8s.io/v1)?(/namespaces/|/leases/|%|[a-zé%/.2F]{0,3}){0,5}",
            query in "((watch|limit|timeout|dryRun|continue|resourceVersion)=?|[0-9a-zé%&+=.]){0,20}",
        ) {
            parse(&method, &path, Some(&query)).ok();
            parse("GET", &format!("{BASE}/leases"), Some(&query)).ok();
            parse("GET", &format!("{BASE}/leases"), Some(&format!("watch&{query}"))).ok();
            parse("PUT", &format!("{BASE}/namespaces/a/leases/b"), Some(&query)).ok();
            parse("DELETE", &format!("{BASE}/namespaces/a/leases/b"), Some(&query)).ok();
        }
    }
}
