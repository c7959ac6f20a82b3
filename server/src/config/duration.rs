//! Lengths of time in settings.

use super::ConfigError;
use crate::duration;

/// Parses `500ms`, `15s`, `5m` or `24h` to milliseconds.
pub(super) fn millis(flag: &'static str, raw: &str) -> Result<u64, ConfigError> {
    let allowed = "a whole number with ms, s, m or h, for example 15s";
    duration::parse(raw.trim())
        .map(duration::millis)
        .map_err(|_| ConfigError::value(flag, raw, allowed))
}
