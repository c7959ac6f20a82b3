//! What may be a secret is not repeated to its caller, whose logs it would stand in: a field that is
//! filled with another one's value is refused with what was offered.

use ringfence_proto::Refusal;
use ringfence_proto::v1::Reason;

use crate::handle::SECRET_BYTES;

/// The text without what may be a secret: as many hexadecimal digits in a row as one has, or more.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let is_digit = |c: char| c.is_ascii_hexdigit();
        let digits = rest.find(|c| !is_digit(c)).unwrap_or(rest.len());
        match digits < 2 * SECRET_BYTES {
            true => shown.push_str(&rest[..digits]),
            false => shown.push('…'),
        }
        rest = &rest[digits..];
        let others = rest.find(is_digit).unwrap_or(rest.len());
        shown.push_str(&rest[..others]);
        rest = &rest[others..];
    }
    shown
}

/// The same in a refusal that repeats what was offered.
pub(crate) fn in_refusal(mut refusal: Refusal) -> Refusal {
    if refusal.reason == Reason::InvalidArgument {
        refusal.message = shown(&refusal.message);
        for repeated in ["field", "offered"] {
            if let Some(text) = refusal.metadata.get_mut(repeated) {
                *text = shown(text);
            }
        }
    }
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_digits_as_a_secret_has_are_hidden_and_nothing_else() {
        let secret = "0b0102030405060708090A0B0C0D0E0F";
        for (text, expected) in [
            (format!("17.{secret}"), "17.…"),
            (format!("\"{secret}\" was offered"), "\"…\" was offered"),
            (format!("a{secret}{secret}"), "…"),
            (secret[1..].to_owned(), &secret[1..]),
            (
                "8e03978e-40d5-43e8-bc93-6894a57f9324é".to_owned(),
                "8e03978e-40d5-43e8-bc93-6894a57f9324é",
            ),
            (String::new(), ""),
        ] {
            assert_eq!(shown(&text), expected);
        }
    }
}
