//! Any bytes into every public decoder. Each function here is a fuzz target in `crates/fuzz` and
//! a property in `damage.rs`: it panics where the decoders or the state machine break a promise.

use prost::Message;
use ringfence_core::snapshot::Record;
use ringfence_core::{BackupContents, BackupRecord, ClusterTime, Entry, StateMachine, WallTime};
use ringfence_proto::record::*;
use ringfence_proto::v1::server_frame::Body;
use ringfence_proto::wire::*;
use ringfence_proto::{Refusal, text, v1};

/// Log commands, outcomes, events, and records of snapshots and backups: what is read can be written, and is then
/// read as the same.
pub(crate) fn records(bytes: &[u8]) {
    if let Ok(command) = decode_command(bytes) {
        assert!(version_of(bytes).is_some(), "a command without a version");
        // A check by kind judges the command that the bytes are decoded to.
        assert_eq!(kind_of(bytes), Some(CommandKind::from(&command)));
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
    if let Ok(record) = decode_backup_record(bytes) {
        let mut again = Vec::new();
        encode_backup_record(&record, &mut again);
        assert_eq!(decode_backup_record(&again), Ok(record));
    }
    if let Ok(digits) = std::str::from_utf8(bytes)
        && let Some(read) = text::from_hex(digits)
    {
        assert_eq!(text::hex(&read), digits.to_ascii_lowercase());
    }
}

/// What a client may send: streams and calls of their own.
pub(crate) fn requests(bytes: &[u8]) {
    if let Ok(message) = v1::ClientMessage::decode(bytes) {
        for frame in message.frames {
            asked(frame_from_wire(frame.body));
        }
    }
    if let Ok(frame) = v1::ClientFrame::decode(bytes) {
        asked(frame_from_wire(frame.body));
    }
    if let Ok(list) = v1::ListRequest::decode(bytes) {
        refused_in_words(list_from_wire(list));
    }
    if let Ok(history) = v1::HistoryRequest::decode(bytes) {
        refused_in_words(history_from_wire(history));
    }
    if let Ok(revoke) = v1::RevokeRequest::decode(bytes) {
        refused_in_words(revoke_from_wire(revoke));
    }
    if let Ok(evict) = v1::EvictRequest::decode(bytes) {
        refused_in_words(evict_from_wire(evict));
    }
    if let Ok(configure) = v1::ConfigureRequest::decode(bytes)
        && let Some(configure) = refused_in_words(configure_from_wire(&configure))
    {
        let settings = settings_to_wire(&configure.settings);
        assert_eq!(settings_from_wire(&settings), configure.settings);
    }
    if let Ok(change) = v1::ChangeAccessRequest::decode(bytes) {
        refused_in_words(change_access_from_wire(change));
    }
    if let Ok(test) = v1::TestAccessRequest::decode(bytes) {
        refused_in_words(test_access_from_wire(&test));
    }
    if let Ok(list) = v1::ListActsRequest::decode(bytes) {
        refused_in_words(list_acts_from_wire(&list));
    }
    if let Ok(rule) = v1::Rule::decode(bytes)
        && let Some(rule) = refused_in_words(rule_from_wire(&rule, "rule"))
    {
        assert_eq!(rule_from_wire(&rule_to_wire(&rule), "rule"), Ok(rule));
    }
    if let Ok(get) = v1::GetSessionRequest::decode(bytes) {
        refused_in_words(get_session_from_wire(&get));
    }
    if let Ok(list) = v1::ListSessionsRequest::decode(bytes) {
        refused_in_words(list_sessions_from_wire(&list));
    }
    if let Ok(position) = v1::Position::decode(bytes)
        && let Some(position) = refused_in_words(position_from_wire(&position))
    {
        assert_eq!(
            position_from_wire(&position_to_wire(position)),
            Ok(position)
        );
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        refused_in_words(prefix_from_wire(text.to_owned()));
    }
}

/// A command that passes the edge can be logged, and is read from the log as what was asked.
fn asked(asked: Result<Asked, Refusal>) {
    let Some(Asked::Command(command)) = refused_in_words(asked) else {
        return;
    };
    assert_eq!(
        decode_command(&encode_command(&command)).as_ref(),
        Ok(&command)
    );
    if let ringfence_core::Command::Request(request) = &command {
        let again = frame_from_wire(Some(request_to_wire(request)));
        assert_eq!(again, Ok(Asked::Command(command)));
    }
}

/// A refusal reaches the caller as it was, by a stream and by a status.
fn refused_in_words<T>(result: Result<T, Refusal>) -> Option<T> {
    let refusal = match result {
        Ok(value) => return Some(value),
        Err(refusal) => refusal,
    };
    assert!(!refusal.message.is_empty());
    assert_eq!(
        Refusal::from_wire(refusal.clone().into()),
        Some(refusal.clone())
    );
    let status = tonic::Status::from(refusal.clone());
    assert_eq!(Refusal::from_status(&status), Some(refusal));
    None
}

/// What a server may send, as the client crate reads it.
pub(crate) fn answers(bytes: &[u8]) {
    if let Ok(message) = v1::ServerMessage::decode(bytes) {
        message.frames.into_iter().for_each(answer);
    }
    if let Ok(frame) = v1::ServerFrame::decode(bytes) {
        answer(frame);
    }
    if let Ok(lease) = v1::Lease::decode(bytes)
        && let Ok(lease) = lease_from_wire(lease)
    {
        assert_eq!(lease_from_wire(lease_to_wire(&lease)), Ok(lease));
    }
    if let Ok(session) = v1::Session::decode(bytes)
        && let Ok(session) = session_from_wire(session)
    {
        assert_eq!(session_from_wire(session_to_wire(&session)), Ok(session));
    }
    if let Ok(end) = v1::EndCause::decode(bytes)
        && let Ok(end) = end_cause_from_wire(end)
    {
        assert_eq!(end_cause_from_wire(end_cause_to_wire(&end)), Ok(end));
    }
    if let Ok(floor) = v1::Floor::decode(bytes)
        && let Ok((name, token)) = floor_from_wire(&floor)
    {
        assert_eq!(
            floor_from_wire(&floor_to_wire(&name, token)),
            Ok((name, token))
        );
    }
    if let Ok(status) = v1::StatusResponse::decode(bytes) {
        drop(status_settings(&status));
    }
    let status = tonic::Status::with_details(
        tonic::Code::Aborted,
        "as it came",
        bytes::Bytes::copy_from_slice(bytes),
    );
    if let Some(refusal) = Refusal::from_status(&status) {
        let again = tonic::Status::from(refusal.clone());
        assert_eq!(Refusal::from_status(&again), Some(refusal));
    }
}

fn answer(frame: v1::ServerFrame) {
    match frame.body {
        Some(Body::Greeting(greeting)) => drop(cluster_id_from_wire(&greeting.cluster_id)),
        Some(Body::Refusal(refusal)) => {
            if let Some(refusal) = Refusal::from_wire(refusal) {
                assert_eq!(Refusal::from_wire(refusal.clone().into()), Some(refusal));
            }
        }
        Some(Body::Open(opened)) => drop(opened_from_wire(&opened)),
        Some(Body::KeepAlive(kept)) => {
            for lost in kept.lost.into_iter().flat_map(|losses| losses.grants) {
                if let Ok(lost) = lost_grant_from_wire(lost) {
                    assert_eq!(lost_grant_from_wire(lost_grant_to_wire(&lost)), Ok(lost));
                }
            }
            for cause in kept.ended.into_iter().filter_map(|ended| ended.cause) {
                drop(session_end_from_wire(cause));
            }
        }
        Some(Body::Acquire(v1::AcquireResponse {
            grant: Some(grant), ..
        })) => {
            if let Ok(grant) = grant_from_wire(grant) {
                assert_eq!(grant_from_wire(grant_to_wire(&grant)), Ok(grant));
            }
        }
        Some(Body::Cancel(cancelled)) => drop(cancelled_from_wire(&cancelled)),
        Some(Body::Get(v1::GetResponse {
            lease: Some(lease), ..
        })) => {
            drop(lease_from_wire(lease));
        }
        Some(Body::Check(verdict)) => drop(verdict_from_wire(&verdict)),
        _ => {}
    }
}

/// The pieces of `bytes`: a length in two bytes before each.
fn pieces(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (piece, rest) = rest.split_at(length);
        bytes = rest;
        Some(piece)
    })
}

