//! What a proxy stands before, and how long it waits.

use std::time::Duration;

use http::Uri;
use http::uri::{Authority, Scheme};
use ringfence_guard::tower::Routes;

/// The greatest number of leases with a mark in the file.
pub const MARKS_MAX: usize = 100_000;
/// The greatest number of leases whose state is in memory at a time. One that has no request inside gives
/// way; its mark is in the file.
pub const LEASES_MAX: usize = 10_000;

/// What becomes of a newer holder's request when the older one's are not over in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Undrained {
    /// `503 DRAINING`: it may come again. The older one's requests end at [`Options::request_max`] at the
    /// latest.
    #[default]
    Refuse,
    /// The older one's requests are cut, and the newer one's go on. Whether what was cut is carried out
    /// is not known: it may be at the service, and take effect behind the newer one's.
    Cut,
}

/// How a proxy works.
#[derive(Clone, Debug)]
pub struct Options {
    /// The service.
    pub upstream: Upstream,
    /// What lease names begin with; all may come if it is empty.
    pub prefix: String,
    /// Which paths need a fence. All, unless set otherwise.
    pub routes: Routes,
    /// Whether `GET`, `HEAD` and `OPTIONS` need none, whatever their path is.
    pub safe_methods: bool,
    /// How long a newer holder's request waits for the older one's.
    pub drain: Duration,
    /// And then.
    pub undrained: Undrained,
    /// How long a request under a fence may take, from the first byte that goes to the service to the
    /// last one of its answer; of others, until the head of the answer.
    pub request_max: Duration,
    /// How many connections and streams there may be.
    pub limits: Limits,
}

/// How much callers may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections of callers at a time. Further ones wait until one ends.
    pub connections: usize,
    /// Requests at a time on a connection of HTTP/2.
    pub streams: u32,
    /// Bytes of the head of a request.
    pub head_bytes: usize,
    /// How long a head may take to arrive, and a connection of HTTP/1 may be idle.
    pub head_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1_024,
            streams: 256,
            head_bytes: 64 << 10,
            head_within: Duration::from_secs(30),
        }
    }
}

/// The address of a service: `http://HOST:PORT`.
///
/// There is no TLS to the service: what guards its way in stands next to it, or it can be gone around.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    authority: Authority,
    http2: bool,
}

/// Why an address is none of a service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("got `{got}`, expected http://HOST:PORT without a path: {why}")]
pub struct UpstreamError {
    got: String,
    why: &'static str,
}

impl Upstream {
    /// Reads `http://HOST:PORT`.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn parse(text: &str) -> Result<Self, UpstreamError> {
        let wrong = |why| UpstreamError {
            got: text.to_owned(),
            why,
        };
        let uri: Uri = text.parse().map_err(|_| wrong("it is no address"))?;
        let parts = uri.into_parts();
        if parts.scheme == Some(Scheme::HTTPS) {
            return Err(wrong(
                "TLS is not spoken to the service; stand on its machine, or in its Pod, where none but this \
                 proxy can reach it",
            ));
        }
        if parts.scheme != Some(Scheme::HTTP) {
            return Err(wrong("it begins with another scheme, or none"));
        }
        if parts.path_and_query.is_some_and(|path| path != "/") {
            return Err(wrong("callers name the path"));
        }
        let authority = parts.authority.ok_or_else(|| wrong("there is no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("credentials come from callers"));
        }
        Ok(Self {
            authority,
            http2: false,
        })
    }

    /// Speaks HTTP/2 to the service, as gRPC needs, without asking first.
    #[must_use]
    pub fn http2(mut self, http2: bool) -> Self {
        self.http2 = http2;
        self
    }

    pub(crate) const fn is_http2(&self) -> bool {
        self.http2
    }

    pub(crate) const fn authority(&self) -> &Authority {
        &self.authority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_scheme_a_host_and_a_port() {
        for good in [
            "http://127.0.0.1:8080",
            "http://service",
            "http://[::1]:80/",
        ] {
            assert!(Upstream::parse(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("127.0.0.1:8080", "another scheme"),
            ("/", "another scheme"),
            ("https://service:443", "TLS is not spoken"),
            ("ftp://service", "another scheme"),
            ("http://service/bank", "callers name the path"),
            ("http://me:secret@service", "credentials come from callers"),
            ("", "it is no address"),
        ] {
            let error = Upstream::parse(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
