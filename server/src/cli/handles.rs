//! Texts that repeat what was typed, without the secrets of session handles in it: a handle that is
//! malformed, or is in the wrong place, may be one whose secret is whole.

/// The fewest characters behind a number and a dot that are not shown.
const SECRET_MIN: usize = 8;
/// The shortest word of hexadecimal digits that is taken for a secret without its number.
const HEX_MIN: usize = 16;

/// The text with each word that may be a handle, or part of one, replaced by its number and length.
pub(super) fn without_secrets(text: &str) -> String {
    let ends = |letter: char| letter.is_whitespace() || "'\"`,;:()<>".contains(letter);
    let words = text.split_inclusive(ends).map(|word| {
        let (word, end) = match word.char_indices().next_back() {
            Some((at, last)) if ends(last) => word.split_at(at),
            _ => (word, ""),
        };
        format!("{}{end}", shown(word).as_deref().unwrap_or(word))
    });
    words.collect()
}

/// What is shown of a word that may be a handle; `None` if it is none.
fn shown(word: &str) -> Option<String> {
    let count = word.chars().count();
    let (number, behind) = word.split_once('.').unwrap_or_default();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && behind.chars().filter(|letter| *letter != '.').count() >= SECRET_MIN {
        return Some(format!("{number}.… ({count} characters)"));
    }
    let digits = word.bytes().filter(u8::is_ascii_hexdigit).count();
    let is_decimal = word.bytes().all(|byte| byte.is_ascii_digit());
    let is_hex = count >= HEX_MIN && digits >= count / 4 * 3 && !is_decimal;
    is_hex.then(|| format!("… ({count} characters)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "000102030405060708090a0b0c0d0e0f";

    #[test]
    fn what_may_be_a_handle_is_shown_by_its_number_and_length() {
        let cluster = "ab".repeat(16);
        for (typed, expected) in [
            (format!("1.{SECRET}"), "1.… (34 characters)"),
            (format!("17.{SECRET}.{cluster}"), "17.… (68 characters)"),
            (format!("1..{SECRET}"), "1.… (35 characters)"),
            (format!("1.{}zz", &SECRET[..29]), "1.… (33 characters)"),
            (format!("0.{}-", &SECRET[..9]), "0.… (12 characters)"),
            (SECRET.to_owned(), "… (32 characters)"),
            (format!("1{SECRET}"), "… (33 characters)"),
            (format!("x.{SECRET}"), "… (34 characters)"),
        ] {
            let text = format!("invalid value '{typed}' for '<HANDLE>': {typed}");
            let expected = format!("invalid value '{expected}' for '<HANDLE>': {expected}");
            assert_eq!(without_secrets(&text), expected);
        }
    }

    #[test]
    fn what_else_is_typed_is_repeated() {
        for text in [
            "invalid value '9223372036854775808' for '<TOKEN>': a token is a whole number",
            "invalid value '127.0.0.1' for '--endpoints': no port, expected HOST:PORT",
            "unexpected argument '--trusted-ca-file' found\n",
            "expected NUMBER.SECRET or NUMBER.SECRET.CLUSTER, with 32 hex digits each",
            "invalid value 'jobs//a' for '<NAME>'",
            "",
        ] {
            assert_eq!(without_secrets(text), text);
        }
    }
}
