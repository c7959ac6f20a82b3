//! Addresses: where to listen, and what to tell others.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ringfence_services::{HOST_PORT_ALLOWED, is_host_port};

use super::ConfigError;

/// Parses an address to listen on.
pub(super) fn listen(
    flag: &'static str,
    raw: Option<String>,
    default: &str,
) -> Result<SocketAddr, ConfigError> {
    let raw = raw.unwrap_or_else(|| default.to_owned());
    match raw.parse::<SocketAddr>() {
        Ok(address) if address.port() != 0 => Ok(address),
        Ok(_) | Err(_) => {
            let allowed =
                "IP:PORT with a port of 1 to 65535, for example 127.0.0.1:7420 or [::]:7420";
            Err(ConfigError::value(flag, raw, allowed))
        }
    }
}

/// Parses an address that others connect to.
pub(super) fn host_port(flag: &'static str, raw: &str) -> Result<String, ConfigError> {
    let raw = raw.trim();
    if is_host_port(raw) {
        return Ok(raw.to_owned());
    }
    Err(ConfigError::value(flag, raw, HOST_PORT_ALLOWED))
}

fn split(address: &str) -> Option<(&str, &str)> {
    address.rsplit_once(':')
}

/// The host of `address` with another port.
pub(super) fn with_port(address: &str, port: u16) -> String {
    let host = split(address).map_or(address, |(host, _)| host);
    format!("{host}:{port}")
}

/// What others can connect to if nothing was said: the address listened on, if it is one.
pub(super) fn reachable(
    flag: &'static str,
    listen: SocketAddr,
    join: &[String],
) -> Result<String, ConfigError> {
    if !listen.ip().is_unspecified() {
        return Ok(listen.to_string());
    }
    if join.is_empty() {
        // Only this machine needs to find a cluster of one.
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), listen.port()).to_string());
    }
    let allowed = format!("HOST:PORT that the other members can connect to; {listen} says nothing");
    Err(ConfigError::value(flag, "", allowed))
}
