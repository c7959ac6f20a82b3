//! What a proxy stands before, and how long it waits.

use std::time::Duration;

use http::Uri;
use http::uri::{Authority, Scheme};
use ringfence_guard::tower::Routes;

/// The greatest number of leases with a mark in the file.
pub const MARKS_MAX: usize = 100_000;
/// The greatest number of leases whose state is in memory at a time. One under which nothing is inside, nor
/// may be, gives way; its mark is in the file.
pub const LEASES_MAX: usize = 10_000;

/// What becomes of a newer holder's request when the older one's are not over in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Undrained {
    /// `503 DRAINING`: it may come again. The older one's requests are over after twice
    /// [`Options::request_max`] at the latest.
    #[default]
    Refuse,
    /// The connections of the older one's requests are severed, and the newer one's go on. The service may
    /// carry out what it has received before, and that takes effect behind the newer one's.
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
    /// How long a request may take, from its way to the service on to the last byte of its answer. Then its
    /// connections are severed. The service is taken to be at work for as long again on what it has received
    /// of a request whose end was not seen.
    pub request_max: Duration,
    /// How much callers may take.
    pub limits: Limits,
}

/// How much callers may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections of callers at a time. For a further one that gives way which has been without a request
    /// for longest; if all have one, it waits.
    pub connections: usize,
    /// Those of them that one address may have, or one /64 of IPv6; not of this machine. Further ones are
    /// closed.
    pub connections_of_address: usize,
    /// Requests at a time that wait or are at the service, also those whose caller has gone.
    pub requests: usize,
    /// Those of them under one lease. One more may come that raises the mark.
    pub requests_of_lease: usize,
    /// Requests at a time on a connection of HTTP/2.
    pub streams: u32,
    /// Bytes of the head of a request.
    pub head_bytes: usize,
    /// How long a head may take to arrive, and the first bytes of a connection. In HTTP/1 it is also how
    /// long a connection may be without a request.
    pub head_within: Duration,
    /// How long a connection may be without a request.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1_024,
            connections_of_address: 256,
            requests: 1_024,
            requests_of_lease: 256,
            streams: 64,
            head_bytes: 64 << 10,
            head_within: Duration::from_secs(30),
            idle: Duration::from_secs(60),
        }
    }
}

impl Options {
    /// For how long what a process has let in can be at work in the service behind its end.
    pub(crate) fn quiet(&self) -> Duration {
        self.drain.max(self.request_max)
    }
}

/// The address of a service: `http://HOST:PORT`.
///
/// There is no TLS to the service: what guards its way in stands next to it, or it can be gone around. HTTP/1.1
/// is spoken to it, one request at a time on a connection, which can be severed then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    authority: Authority,
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
        Ok(Self { authority })
    }

    /// Host and port, as they are connected to.
    pub(crate) fn address(&self) -> String {
        let port = self.authority.port_u16().unwrap_or(80);
        format!("{}:{port}", self.authority.host())
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
