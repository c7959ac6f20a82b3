//! Whatever is written can be read, and is the same then.

use proptest::prelude::*;
use ringfence_core::{Command, Renew, SessionId};
use ringfence_proto::record::*;

use super::arbitrary;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_command_comes_back_as_it_was(command in arbitrary::command()) {
        prop_assert_eq!(decode_command(&encode_command(&command)), Ok(command));
    }

    #[test]
    fn an_outcome_comes_back_as_it_was(outcome in arbitrary::outcome()) {
        prop_assert_eq!(decode_outcome(&encode_outcome(&outcome)), Ok(outcome));
    }

    #[test]
    fn an_event_comes_back_as_it_was(event in arbitrary::event()) {
        prop_assert_eq!(decode_event(&encode_event(&event)), Ok(event));
    }

    #[test]
    fn a_snapshot_record_comes_back_as_it_was(record in arbitrary::record()) {
        let mut bytes = b"what stood there before".to_vec();
        let before = bytes.len();
        encode_record(&record, &mut bytes);
        prop_assert_eq!(&bytes[..before], b"what stood there before");
        prop_assert_eq!(decode_record(&bytes[before..]), Ok(record));
    }

    #[test]
    fn a_record_of_a_backup_comes_back_as_it_was(record in arbitrary::backup_record()) {
        let mut bytes = Vec::new();
        encode_backup_record(&record, &mut bytes);
        prop_assert_eq!(decode_backup_record(&bytes), Ok(record));
    }
}

#[test]
fn ten_thousand_of_a_million_sessions_take_less_than_a_byte_and_a_half_each() {
    // Every hundredth on average, with the uneven distances that a real batch has.
    let mut at = 0;
    let numbers = (0..10_000u64).map(|i| {
        at += 1 + (i * 7919) % 199;
        SessionId::new(at).unwrap()
    });
    let sessions: Vec<_> = numbers.collect();
    let renew = Command::Renew(Renew {
        sessions,
        acknowledged: vec![],
    });

    let bytes = encode_command(&renew);

    assert!(bytes.len() < 15_000, "{} bytes", bytes.len());
    assert_eq!(decode_command(&bytes), Ok(renew));
}

#[test]
fn an_acquire_of_a_short_name_fits_in_sixty_bytes() {
    let command = super::examples::acquire("jobs/nightly");
    let bytes = encode_command(&command);
    assert!(bytes.len() <= 60, "{} bytes", bytes.len());
}
