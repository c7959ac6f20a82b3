//! PEM blocks: keys and certificates, on lines of their own or in one line with escapes.

use super::REDACTED;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";
/// The longest block, with what a log writes before each line. Behind it the end is another block's.
const BLOCK_BYTES_MAX: usize = 256 << 10;

/// The text with each block replaced. What has an end and no begin is cut off at its front, so all
/// before it goes; what has no end, goes as far as a block can reach.
pub(super) fn without_blocks(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        let begin = rest.find(BEGIN);
        let end = rest.find(END);
        match (begin, end) {
            (None, None) => {
                shown.push_str(rest);
                return shown;
            }
            (Some(begin), _) if end.is_none_or(|end| begin < end) => {
                shown.push_str(&rest[..begin]);
                shown.push_str(REDACTED);
                rest = behind_block(&rest[begin..]);
            }
            (_, end) => {
                // The block began in what was cut off, or the one before it was too long.
                let end = end.unwrap_or_default();
                let from = floor(rest, end.saturating_sub(BLOCK_BYTES_MAX));
                shown.push_str(&rest[..from]);
                shown.push_str(REDACTED);
                rest = behind_end(&rest[end..]);
            }
        }
    }
}

/// What stands behind the block that the text begins with.
fn behind_block(text: &str) -> &str {
    match text.find(END) {
        Some(end) if end <= BLOCK_BYTES_MAX => behind_end(&text[end..]),
        _ => &text[floor(text, BLOCK_BYTES_MAX.min(text.len()))..],
    }
}

/// What stands behind the last line of a block, which the text begins with.
fn behind_end(text: &str) -> &str {
    let label = &text[END.len()..];
    let line = label.find('\n').unwrap_or(label.len());
    match label[..line].find(DASHES) {
        Some(at) => &label[at + DASHES.len()..],
        None => &label[line..],
    }
}

/// The last boundary of a letter that is not behind `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}
