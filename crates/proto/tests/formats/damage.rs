//! Bytes from elsewhere: every decoder gives a value or an error, and never panics.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use ringfence_core::Command;
use ringfence_proto::DecodeError;
use ringfence_proto::record::*;

use super::{arbitrary, examples};

/// Feeds the bytes to all decoders. What they accept must be writable again.
fn feed(bytes: &[u8]) {
    if let Ok(command) = decode_command(bytes) {
        assert_eq!(decode_command(&encode_command(&command)), Ok(command));
    }
    if let Ok(outcome) = decode_outcome(bytes) {
        assert_eq!(decode_outcome(&encode_outcome(&outcome)), Ok(outcome));
    }
    if let Ok(event) = decode_event(bytes) {
        assert_eq!(decode_event(&encode_event(&event)), Ok(event));
    }
    if let Ok(record) = decode_record(bytes) {
        let mut again = Vec::new();
        encode_record(&record, &mut again);
        assert_eq!(decode_record(&again), Ok(record));
    }
}

/// The bytes of any valid value.
fn valid() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        arbitrary::command().prop_map(|value| encode_command(&value).to_vec()),
        arbitrary::outcome().prop_map(|value| encode_outcome(&value).to_vec()),
        arbitrary::event().prop_map(|value| encode_event(&value).to_vec()),
        arbitrary::record().prop_map(|value| {
            let mut bytes = Vec::new();
            encode_record(&value, &mut bytes);
            bytes
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn random_bytes_are_survived(bytes in vec(any::<u8>(), 0..200)) {
        feed(&bytes);
    }

    #[test]
    fn cut_bytes_are_survived(bytes in valid(), at in any::<Index>()) {
        feed(&bytes[..at.index(bytes.len() + 1)]);
    }

    #[test]
    fn changed_bytes_are_survived(
        bytes in valid(),
        changes in vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = bytes;
        for (at, byte) in changes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        feed(&bytes);
    }

    #[test]
    fn two_messages_in_a_row_are_survived(one in valid(), other in valid()) {
        feed(&[one, other].concat());
    }

    #[test]
    fn a_cut_command_is_never_taken_for_a_whole_one(
        command in arbitrary::command(),
        at in any::<Index>(),
    ) {
        let bytes = encode_command(&command);
        let cut = &bytes[..at.index(bytes.len())];
        prop_assert!(decode_command(cut).is_err());
    }
}

#[test]
fn an_unknown_kind_of_command_is_named() {
    // Field 12, a message without content; and field 2000, a number.
    assert_eq!(
        decode_command(&[0x62, 0x00]),
        Err(DecodeError::UnknownCommand { kind: 12 })
    );
    let far = [0x80, 0x7d, 0x05];
    assert_eq!(
        decode_command(&far),
        Err(DecodeError::UnknownCommand { kind: 2000 })
    );
}

#[test]
fn no_bytes_are_no_command() {
    assert_eq!(
        decode_command(&[]),
        Err(DecodeError::Missing {
            field: "command.kind"
        })
    );
}

#[test]
fn an_unknown_field_inside_a_command_stops_the_reader() {
    for (kind, command) in examples::commands() {
        let bytes = encode_command(&command);
        // All examples are shorter than 128 bytes, so the length is the second byte.
        assert_eq!(usize::from(bytes[1]), bytes.len() - 2, "{kind}");
        let mut newer = bytes.to_vec();
        // Field 100, the number 1.
        newer.extend([0xa0, 0x06, 0x01]);
        newer[1] += 3;
        let refused = decode_command(&newer);
        assert!(
            matches!(refused, Err(DecodeError::UnknownFields { .. })),
            "{kind}: {refused:?}"
        );
    }
}

#[test]
fn an_unknown_field_beside_a_command_stops_the_reader() {
    let mut newer = encode_command(&Command::Tick).to_vec();
    newer.extend([0xa0, 0x06, 0x01]);
    let refused = decode_command(&newer);
    assert!(
        matches!(refused, Err(DecodeError::UnknownFields { .. })),
        "{refused:?}"
    );
}

#[test]
fn an_unknown_ask_stops_the_reader() {
    // A request of session 1, secret zero, numbers 1 and 1, with field 9 where the ask should be.
    let request = [0x08, 1, 0x12, 0, 0x18, 1, 0x20, 1, 0x4a, 0];
    let mut bytes = vec![0x32, u8::try_from(request.len()).unwrap()];
    bytes.extend(request);
    let refused = decode_command(&bytes);
    assert!(
        matches!(refused, Err(DecodeError::UnknownFields { .. })),
        "{refused:?}"
    );
}

#[test]
fn an_unknown_field_of_an_event_or_an_outcome_is_passed_over() {
    for (kind, event) in examples::events() {
        let mut newer = encode_event(&event).to_vec();
        newer.extend([0xa0, 0x06, 0x01]);
        assert_eq!(decode_event(&newer), Ok(event), "{kind}");
    }
    for (kind, outcome) in examples::outcomes() {
        let mut newer = encode_outcome(&outcome).to_vec();
        newer.extend([0xa0, 0x06, 0x01]);
        assert_eq!(decode_outcome(&newer), Ok(outcome), "{kind}");
    }
}

#[test]
fn a_field_with_an_impossible_value_is_named() {
    // A revoke of the name `a//b`, token 5.
    let bad_name = [0x4a, 8, 0x0a, 4, b'a', b'/', b'/', b'b', 0x10, 5];
    let error = decode_command(&bad_name).unwrap_err().to_string();
    assert!(
        error.starts_with("revoke.name: an empty segment at byte 2"),
        "{error}"
    );

    // A revoke of the name `a` without a token.
    let no_token = [0x4a, 3, 0x0a, 1, b'a'];
    let error = decode_command(&no_token).unwrap_err().to_string();
    assert!(error.starts_with("revoke.token: 0 is no token"), "{error}");

    // A close without a secret.
    let no_secret = [0x3a, 2, 0x08, 1];
    assert_eq!(
        decode_command(&no_secret),
        Err(DecodeError::Missing {
            field: "close.secret"
        })
    );

    // A renew of a session with the number 0.
    let no_session = [0x42, 3, 0x0a, 1, 0];
    let error = decode_command(&no_session).unwrap_err().to_string();
    assert!(
        error.starts_with("renew.sessions: 0 is no session"),
        "{error}"
    );
}
