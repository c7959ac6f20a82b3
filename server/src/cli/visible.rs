//! Texts of others on a terminal.

use std::borrow::Cow;

/// The text with its control characters written out, line ends too: what a node or a holder says of
/// itself must not move the cursor of a terminal, or show as a line of ours.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    written_out(text, is_hidden)
}

/// The same for a text of several lines.
pub(crate) fn visible_lines(text: &str) -> Cow<'_, str> {
    written_out(text, |letter| is_hidden(letter) && !"\n\t".contains(letter))
}

fn written_out(text: &str, is_hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match is_hidden(letter) {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

/// Control characters, and those that change the direction in which a line is read.
fn is_hidden(letter: char) -> bool {
    let turns = matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    letter.is_control() || turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_written_out_and_the_rest_is_borrowed() {
        assert_eq!(visible("a\u{202e}b\u{9b}c\r"), "a\\u{202e}b\\u{9b}c\\r");
        assert_eq!(visible_lines("a\n\tb\u{7}"), "a\n\tb\\u{7}");
        assert!(matches!(visible("orders/eu é"), Cow::Borrowed(_)));
    }
}
