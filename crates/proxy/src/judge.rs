//! Which fence a request needs, and which it shows.

use http::{HeaderMap, Method, Request};
use http_body::Body;
use ringfence_guard::Fence;
use ringfence_guard::tower::{LEASE_HEADER, Policy, Routes, TOKEN_HEADER, TurnedAway};

use crate::failure::Rejected;
use crate::{Failure, Options};

/// By these some services take another method than that of the request.
const OTHER_METHODS: [&str; 7] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "http-method-override",
    "x-method",
    "-method",
    "-httpmethod",
];

/// By these some services take another path than that of the request.
/// WebDAV moves and copies what is at the path to that in `destination`.
const OTHER_PATHS: [&str; 7] = [
    "destination",
    "x-original-url",
    "x-original-uri",
    "x-rewrite-url",
    "x-rewrite-uri",
    "x-forwarded-uri",
    "x-forwarded-path",
];

/// Judges requests by what the operator has said of paths and methods.
pub(crate) struct Judge {
    prefix: String,
    safe_methods: bool,
    routes: Routes,
    /// The same with patterns in lower case.
    folded: Routes,
    has_routes: bool,
}

impl Judge {
    pub(crate) fn new(options: &Options) -> Self {
        let mut folded = Routes::default();
        for (pattern, policy) in options.routes.rules() {
            folded.add(pattern.to_ascii_lowercase(), policy.clone());
        }
        Self {
            prefix: options.prefix.clone(),
            safe_methods: options.safe_methods,
            has_routes: options.routes.rules().next().is_some(),
            routes: options.routes.clone(),
            folded,
        }
    }

    /// The fence under which a request comes; `None` if it needs and shows none.
    pub(crate) fn fence_of<B: Body>(
        &self,
        request: &Request<B>,
    ) -> Result<Option<Fence>, Rejected> {
        let (path, headers) = (request.uri().path(), request.headers());
        refuse_disguised(headers)?;
        if self.has_routes && !is_plain(path) {
            return Err(malformed(format!(
                "the path `{}` is not plain, and a service may read another one out of it, while routes say \
                 what a path needs; send letters, digits and any of -._~!$&'()*+,=:@ between single slashes, \
                 without % and without a dot at the end of a segment",
                path.escape_default()
            )));
        }
        let policy = self.policy_of(path)?;
        let is_safe = self.safe_methods && is_safe(request);
        let policy = match is_safe {
            true => &Policy::Optional,
            false => policy,
        };
        let fence = policy.fence_of(headers)?;
        if (self.has_routes || fence.is_none())
            && let Some(name) = named(headers, &OTHER_PATHS)
        {
            return Err(malformed(format!(
                "the header `{name}` could make the service take another path than the one that was judged; \
                 leave it away"
            )));
        }
        match fence {
            Some(fence) if !fence.name.as_str().starts_with(&self.prefix) => {
                Err(TurnedAway::Malformed {
                    expected: None,
                    what: format!(
                        "lease `{}` is none of those that guard this service: their names begin with `{}`",
                        fence.name, self.prefix
                    ),
                }
                .into())
            }
            fence => Ok(fence),
        }
    }

    /// What a path demands, in whatever case a service reads it, and with or without a slash at the end:
    /// a rule that demands more counts for all of these. Not one that is of the path as it came, too: there a
    /// more exact one has been preferred to it.
    fn policy_of(&self, path: &str) -> Result<&Policy, Rejected> {
        let mut policy = self.routes.policy_of(path);
        if !self.has_routes {
            return Ok(policy);
        }
        let lower = path.to_ascii_lowercase();
        let bare = lower.trim_end_matches('/');
        for read_as in [&lower, bare, &format!("{bare}/")] {
            let mut rules = self.folded.rules();
            let Some((pattern, other)) = rules.find(|(pattern, _)| matches(pattern, read_as))
            else {
                continue;
            };
            if read_as != lower && matches(pattern, &lower) {
                continue;
            }
            policy = match (policy, other) {
                (Policy::Lease(one), Policy::Lease(two)) if one != two => {
                    return Err(malformed(format!(
                        "the path `{path}` is of two routes with different leases, by case or by a slash at \
                         its end; send it as the route has it"
                    )));
                }
                (policy @ Policy::Lease(_), _) | (policy, Policy::Optional) => policy,
                (Policy::Required, Policy::Required) => policy,
                (_, other) => other,
            };
        }
        Ok(policy)
    }
}

/// Whether a rule is of a path, as [`Routes`] has it.
fn matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => path.starts_with(beginning),
        None => path == pattern,
    }
}

/// Refuses headers that a service could take for those of the fence: some read `_` as `-`.
fn refuse_disguised(headers: &HeaderMap) -> Result<(), Rejected> {
    let found = headers.keys().map(http::HeaderName::as_str).find(|name| {
        let plain = name.replace('_', "-");
        plain != *name && [LEASE_HEADER, TOKEN_HEADER].contains(&plain.as_str())
    });
    match found {
        Some(name) => Err(malformed(format!(
            "the header `{name}` could be taken for one of the fence; send it with `-`"
        ))),
        None => Ok(()),
    }
}

/// Whether a method changes nothing (RFC 9110, section 9.2.1), in whatever way the service takes it. A body
/// could name another one, and so could a header or a parameter.
fn is_safe<B: Body>(request: &Request<B>) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method())
        && request.body().is_end_stream()
        && named(request.headers(), &OTHER_METHODS).is_none()
        && !parameters(request.uri().query().unwrap_or_default())
            .any(|name| OTHER_METHODS.contains(&name.as_str()))
}

/// The first of these headers that came, with `_` read as `-`.
fn named<'a>(headers: &'a HeaderMap, names: &[&str]) -> Option<&'a str> {
    let mut keys = headers.keys().map(http::HeaderName::as_str);
    keys.find(|key| names.contains(&key.replace('_', "-").as_str()))
}

/// The names of the parameters of a query, as a service reads them, in lower case and with `_` read as `-`.
fn parameters(query: &str) -> impl Iterator<Item = String> {
    query.split(['&', ';']).map(|parameter| {
        let name = parameter.split('=').next().unwrap_or_default();
        let name = decoded(name).to_ascii_lowercase().replace('_', "-");
        name.trim().to_owned()
    })
}

/// Without `%XX`.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let digits = text.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(value.unwrap_or(*byte));
        at += if value.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Whether a path means one thing to all services. Not what some shorten, decode or cut off.
fn is_plain(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else {
        return false;
    };
    let last = rest.split('/').count();
    let mut numbered = (1..).zip(rest.split('/'));
    numbered.all(|(at, segment)| {
        // An empty one at the end is that of `/bank/`.
        (at == last || !segment.is_empty()) && !segment.ends_with('.')
    }) && path
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,=:@".contains(&byte))
}

fn malformed(what: String) -> Rejected {
    Failure::Malformed(what).into()
}

#[cfg(test)]
mod tests;
