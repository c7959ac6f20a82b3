//! Where a connection comes from, as failed proofs are counted.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A source of connections: an address of IPv4, or a network of IPv6 with a prefix of 64 bits, since
/// one machine has all addresses of such a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(IpAddr);

impl Source {
    /// The source that this address belongs to.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(IpAddr::V4(address)),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self(IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)))
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(network) => write!(f, "{network}/64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_many_addresses_is_one_source() {
        let source = |raw: &str| Source::of(raw.parse().unwrap()).to_string();
        assert_eq!(source("10.1.2.3"), "10.1.2.3");
        assert_eq!(source("::ffff:10.1.2.3"), "10.1.2.3");
        assert_eq!(source("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(source("2001:db8:1:2:ffff::1"), source("2001:db8:1:2::9"));
        assert_ne!(source("2001:db8:1:3::1"), source("2001:db8:1:2::1"));
    }
}
