//! What messages do not repeat: contents of files that were given in the place of their paths.

/// What was offered. The content of a file in the place of its path is not repeated: it may be a private
/// key, or a secret.
pub(crate) fn shown(offered: &str) -> String {
    match is_content(offered) {
        true => format!(
            "a text of {} bytes, the content of a file perhaps",
            offered.len()
        ),
        false => format!("`{offered}`"),
    }
}

/// Whether what was offered as a path has the form of the content of a file.
pub(crate) fn is_content(offered: &str) -> bool {
    let is_text = offered.contains(['\n', '\r']) || offered.contains("-----BEGIN");
    is_text
        || offered
            .split(',')
            .any(|word| may_be_secret(word) || is_credential(word))
}

/// Whether a word is a token of a cluster, or one of an identity provider.
fn is_credential(word: &str) -> bool {
    word.starts_with("rft_") || word.starts_with("eyJ") && word.matches('.').count() == 2
}

/// Whether a word has the form of random bytes in hexadecimal or base64, rather than that of a path.
fn may_be_secret(word: &str) -> bool {
    const BYTES_MIN: usize = 32;
    /// Of 32 bytes in base64, with and without what fills it up: these may begin with `/`, too.
    const BASE64_OF_32: std::ops::RangeInclusive<usize> = 43..=44;
    let is_base64 =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=');
    let has = |is: fn(&u8) -> bool| word.bytes().any(|byte| is(&byte));
    let is_random =
        has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    word.len() >= BYTES_MIN
        && (word.bytes().all(|byte| byte.is_ascii_hexdigit())
            || word.bytes().all(is_base64)
                && is_random
                && (!word.starts_with('/') || BASE64_OF_32.contains(&word.len())))
}
