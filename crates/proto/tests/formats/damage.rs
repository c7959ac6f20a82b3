//! Bytes from elsewhere: every decoder gives a value or an error, and never panics.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message;
use prost::encoding::{decode_varint, encode_varint};
use ringfence_core::{ClusterTime, Command, StateMachine};
use ringfence_proto::record::*;
use ringfence_proto::wire::*;
use ringfence_proto::{DecodeError, v1};
use ringfence_testkit::arbitrary::histories;
use ringfence_testkit::heap;
use ringfence_testkit::run::steps;

use super::{arbitrary, examples, feed};

/// What reading may take beside the bytes: error texts, tables, the first allocations of a list.
const DECODER_BYTES: usize = 1 << 20;
/// How many bytes a decoder may take for one byte that it was given. An empty message in a list
/// has two bytes on the wire and some hundreds in memory.
const DECODER_BYTES_PER_BYTE: usize = 512;

/// Feeds the bytes to all decoders, and measures what they take.
fn feed(bytes: &[u8]) {
    let limit = DECODER_BYTES + DECODER_BYTES_PER_BYTE * bytes.len();
    for target in [
        feed::records,
        feed::requests,
        feed::answers,
        feed::log,
        feed::snapshot,
        feed::backup,
    ] {
        heap::within(limit, || target(bytes));
    }
}

fn command_bytes() -> impl Strategy<Value = Vec<u8>> {
    arbitrary::command().prop_map(|value| encode_command(&value).to_vec())
}

fn record_bytes(record: &ringfence_core::snapshot::Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_record(record, &mut bytes);
    bytes
}

/// What clients and servers say.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let client = |body| {
        v1::ClientFrame {
            id: 7,
            body: Some(body),
            ..Default::default()
        }
        .encode_to_vec()
    };
    let server = |body| {
        v1::ServerFrame {
            id: 7,
            body: Some(body),
        }
        .encode_to_vec()
    };
    let lost = (arbitrary::session(), vec(arbitrary::lost(), 0..4));
    prop_oneof![
        arbitrary::request().prop_map(move |request| client(request_to_wire(&request))),
        arbitrary::open().prop_filter_map("it acquires", move |open| {
            Some(client(v1::client_frame::Body::Acquire(acquire_to_wire(
                &open,
            )?)))
        }),
        arbitrary::acquired().prop_map(move |acquired| server(match acquired_to_wire(&acquired) {
            Ok(grant) => v1::server_frame::Body::Acquire(v1::AcquireResponse {
                grant: Some(grant),
                ..Default::default()
            }),
            Err(refusal) => v1::server_frame::Body::Refusal(refusal.into()),
        })),
        lost.prop_map(
            move |lost| server(v1::server_frame::Body::KeepAlive(kept_alive_to_wire(
                7,
                ClusterTime(8),
                &[],
                &[lost],
                &[]
            )))
        ),
    ]
}

/// A log, and the snapshot of the state that it makes, as pieces.
fn log_and_snapshot() -> impl Strategy<Value = Vec<u8>> {
    (histories(30), any::<bool>()).prop_map(|(history, log)| {
        let steps = steps(&history);
        let pieces: Vec<Vec<u8>> = if log {
            let mut term = 1;
            let piece = steps.iter().map(|step| {
                let begins = u8::from(step.entry.term > term) << 7;
                term = term.max(step.entry.term);
                [&[begins | 9][..], &encode_command(&step.entry.command)].concat()
            });
            piece.collect()
        } else {
            let mut machine = StateMachine::new();
            for step in &steps {
                machine.apply(&step.entry, &mut Vec::new());
            }
            machine
                .records()
                .map(|record| record_bytes(&record))
                .collect()
        };
        feed::joined(pieces.iter().map(Vec::as_slice))
    })
}

/// The bytes of any valid value.
fn valid() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        command_bytes(),
        arbitrary::outcome().prop_map(|value| encode_outcome(&value).to_vec()),
        arbitrary::event().prop_map(|value| encode_event(&value).to_vec()),
        arbitrary::record().prop_map(|record| record_bytes(&record)),
        frames(),
        log_and_snapshot(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn random_bytes_are_survived(bytes in vec(any::<u8>(), 0..200)) {
        feed(&bytes);
    }

    #[test]
    fn what_is_valid_is_read(bytes in valid()) {
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
    fn records_of_any_values_make_a_state_or_are_refused(
        header in arbitrary::record(),
        records in vec(arbitrary::record(), 0..6),
    ) {
        let all = std::iter::once(&header).chain(&records);
        let pieces: Vec<_> = all.map(record_bytes).collect();
        feed(&feed::joined(pieces.iter().map(Vec::as_slice)));
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
fn each_flipped_bit_and_each_cut_of_every_example_is_survived() {
    let outcomes = examples::outcomes();
    let outcomes = outcomes
        .iter()
        .map(|(_, value)| encode_outcome(value).to_vec());
    let events = examples::events();
    let events = events.iter().map(|(_, value)| encode_event(value).to_vec());
    let commands = examples::commands();
    let commands = commands
        .iter()
        .map(|(_, value)| encode_command(value).to_vec());
    let records = examples::records();
    let records = records.iter().map(|(_, value)| record_bytes(value));
    for bytes in outcomes.chain(events).chain(commands).chain(records) {
        for at in 0..bytes.len() {
            feed(&bytes[..at]);
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                feed(&damaged);
            }
        }
    }
}

#[test]
fn an_unknown_kind_of_command_is_named() {
    // Field 125, a message without content; and field 2000, a number.
    assert_eq!(
        decode_command(&[0xea, 0x07, 0x00]),
        Err(DecodeError::UnknownCommand { kind: 125 })
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
        let mut rest = &bytes[..];
        let key = decode_varint(&mut rest).unwrap();
        let length = decode_varint(&mut rest).unwrap();
        assert_eq!(length, rest.len() as u64, "{kind}");
        let mut newer = Vec::new();
        encode_varint(key, &mut newer);
        encode_varint(length + 3, &mut newer);
        newer.extend(rest);
        // Field 100, the number 1.
        newer.extend([0xa0, 0x06, 0x01]);
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
