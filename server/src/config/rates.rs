//! What one principal may ask of a node.

use std::ops::RangeInclusive;

use ringfence_services::PrincipalRates;

use super::ConfigError;
use super::given::Given;
use super::range::in_range;

/// Requests in a second.
const REQUESTS: RangeInclusive<u64> = 1..=1_000_000_000;
/// Bytes in a second: the largest message at least.
const BYTES: RangeInclusive<u64> = 1 << 20..=1 << 40;
/// Connections at a time.
const CONNECTIONS: RangeInclusive<u64> = 1..=1_000_000;

pub(super) fn of_principals(given: &Given) -> Result<PrincipalRates, ConfigError> {
    let standard = PrincipalRates::default();
    let requests = given.principal_requests_max.unwrap_or(standard.requests);
    let bytes = given.principal_bytes_max.unwrap_or(standard.bytes);
    let connections = given.principal_connections_max;
    let connections = connections.unwrap_or(standard.connections);
    Ok(PrincipalRates {
        requests: in_range("principal-requests-max", requests, REQUESTS)?,
        bytes: in_range("principal-bytes-max", bytes, BYTES)?,
        connections: in_range("principal-connections-max", connections, CONNECTIONS)?,
    })
}
