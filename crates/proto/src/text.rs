//! Bytes and durations as text.

use std::fmt::Write;
use std::time::Duration;

/// Lower-case hexadecimal digits, two per byte.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a `String` cannot fail.
            write!(text, "{byte:02x}").ok();
            text
        })
}

/// The bytes that these hexadecimal digits stand for, in either case; `None` if there is an odd
/// number of them, or anything else among them.
#[must_use]
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |letter: u8| char::from(letter).to_digit(16);
    let pairs = text.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

/// The units of durations, longest name first so that `ms` is not read as `m`.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Parses a whole number and its unit: `ms`, `s`, `m` or `h`.
///
/// # Errors
/// A text for the user that says what is allowed.
pub fn parse_duration(raw: &str) -> Result<Duration, String> {
    let digits = raw
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(raw.len());
    let (number, unit) = raw.split_at(digits);
    let millis = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, millis)| *millis);
    let (Some(millis), Ok(number)) = (millis, number.parse::<u64>()) else {
        return Err("a duration is a whole number and ms, s, m or h, as in 500ms or 30s".into());
    };
    match number.checked_mul(millis) {
        Some(total) => Ok(Duration::from_millis(total)),
        None => Err("that is longer than any clock runs".into()),
    }
}
