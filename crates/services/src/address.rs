//! Addresses of members, as requests and the configuration give them.

/// What [`is_host_port`] takes, for people.
pub const HOST_PORT_ALLOWED: &str = "HOST:PORT that others can connect to, for example \
                                     node1.internal:7421 or [2001:db8::1]:7421";

/// Whether others could connect to this address: host and port.
#[must_use]
pub fn is_host_port(raw: &str) -> bool {
    raw.rsplit_once(':').is_some_and(|(host, port)| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let bracketed = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host_is_valid = match bracketed {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(plain),
        };
        host_is_valid && port.parse::<u16>().is_ok_and(|port| port != 0)
    })
}
