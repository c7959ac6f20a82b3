//! How long a session outlives its last keep-alive, as an answer says.

use std::time::Duration;

use ringfence_core::TTL_MAX_CEILING;

use crate::transport::error::CallError;

/// In place of a TTL: it lasts as long as its Pod.
pub(crate) const FOR_LIFE: Duration = Duration::from_millis(u64::MAX);

/// The TTL of a session that is or is not bound to a Pod. No cluster's settings allow another one: a client
/// that believed it would work on behind the end of its session.
///
/// # Errors
/// [`CallError::Unknown`] if no cluster answers so.
pub(crate) fn of_answer(ttl_ms: u64, bound_to_pod: bool) -> Result<Duration, CallError> {
    let ttl = Duration::from_millis(ttl_ms);
    let possible = match bound_to_pod {
        true => ttl == FOR_LIFE,
        false => (1..=TTL_MAX_CEILING.0).contains(&ttl_ms),
    };
    possible
        .then_some(ttl)
        .ok_or_else(CallError::unexpected_reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_longer_one_than_a_cluster_allows_is_believed() {
        let of_a_day = TTL_MAX_CEILING.0;
        for ttl in [1, 10_000, of_a_day] {
            assert_eq!(of_answer(ttl, false).unwrap(), Duration::from_millis(ttl));
            of_answer(ttl, true).unwrap_err();
        }
        for ttl in [0, of_a_day + 1, u64::MAX - 1, u64::MAX] {
            of_answer(ttl, false).unwrap_err();
        }
        assert_eq!(of_answer(u64::MAX, true).unwrap(), FOR_LIFE);
    }
}
