//! What is kept: log commands, outcomes, events, and records of snapshots and backups as bytes.
//!
//! Encoding cannot fail, and whatever it writes can be read. Decoding is total: any bytes give a
//! value or a [`DecodeError`]. Bytes that decide the replicated state, commands and snapshot
//! records, are read strictly: a field that this version does not know is an error, since passing
//! over it would bring this node to another state than its peers. Outcomes and events are only
//! passed on, and may carry more than this version understands.

mod access;
mod backup;
mod command;
mod event;
mod id;
mod kind;
mod numbers;
mod object;
mod outcome;
mod pod;
mod rejection;
mod request;
mod restored;
mod shared;
mod snapshot;

use bytes::Bytes;
use prost::Message;
use prost::encoding::decode_key;
use ringfence_core::snapshot::Record;
use ringfence_core::{BackupRecord, Command, Event, Outcome};
use ringfence_planted::{Bug, planted};

pub use self::kind::{CommandKind, kind_of};
use crate::DecodeError;
use crate::generated::ringfence::record::v1 as pb;

/// The newest version of log commands that this release reads and writes. A release that adds a
/// kind of command, or a field to one, raises it by one and says in [`version_of`] what needs it.
pub const RECORD_VERSION: u32 = 6;

/// The version from which on releases understand the command in `bytes`, by its kind; `None` if
/// this release does not know the kind. Cheap: it decodes only what is rare.
#[must_use]
pub fn version_of(bytes: &[u8]) -> Option<u32> {
    match first_field(bytes)? {
        1 => Some(version_of_form(bytes)),
        4 => Some(version_of_configure(bytes)),
        2..=3 | 5..=11 => Some(1),
        12..=13 => Some(2),
        14 => Some(3),
        15 if kind::called_kind_of(bytes) == Some(CommandKind::Configure) => {
            Some(version_of_configure(bytes).max(4))
        }
        15..=18 => Some(4),
        19 => Some(5),
        20 => Some(6),
        _ => None,
    }
}

/// The version that the command in `bytes`, a `Form`, needs. A cluster is formed once, so it may be
/// decoded for this.
fn version_of_form(bytes: &[u8]) -> u32 {
    let command = pb::Command::decode(bytes).ok();
    match command.and_then(|command| command.kind) {
        Some(pb::command::Kind::Form(form)) if form.quiet_time > 0 || form.restored.is_some() => 6,
        Some(pb::command::Kind::Form(form)) if form.settings.is_some_and(has_factor) => 5,
        Some(pb::command::Kind::Form(form)) if form.mode != 0 => 4,
        _ => 1,
    }
}

/// The version that the command in `bytes` needs, a `Configure` that may have a caller. Operators
/// change settings seldom, so it may be decoded for this.
fn version_of_configure(bytes: &[u8]) -> u32 {
    use pb::command::Kind;
    let command = pb::Command::decode(bytes).ok();
    let kind = match command.and_then(|command| command.kind) {
        Some(Kind::Called(called)) => called.command.and_then(|command| command.kind),
        kind => kind,
    };
    match kind {
        Some(Kind::Configure(configure)) if configure.settings.is_some_and(has_factor) => 5,
        _ => 1,
    }
}

/// A node of a release before version 5 stops at settings with this field.
fn has_factor(settings: pb::Settings) -> bool {
    settings.lease_api_factor.is_some()
}

/// `level`, if this release knows it: there is none beyond the version of log commands.
fn known_level(level: u32) -> Result<u32, DecodeError> {
    let newest = RECORD_VERSION;
    match level > newest && !planted(Bug::UnknownLevelPassedOver) {
        true => Err(DecodeError::UnknownLevel { level, newest }),
        false => Ok(level),
    }
}

/// The bytes of a log command.
#[must_use]
pub fn encode_command(command: &Command) -> Bytes {
    pb::Command::from(command).encode_to_vec().into()
}

/// The log command in `bytes`.
///
/// # Errors
/// [`DecodeError::UnknownCommand`] if a newer version wrote it, [`DecodeError::UnknownLevel`] if it
/// raises the level beyond [`RECORD_VERSION`]; any other [`DecodeError`] if the bytes are damaged or
/// carry fields of a newer version. In each case the node must stop before
/// the entry.
pub fn decode_command(bytes: &[u8]) -> Result<Command, DecodeError> {
    let command: pb::Command = decode_message(bytes, "a log command")?;
    let Some(kind) = command.kind else {
        return Err(match first_field(bytes) {
            Some(kind) => DecodeError::UnknownCommand { kind },
            None => DecodeError::Missing {
                field: "command.kind",
            },
        });
    };
    let understood = kind.encoded_len();
    all_understood(bytes, understood, "a log command")?;
    kind.try_into()
}

