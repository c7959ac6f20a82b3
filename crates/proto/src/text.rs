//! Bytes as text.

use std::fmt::Write;

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