/// The bytes that [`pieces`] takes apart again.
pub(crate) fn joined<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        let length = u16::try_from(piece.len()).unwrap_or(u16::MAX);
        bytes.extend(length.to_le_bytes());
        bytes.extend(&piece[..usize::from(length)]);
    }
    bytes
}

/// A log of any commands: no entry panics, and whatever state they make can be saved and read.
/// The first byte of a piece says how far time moves and whether a term begins.
pub(crate) fn log(bytes: &[u8]) {
    let mut machine = StateMachine::new();
    let (mut term, mut time) = (1, 0_u64);
    for (index, piece) in (1..).zip(pieces(bytes)) {
        let Some((step, command)) = piece.split_first() else {
            continue;
        };
        let Ok(command) = decode_command(command) else {
            continue;
        };
        term += u64::from(step >> 7);
        // From standing still to years at a step.
        time = time.saturating_add((1_u64 << (step & 0x3f)) >> 1);
        let entry = Entry {
            index,
            term,
            time: ClusterTime(time),
            wall: WallTime(time),
            command,
        };
        machine.apply(&entry, &mut Vec::new());
    }
    saved(&machine);
}

/// A backup of any records: it is refused, or it is read.
pub(crate) fn backup(bytes: &[u8]) {
    let records: Result<Vec<BackupRecord>, _> = pieces(bytes).map(decode_backup_record).collect();
    let Ok(records) = records else {
        return;
    };
    if let Ok(read) = BackupContents::from_records(records.iter().cloned()) {
        assert!(read.header.tokens.granted() <= read.header.tokens.reached());
        let kept = 1 + read.floors + (read.access.len() + read.pods.len()) as u64;
        assert_eq!(kept, records.len() as u64);
    }
}

/// A snapshot of any records: it is refused, or it makes a state that is saved as it was read and
/// goes on without a panic.
pub(crate) fn snapshot(bytes: &[u8]) {
    let records: Result<Vec<Record>, _> = pieces(bytes).map(decode_record).collect();
    let Ok(records) = records else {
        return;
    };
    let Ok(mut machine) = StateMachine::restore(records.iter().cloned()) else {
        return;
    };
    saved(&machine);
    let before = machine.time().0;
    for step in [0, 1, 1_000, 100_000, 100_000_000, u64::MAX] {
        let entry = Entry {
            index: machine.index().saturating_add(1),
            term: machine.term(),
            time: ClusterTime(before.saturating_add(step)),
            wall: WallTime(0),
            command: ringfence_core::Command::Tick,
        };
        machine.apply(&entry, &mut Vec::new());
    }
    saved(&machine);
}

/// The records of a machine, through their bytes, make an equal machine.
fn saved(machine: &StateMachine) {
    let through_bytes = machine.records().map(|record| {
        let mut bytes = Vec::new();
        encode_record(&record, &mut bytes);
        decode_record(&bytes).expect("what was encoded can be decoded")
    });
    let again = StateMachine::restore(through_bytes).expect("a machine can be restored");
    assert!(
        machine.records().eq(again.records()),
        "it is restored as another one"
    );
}