/// Appends the bytes of a snapshot record to `buffer`, without a length in front.
pub fn encode_record(record: &Record, buffer: &mut Vec<u8>) {
    let record = pb::Record::from(record);
    buffer.reserve(record.encoded_len());
    record.encode_raw(buffer);
}

/// The snapshot record in `bytes`.
///
/// # Errors
/// [`DecodeError`] if the bytes are damaged, or a newer version wrote them.
pub fn decode_record(bytes: &[u8]) -> Result<Record, DecodeError> {
    let what = "a snapshot record";
    let record: pb::Record = decode_message(bytes, what)?;
    let kind = known_kind(record.kind, bytes, what)?;
    all_understood(bytes, kind.encoded_len(), what)?;
    kind.try_into()
}

/// Appends the bytes of a record of a backup to `buffer`, without a length in front.
pub fn encode_backup_record(record: &BackupRecord, buffer: &mut Vec<u8>) {
    let record = pb::BackupRecord::from(record);
    buffer.reserve(record.encoded_len());
    record.encode_raw(buffer);
}

/// The record of a backup in `bytes`.
///
/// # Errors
/// [`DecodeError`] if the bytes are damaged, or a newer version wrote them.
pub fn decode_backup_record(bytes: &[u8]) -> Result<BackupRecord, DecodeError> {
    let what = "a record of a backup";
    let record: pb::BackupRecord = decode_message(bytes, what)?;
    let kind = known_kind(record.kind, bytes, what)?;
    all_understood(bytes, kind.encoded_len(), what)?;
    kind.try_into()
}

/// The bytes of an outcome.
#[must_use]
pub fn encode_outcome(outcome: &Outcome) -> Bytes {
    pb::Outcome::from(outcome).encode_to_vec().into()
}

/// The outcome in `bytes`.
///
/// # Errors
/// [`DecodeError`] if the bytes are damaged, or say what this version has no word for. What became
/// of the command is unknown then.
pub fn decode_outcome(bytes: &[u8]) -> Result<Outcome, DecodeError> {
    let what = "an outcome";
    let outcome: pb::Outcome = decode_message(bytes, what)?;
    known_kind(outcome.kind, bytes, what)?.try_into()
}

/// The bytes of an event.
#[must_use]
pub fn encode_event(event: &Event) -> Bytes {
    pb::Event::from(event).encode_to_vec().into()
}

/// The event in `bytes`.
///
/// # Errors
/// [`DecodeError`] if the bytes are damaged, or say what this version has no word for.
pub fn decode_event(bytes: &[u8]) -> Result<Event, DecodeError> {
    let what = "an event";
    let event: pb::Event = decode_message(bytes, what)?;
    known_kind(event.kind, bytes, what)?.try_into()
}

fn decode_message<M: Message + Default>(
    bytes: &[u8],
    what: &'static str,
) -> Result<M, DecodeError> {
    M::decode(bytes).map_err(|source| DecodeError::Malformed { what, source })
}

/// The number of the first field, which is the kind where a message is nothing but a choice.
fn first_field(mut bytes: &[u8]) -> Option<u32> {
    decode_key(&mut bytes).ok().map(|(field, _)| field)
}

fn known_kind<K>(kind: Option<K>, bytes: &[u8], what: &'static str) -> Result<K, DecodeError> {
    kind.ok_or_else(|| match first_field(bytes) {
        Some(kind) => DecodeError::UnknownKind { what, kind },
        None => DecodeError::Missing { field: what },
    })
}

/// The decoder passes over fields it does not know; then what it understood is shorter than what
/// there was, because our own encoder writes nothing twice and nothing in two ways.
fn all_understood(bytes: &[u8], understood: usize, what: &'static str) -> Result<(), DecodeError> {
    if understood == bytes.len() || planted(Bug::UnknownFieldsPassedOver) {
        return Ok(());
    }
    Err(DecodeError::UnknownFields {
        what,
        bytes: bytes.len(),
        understood,
    })
}
