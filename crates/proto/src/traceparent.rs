//! The place of a request in a trace, as W3C's Trace Context writes it in the header `traceparent`.

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};

/// Bytes of the text of version 00, the only one there is.
const TEXT_BYTES: usize = 55;
/// The bit of the flags that says that the caller records the trace.
const SAMPLED: u8 = 1;

/// Which trace a request belongs to, which span of it asks, and whether the trace is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: NonZeroU128,
    /// The span of the caller.
    pub span: NonZeroU64,
    /// Whether the caller records the trace.
    pub sampled: bool,
}

impl TraceParent {
    /// What the text says; `None` if it is none of this format, as which a receiver treats no context
    /// at all.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let (known, rest) = bytes.split_at_checked(TEXT_BYTES)?;
        let version = &known[..2];
        if !is_hex(version) || version == b"ff" {
            return None;
        }
        // Later versions may say more behind another dash.
        let whole = match version == b"00" {
            true => rest.is_empty(),
            false => rest.first().is_none_or(|next| *next == b'-'),
        };
        let dashes = [2, 35, 52].iter().all(|at| known[*at] == b'-');
        if !whole || !dashes {
            return None;
        }
        let trace = number(&known[3..35])?;
        let span = u64::try_from(number(&known[36..52])?).ok()?;
        let flags = u8::try_from(number(&known[53..55])?).ok()?;
        Some(Self {
            trace: NonZeroU128::new(trace)?,
            span: NonZeroU64::new(span)?,
            sampled: flags & SAMPLED != 0,
        })
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trace,
            span,
            sampled,
        } = self;
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", u8::from(*sampled))
    }
}

fn is_hex(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A number in lower-case hexadecimal digits: others are not of the format.
fn number(digits: &[u8]) -> Option<u128> {
    if !is_hex(digits) {
        return None;
    }
    u128::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn what_is_written_is_read() {
        let read = TraceParent::parse(TEXT).unwrap();
        assert!(read.sampled);
        assert_eq!(read.to_string(), TEXT);
        let unsampled = TraceParent {
            sampled: false,
            ..read
        };
        assert_eq!(TraceParent::parse(&unsampled.to_string()), Some(unsampled));
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let later = |rest: &str| TraceParent::parse(&format!("cc{}{rest}", &TEXT[2..]));
        assert_eq!(later("-what-comes"), TraceParent::parse(TEXT));
        assert_eq!(later(""), TraceParent::parse(TEXT));
        assert_eq!(later(".what"), None);
    }

    #[test]
    fn anything_else_is_no_context() {
        let zeros = |from: usize, to: usize| {
            let mut text = TEXT.to_owned();
            text.replace_range(from..to, &"0".repeat(to - from));
            text
        };
        let wrong = [
            String::new(),
            "-".to_owned(),
            TEXT[..54].to_owned(),
            format!("{TEXT}-more"),
            format!("{TEXT} "),
            TEXT.to_uppercase(),
            TEXT.replacen("00", "ff", 1),
            TEXT.replace('-', "_"),
            TEXT.replacen("4bf9", "+bf9", 1),
            TEXT.replacen("4bf9", "ébf", 1),
            zeros(3, 35),
            zeros(36, 52),
        ];
        for text in wrong {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
    }
}
