//! A refusal as `google.rpc.Status`, in the few bytes of Protocol Buffers that it needs: this crate
//! can be used without gRPC in the build.

use super::TurnedAway;

/// The domain of the refusals of Ringfence and its guards.
pub(super) const DOMAIN: &str = "ringfence";

/// `google.rpc.Status` with an `ErrorInfo`, and a `RetryInfo` if it is worth trying again.
pub(super) fn encode(away: &TurnedAway) -> Vec<u8> {
    let mut info = Vec::new();
    put(&mut info, 1, away.reason().as_bytes());
    put(&mut info, 2, DOMAIN.as_bytes());
    for (key, value) in away.metadata() {
        let mut entry = Vec::new();
        put(&mut entry, 1, key.as_bytes());
        put(&mut entry, 2, value.as_bytes());
        put(&mut info, 3, &entry);
    }

    let mut status = Vec::new();
    status.extend([1 << 3, away.grpc_code()]);
    put(&mut status, 2, away.to_string().as_bytes());
    put(&mut status, 3, &any("google.rpc.ErrorInfo", &info));
    if away.is_retryable() {
        let mut retry = Vec::new();
        put(&mut retry, 1, &[1 << 3, RETRY_AFTER_SECONDS]);
        put(&mut status, 3, &any("google.rpc.RetryInfo", &retry));
    }
    status
}

/// `google.protobuf.Any`.
fn any(name: &str, value: &[u8]) -> Vec<u8> {
    let mut any = Vec::new();
    put(
        &mut any,
        1,
        format!("type.googleapis.com/{name}").as_bytes(),
    );
    put(&mut any, 2, value);
    any
}

/// A field with a length: text, bytes or a message.
fn put(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    out.push(field << 3 | 2);
    let mut length = value.len();
    while length >= 0x80 {
        // The low seven bits; the cast drops nothing that is not shifted down next.
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(value);
}

/// Base64 as gRPC wants it in headers: the standard alphabet, without padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let [a, b, c] = group.map(u32::from);
        let bits = a << 16 | b << 8 | c;
        for at in 0..=chunk.len() {
            let six = bits >> (18 - 6 * at) & 0x3f;
            text.push(char::from(ALPHABET[six as usize]));
        }
    }
    text
}

/// What `grpc-message` may hold: visible ASCII and blanks, all else and `%` as `%XX`.
pub(super) fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if (b' '..=b'~').contains(&byte) && byte != b'%' {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// When to come back with what may pass later.
pub(super) const RETRY_AFTER_SECONDS: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard_without_padding() {
        let cases = [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, coded) in cases {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfb]), "//77");
    }

    #[test]
    fn a_message_in_a_header_is_ascii() {
        assert_eq!(percent("a `b` 1%\n…"), "a `b` 1%25%0A%E2%80%A6");
    }

    #[test]
    fn a_long_field_has_a_long_length() {
        let mut out = Vec::new();
        put(&mut out, 1, &[7; 300]);
        assert_eq!(out[..3], [0x0a, 0xac, 0x02]);
        assert_eq!(out.len(), 303);
    }
}
