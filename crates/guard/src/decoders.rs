//! Any bytes as fences: fuzz targets of `crates/fuzz`, and properties of the tests below. Each
//! panics where a reader breaks a promise. Not part of what is shipped.

use ringfence_core::{FencingToken, HolderData, Identity, LeaseName};

use crate::{Fence, Refused};

/// The texts of fences, tokens and names: what is read is written as it was, and nothing is read
/// in two ways.
pub fn fence(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Fence::parse(text) {
        Ok(fence) => {
            assert_eq!(fence.to_string(), text, "two texts for one fence");
            assert!(fence.token.get() > 0 && fence.token.get() <= FencingToken::MAX);
            let received = Fence::receive(&fence.name, Some(text));
            assert_eq!(received, Ok(fence.clone()));
            let other = LeaseName::parse("another/lease/than/any").expect("a valid name");
            let received = Fence::receive(&other, Some(text));
            assert!(fence.name == other || matches!(received, Err(Refused::WrongLease { .. })));
        }
        Err(error) => assert!(
            error.to_string().len() < 1_000,
            "an error as long as its cause"
        ),
    }
    if let Ok(name) = LeaseName::parse(text) {
        assert_eq!(name.as_str(), text);
    }
    if let Ok(identity) = Identity::parse(text) {
        assert_eq!(identity.as_str(), text);
    }
    if let Ok(data) = HolderData::new(bytes) {
        assert_eq!(data.as_bytes(), bytes);
    }
}

/// Headers of a guarded service, a line each: the lease, the token, and both once more if there
/// are more lines.
#[cfg(feature = "tower")]
pub fn headers(bytes: &[u8]) {
    use crate::tower::{LEASE_HEADER, TOKEN_HEADER};

    let mut headers = http::HeaderMap::new();
    let names = [LEASE_HEADER, TOKEN_HEADER].into_iter().cycle();
    for (name, value) in names.zip(bytes.split(|byte| *byte == b'\n')).take(4) {
        if let Ok(value) = http::HeaderValue::from_bytes(value) {
            headers.append(name, value);
        }
    }
    match crate::tower::fence_in(&headers, None) {
        Ok(Some(fence)) => {
            assert_eq!(headers.len(), 2, "a fence out of repeated headers");
            assert_eq!(headers[LEASE_HEADER], fence.name.as_str());
            assert_eq!(headers[TOKEN_HEADER], fence.token.to_string());
        }
        Ok(None) => assert!(headers.is_empty()),
        Err(turned_away) => assert!(!turned_away.to_string().is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use ringfence_testkit::heap;

    use super::*;

    #[global_allocator]
    static HEAP: heap::Counting = heap::Counting;

    /// Reading a fence takes its name and an error that repeats a few bytes of it.
    const READER_BYTES: usize = 16 << 10;

    fn feed(bytes: &[u8]) {
        heap::within(READER_BYTES + 4 * bytes.len(), || {
            fence(bytes);
            #[cfg(feature = "tower")]
            headers(bytes);
        });
    }

    /// Nearly fences: the right letters in any order, and numbers about the limits.
    fn nearly() -> impl Strategy<Value = String> {
        let name = "[a-zA-Z0-9._~:@/-]{0,40}|\\PC{0,20}";
        let token = prop_oneof![
            any::<u64>().prop_map(|token| token.to_string()),
            (0..3_u64).prop_map(|above| (FencingToken::MAX - 1 + above).to_string()),
            "[0-9+ -]{0,25}".prop_map(String::from),
        ];
        (name, "[#\\n]{0,2}", token).prop_map(|(name, between, token)| name + &between + &token)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_048) })]

        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..400)) {
            feed(&bytes);
        }

        #[test]
        fn what_is_nearly_a_fence_is_read_or_refused(text in nearly()) {
            feed(text.as_bytes());
        }

        #[test]
        fn a_changed_fence_is_read_or_refused(
            text in "[a-z]{1,5}(/[a-z]{1,5}){0,2}#[1-9][0-9]{0,17}",
            at in any::<prop::sample::Index>(),
        ) {
            let valid = text.into_bytes();
            prop_assert!(Fence::parse(std::str::from_utf8(&valid).unwrap()).is_ok());
            feed(&valid[..at.index(valid.len())]);
            for byte in 0..=255 {
                let mut changed = valid.clone();
                let at = at.index(changed.len());
                changed[at] = byte;
                feed(&changed);
            }
        }
    }
}
