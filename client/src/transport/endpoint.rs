//! Where a member is reached.

use std::fmt;
use std::sync::Arc;

use crate::transport::error::ConnectError;

/// The most endpoints a client takes.
const ENDPOINTS_MAX: usize = 64;

/// What an address with TLS may begin with.
pub(crate) const ENCRYPTED: &str = "https://";
/// What an address without TLS may begin with.
pub(crate) const PLAIN: &str = "http://";
/// What the path of a socket on this machine begins with.
const LOCAL: &str = "unix:";

/// A member's address: `HOST:PORT`, or `unix:` and the path of a socket on this machine.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Endpoint(Arc<str>);

impl Endpoint {
    /// Parses what a user wrote, dropping repeats.
    pub(crate) fn parse_all(offered: &[String]) -> Result<Vec<Self>, ConnectError> {
        let mut endpoints = Vec::new();
        for text in offered {
            let endpoint = Self::parse(text).map_err(|fault| ConnectError::InvalidEndpoint {
                offered: text.clone(),
                fault,
            })?;
            if !endpoints.contains(&endpoint) {
                endpoints.push(endpoint);
            }
        }
        if endpoints.is_empty() {
            return Err(ConnectError::NoEndpoints);
        }
        if endpoints.len() > ENDPOINTS_MAX {
            return Err(ConnectError::InvalidEndpoint {
                offered: format!("{} endpoints", endpoints.len()),
                fault: "at most 64 are allowed",
            });
        }
        Ok(endpoints)
    }

    /// Parses `HOST:PORT`, with an optional scheme; the error says what is wrong with the text.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        if let Some(path) = text.strip_prefix(LOCAL) {
            return Self::parse_path(path);
        }
        let encrypted = text.strip_prefix(ENCRYPTED);
        if encrypted.is_some() && !cfg!(feature = "tls") {
            return Err("this program has no TLS; ringfence-client has it with its feature `tls`");
        }
        let plain = || text.strip_prefix(PLAIN).unwrap_or(text);
        let address = encrypted.unwrap_or_else(plain);
        let address = address.strip_suffix('/').unwrap_or(address);
        let (host, port) = address.rsplit_once(':').ok_or("the port is missing")?;
        if host.is_empty() {
            return Err("the host is missing");
        }
        let bracketed = host.starts_with('[') && host.ends_with(']');
        if host.contains(':') && !bracketed {
            return Err("an IPv6 address stands in brackets");
        }
        if !host
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"/?#@".contains(&byte))
        {
            return Err("the host has a character that no host has");
        }
        match port.parse::<u16>() {
            Ok(0) | Err(_) => Err("the port is no number from 1 to 65535"),
            Ok(_) => Ok(Self(Arc::from(address))),
        }
    }

    fn parse_path(path: &str) -> Result<Self, &'static str> {
        if cfg!(not(unix)) {
            return Err("this system has no such sockets");
        }
        let path = path.strip_prefix("//").unwrap_or(path);
        match path.is_empty() || path.chars().any(char::is_control) {
            true => Err("the path of the socket is missing, as unix:/var/lib/ringfence/admin.sock"),
            false => Ok(Self(format!("{LOCAL}{path}").into())),
        }
    }

    /// Whether it is a socket on this machine: without TLS, and no member names it to others.
    pub(crate) fn is_local(&self) -> bool {
        self.0.starts_with(LOCAL)
    }

    /// The address as a URI; a connection with TLS has another [`origin`](Self::origin).
    pub(crate) fn uri(&self) -> String {
        match self.is_local() {
            true => self.0.to_string(),
            false => format!("{PLAIN}{}", self.0),
        }
    }

    /// What requests over a connection with TLS are addressed to.
    #[cfg(feature = "tls")]
    pub(crate) fn origin(&self) -> Result<http::Uri, http::uri::InvalidUri> {
        format!("{ENCRYPTED}{}", self.0).parse()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_scheme_and_a_slash_make_no_difference() {
        let spellings = [
            "127.0.0.1:7420",
            " http://127.0.0.1:7420",
            "127.0.0.1:7420/",
        ];
        let parsed = Endpoint::parse_all(&spellings.map(String::from)).unwrap();

        assert_eq!(parsed.len(), 1);
        assert_eq!(parsed[0].uri(), "http://127.0.0.1:7420");
    }

    #[test]
    fn what_is_no_address_is_refused_with_its_fault() {
        let faults = [
            ("", "port is missing"),
            ("localhost", "port is missing"),
            (":7420", "host is missing"),
            ("localhost:0", "no number from 1"),
            ("localhost:70000", "no number from 1"),
            ("::1:7420", "brackets"),
            ("a b:7420", "character"),
            ("http://host/path:7420", "character"),
        ];
        for (text, fault) in faults {
            let error = Endpoint::parse_all(&[text.to_owned()])
                .unwrap_err()
                .to_string();
            assert!(error.contains(fault), "{text}: {error}");
        }
        assert!(matches!(
            Endpoint::parse_all(&[]),
            Err(ConnectError::NoEndpoints)
        ));
    }
}
