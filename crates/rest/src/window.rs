//! How long a caller may believe in a grant: arithmetic in milliseconds, no clock.
//!
//! The caller counts from before it sent the request, which is not later than its arrival here.

/// The least that is taken off a TTL, in milliseconds.
const MARGIN_MIN: u64 = 50;

/// How long a session may be believed in, counted from before its acknowledged keep-alive was sent:
/// `0.99 TTL - max(50 ms, TTL / 50)`, rounded down.
#[must_use]
pub fn validity(ttl: u64) -> u64 {
    ttl.saturating_sub(ttl.div_ceil(100))
        .saturating_sub(MARGIN_MIN.max(ttl.div_ceil(50)))
}

/// The same for a keep-alive that this node submitted so long after the request had arrived that it
/// was made for. The caller's clock may be slow by 1 %, and this node's fast by as much.
pub(crate) fn validity_after(elapsed: u64, ttl: u64) -> u64 {
    let passed = elapsed.saturating_sub(elapsed.div_ceil(50));
    validity(ttl).saturating_add(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_that_of_the_contract() {
        assert_eq!([15_000, 1_000, 100, 40].map(validity), [14_550, 940, 49, 0]);
    }

    #[test]
    fn no_pair_of_clocks_within_one_percent_believes_beyond_the_ttl() {
        let ttl = 15_000_u64;
        for elapsed in [0, 1, 500, 30_000, 86_400_000] {
            // In hundredths: this node's clock is fast, so less time has passed than it shows; the
            // caller's is slow, so its window lasts longer than it shows.
            let believed = u128::from(validity_after(elapsed, ttl)) * 101 * 100;
            let allowed = (u128::from(elapsed) * 100 + u128::from(ttl) * 101) * 99;
            assert!(believed <= allowed, "{elapsed}");
        }
    }
}
