//! What looks like a secret, whatever its name: cluster tokens, JWTs, session handles, what follows
//! `Bearer`, long base64, and the passwords in addresses.

use super::REDACTED;
use super::named::is_prose;

/// The shortest base64 that is taken for a key, in bytes: a line of PEM has 64.
const BASE64_MIN: usize = 60;
/// The shortest first part of a JWT, in bytes: `{"alg":""}` has 14.
const JWT_HEAD_MIN: usize = 10;
/// What stands before a credential in a header.
const SCHEMES: [&str; 2] = ["bearer", "basic"];

/// The text with the user and the password of each address replaced.
pub(super) fn without_passwords(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, behind) = rest.split_at(at + 3);
        shown.push_str(before);
        let word = behind.find(ends_address).unwrap_or(behind.len());
        rest = match user_end(&behind[..word]) {
            Some(end) => {
                shown.push_str(REDACTED);
                &behind[end..]
            }
            None => behind,
        };
    }
    shown.push_str(rest);
    shown
}

fn ends_address(letter: char) -> bool {
    letter.is_whitespace() || letter.is_control() || "\"'<>`\\".contains(letter)
}

/// Where the user and the password of an address end, at an `@`; the scheme is not in it.
fn user_end(address: &str) -> Option<usize> {
    let authority = address.find(['/', '?', '#']).unwrap_or(address.len());
    if let Some(at) = address[..authority].rfind('@') {
        return Some(at);
    }
    // A password with a slash that is not escaped: what stands behind the colon is no port.
    let (_, behind) = address[..authority].split_once(':')?;
    let is_port = behind.bytes().all(|byte| byte.is_ascii_digit());
    address.rfind('@').filter(|_| !is_port)
}

/// The text with each word that has the form of a credential replaced.
pub(super) fn without_credentials(text: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-_.+/=:@~".contains(letter);
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_shown = false;
    while !rest.is_empty() {
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        let is_secret = looks_secret(word) || (is_shown && !is_prose(word));
        match is_secret && !word.is_empty() {
            true => shown.push_str(REDACTED),
            false => shown.push_str(word),
        }
        let next = behind.find(is_part).unwrap_or(behind.len());
        let gap = &behind[..next];
        let is_near = |letter| matches!(letter, ' ' | '\t' | '"' | '\'' | '\\' | '%');
        is_shown = is_scheme(word) && gap.chars().all(is_near);
        shown.push_str(gap);
        rest = &behind[next..];
    }
    shown
}

/// Whether a credential follows, as behind `Authorization: Bearer`.
fn is_scheme(word: &str) -> bool {
    let word = word.trim_end_matches([':', '=']).to_ascii_lowercase();
    SCHEMES.iter().any(|scheme| word.ends_with(scheme))
}

fn looks_secret(word: &str) -> bool {
    word.contains("rft_")
        || is_jwt(word)
        || is_handle(word)
        || is_key(word)
        || has_scheme(word)
        || has_password(word)
}

/// Also behind the name of what it is for, and cut off at its end.
fn is_jwt(word: &str) -> bool {
    word.match_indices("ey").any(|(at, _)| {
        let is_part = |letter: &char| letter.is_ascii_alphanumeric() || "-_=".contains(*letter);
        let head: String = word[at..].chars().take_while(is_part).collect();
        let behind = &word[at + head.len()..];
        let has_more = behind.starts_with('.') && behind.len() > 1;
        let is_mixed = head.contains(|letter: char| !letter.is_ascii_lowercase());
        head.len() >= JWT_HEAD_MIN && is_mixed && has_more
    })
}

/// A session handle: a number, a dot, and 128 bits in hex.
fn is_handle(word: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_hex = |part: &str| part.len() == 32 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    word.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.')
        .any(|text| {
            let (firsts, seconds) = (text.split('.'), text.split('.').skip(1));
            firsts
                .zip(seconds)
                .any(|(first, second)| is_number(first) && is_hex(second))
        })
}

/// A long text in base64. Digests in hexadecimal are none.
fn is_key(word: &str) -> bool {
    let is_base64 = |letter: char| letter.is_ascii_alphanumeric() || "+/-_".contains(letter);
    let is_end = |letter: char| !is_base64(letter);
    word.split(is_end).any(|part| {
        let has = |found: fn(&u8) -> bool| part.as_bytes().iter().any(found);
        part.len() >= BASE64_MIN
            && has(u8::is_ascii_uppercase)
            && has(u8::is_ascii_lowercase)
            && has(u8::is_ascii_digit)
    })
}

/// `Bearer+TOKEN`, as forms write it.
fn has_scheme(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    SCHEMES.iter().any(|scheme| {
        let behind = word.split_once(scheme).map_or("", |(_, behind)| behind);
        behind.starts_with(['+', ':', '=']) && !is_prose(&behind[1..])
    })
}

/// `USER:PASSWORD@HOST`. Principals have colons and the addresses of mail, and are no secrets.
fn has_password(word: &str) -> bool {
    let is_principal = ["cert:", "jwt:", "sa:"]
        .iter()
        .any(|kind| word.contains(kind));
    let user = word.split_once('@').map_or("", |(user, _)| user);
    let password = user.split_once(':').map_or("", |(_, password)| password);
    !is_principal && !password.is_empty()
}
