//! Numbers within a range.

use super::ConfigError;

/// The number, if it is allowed.
pub(super) fn in_range(
    flag: &'static str,
    offered: u64,
    allowed: std::ops::RangeInclusive<u64>,
) -> Result<u64, ConfigError> {
    if allowed.contains(&offered) {
        return Ok(offered);
    }
    let allowed = format!("{} to {}", allowed.start(), allowed.end());
    Err(ConfigError::value(flag, offered.to_string(), allowed))
}
