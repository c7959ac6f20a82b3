//! The limits of proofs.

use std::time::Duration;

use crate::buckets::Rate;

/// By how much the wall clocks of this node and of who issued a credential may differ, in seconds.
pub const LEEWAY: u64 = 60;

/// The longest bearer token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 8 << 10;

/// The most issuers of JWTs.
pub const ISSUERS_MAX: usize = 16;
/// The longest alias of an issuer, in bytes.
pub const ISSUER_ALIAS_BYTES_MAX: usize = 32;

/// The longest file with keys of an issuer (JWKS), in bytes.
pub const KEY_FILE_BYTES_MAX: u64 = 256 << 10;
/// The most keys in such a file, those of other uses included.
pub const KEYS_PER_FILE_MAX: usize = 64;
/// The shortest time between two looks at such a file, whatever tokens come.
pub const KEY_FILE_PAUSE: Duration = Duration::from_secs(5);
/// The shortest time between two log lines about one such file that cannot be used.
pub(crate) const KEY_FILE_LOG_PAUSE: Duration = Duration::from_secs(60);
/// How long RSA keys may be, in bits: shorter ones are weak, longer ones cost more for each proof.
pub const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=4_096;

/// The most verified JWTs that a node remembers; an older one is verified again. An entry takes
/// about 300 bytes.
pub const CACHED_PROOFS_MAX: usize = 4_096;

/// The most failed proofs of one connection in a second. Further tokens on it are refused without a
/// look until the second is over, but for JWTs that were verified before.
pub const FAILED_PROOFS_PER_CONNECTION: u32 = 10;
/// The most failed proofs of all connections of a node in a second. Beyond it, a connection with a
/// failed proof in this second is refused as above; the others are not, since they have done nothing.
pub const FAILED_PROOFS_PER_NODE: u32 = 1_000;

/// Failed proofs of one source, an IPv4 address or an IPv6 /64, where rights bind: so many at once, and
/// then so many a second. Beyond it credentials from there are refused without a look, but for JWTs
/// that were verified before. A gateway makes one source of all its callers, so a hundred of them may
/// err at once, as after a rotation that went wrong.
pub const FAILED_PROOFS_PER_SOURCE: Rate = Rate {
    per_second: 10,
    burst: 100,
};
/// The most sources whose failed proofs are counted; those that failed least make room.
pub(crate) const SOURCES_COUNTED_MAX: usize = 65_536;
