//! Lengths of time as people write them.

use super::ConfigError;

/// Parses `500ms`, `15s`, `5m` or `24h` to milliseconds.
pub(super) fn millis(flag: &'static str, raw: &str) -> Result<u64, ConfigError> {
    let parse = || {
        let raw = raw.trim();
        let unit_at = raw.find(|letter: char| !letter.is_ascii_digit())?;
        let (number, unit) = raw.split_at(unit_at);
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        number.parse::<u64>().ok()?.checked_mul(unit_ms)
    };
    parse().ok_or_else(|| {
        ConfigError::value(
            flag,
            raw,
            "a whole number with ms, s, m or h, for example 15s",
        )
    })
}
