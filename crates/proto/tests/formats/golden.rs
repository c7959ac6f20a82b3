//! Bytes that were written once must stay readable: one line per kind, its name and its bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::PathBuf;
use std::{env, fs};

use protox::prost_reflect::DescriptorPool;
use ringfence_proto::DecodeError;
use ringfence_proto::record::*;
use ringfence_proto::text::{from_hex, hex};

use super::{examples, schema};

pub(crate) fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(file)
}

pub(crate) fn recording() -> bool {
    env::var_os("RECORD").is_some()
}

/// Compares with the file, or writes it; then reads every line of it back.
pub(crate) fn check<T: PartialEq + Debug>(
    file: &str,
    examples: Vec<(String, T)>,
    encode: impl Fn(&T) -> Vec<u8>,
    decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
) {
    let path = path(file);
    let lines = examples
        .iter()
        .map(|(kind, value)| format!("{kind} {}\n", hex(&encode(value))));
    let found: String = lines.collect();
    if recording() {
        fs::write(&path, &found).unwrap();
    }
    let told = fs::read_to_string(&path).unwrap();
    let told: BTreeMap<_, _> = told
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    assert_eq!(
        told.len(),
        examples.len(),
        "{file}: kinds came or went, RECORD=1 records them"
    );
    for (kind, value) in &examples {
        let bytes = told
            .get(kind.as_str())
            .unwrap_or_else(|| panic!("{file}: no line for {kind}"));
        let bytes = from_hex(bytes).unwrap();
        assert_eq!(
            decode(&bytes).as_ref(),
            Ok(value),
            "{file}: {kind} is read as something else"
        );
        assert_eq!(
            hex(&encode(value)),
            hex(&bytes),
            "{file}: {kind} is written differently"
        );
    }
}

fn owned<T>(examples: Vec<(&str, T)>) -> Vec<(String, T)> {
    examples
        .into_iter()
        .map(|(kind, value)| (kind.to_owned(), value))
        .collect()
}

fn record_bytes(record: &ringfence_core::snapshot::Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_record(record, &mut bytes);
    bytes
}

fn backup_bytes(record: &ringfence_core::BackupRecord) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_backup_record(record, &mut bytes);
    bytes
}

#[test]
fn commands_are_written_and_read_as_ever() {
    let examples = owned(examples::commands());
    check(
        "commands.txt",
        examples,
        |value| encode_command(value).to_vec(),
        decode_command,
    );
}

#[test]
fn snapshot_records_are_written_and_read_as_ever() {
    check(
        "records.txt",
        owned(examples::records()),
        record_bytes,
        decode_record,
    );
}

#[test]
fn records_of_backups_are_written_and_read_as_ever() {
    check(
        "backups.txt",
        owned(examples::backups()),
        backup_bytes,
        decode_backup_record,
    );
}

/// Never recorded again: a node that is upgraded finds snapshots with such records.
#[test]
fn snapshot_records_of_0_1_0_are_read() {
    let lines = fs::read_to_string(path("records_0_1_0.txt")).unwrap();
    for line in lines.lines() {
        let (kind, bytes) = line.split_once(' ').unwrap();
        let record = decode_record(&from_hex(bytes).unwrap());
        let record = record.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(decode_record(&record_bytes(&record)), Ok(record), "{kind}");
    }
}

#[test]
fn events_are_written_and_read_as_ever() {
    check(
        "events.txt",
        examples::events(),
        |value| encode_event(value).to_vec(),
        decode_event,
    );
}

#[test]
fn outcomes_are_written_and_read_as_ever() {
    let encode = |value: &_| encode_outcome(value).to_vec();
    check("outcomes.txt", examples::outcomes(), encode, decode_outcome);
}

/// The numbers of all fields of a message.
fn kinds_of(pool: &DescriptorPool, message: &str) -> BTreeSet<u32> {
    let message = pool
        .get_message_by_name(&format!("ringfence.record.v1.{message}"))
        .unwrap();
    message.fields().map(|field| field.number()).collect()
}

/// The kind in bytes that are nothing but a choice: all field numbers here are below 2048, so the
/// first key has one or two bytes.
fn kind(bytes: &[u8]) -> u32 {
    match bytes {
        [first, ..] if first & 0x80 == 0 => u32::from(first >> 3),
        [first, second, ..] => (u32::from(*second) << 7 | u32::from(first & 0x7f)) >> 3,
        _ => panic!("no bytes"),
    }
}

#[test]
fn every_kind_has_an_example() {
    let pool = schema::pool();
    let commands = examples::commands();
    let outcomes = examples::outcomes();

    let found = commands
        .iter()
        .map(|(_, command)| kind(&encode_command(command)));
    assert_eq!(found.collect::<BTreeSet<_>>(), kinds_of(&pool, "Command"));
    let records = examples::records();
    let found = records
        .iter()
        .map(|(_, record)| kind(&record_bytes(record)));
    assert_eq!(found.collect::<BTreeSet<_>>(), kinds_of(&pool, "Record"));
    let backups = examples::backups();
    let found = backups
        .iter()
        .map(|(_, record)| kind(&backup_bytes(record)));
    let kinds = kinds_of(&pool, "BackupRecord");
    assert_eq!(found.collect::<BTreeSet<_>>(), kinds);
    let events = examples::events();
    let found = events.iter().map(|(_, event)| kind(&encode_event(event)));
    assert_eq!(found.collect::<BTreeSet<_>>(), kinds_of(&pool, "Event"));
    let found = outcomes
        .iter()
        .map(|(_, outcome)| kind(&encode_outcome(outcome)));
    assert_eq!(found.collect::<BTreeSet<_>>(), kinds_of(&pool, "Outcome"));
    // A rejected outcome is a key of one byte, a length of one byte, and the rejection.
    let rejected = outcomes
        .iter()
        .filter(|(kind, _)| kind.starts_with("rejected_"));
    let found = rejected.map(|(_, outcome)| kind(&encode_outcome(outcome)[2..]));
    assert_eq!(found.collect::<BTreeSet<_>>(), kinds_of(&pool, "Rejection"));
}
