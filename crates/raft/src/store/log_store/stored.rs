//! What the log on disk calls things, and what openraft does; and parts of it.

use std::ops::{Bound, RangeBounds};

use prost::Message;
use ringfence_proto::raft as pb;
use ringfence_wal::{EntryId, LogEntry};

use crate::types::codec::{self, Malformed};
use crate::types::type_config::{Entry, LogId, Vote, log_id};

pub(super) fn to_entry_id(log_id: LogId) -> EntryId {
    EntryId {
        term: log_id.leader_id.term,
        index: log_id.index,
    }
}

pub(super) fn from_entry_id(id: EntryId) -> LogId {
    log_id(id.term, id.index)
}

pub(super) fn entry_from_wal(entry: LogEntry) -> Result<Entry, Malformed> {
    Ok(Entry {
        log_id: from_entry_id(entry.id),
        payload: codec::payload_from_bytes(entry.payload)?,
    })
}

pub(super) fn decode_vote(bytes: &[u8]) -> Result<Vote, Malformed> {
    let message = pb::Vote::decode(bytes).map_err(|error| Malformed::new("saved vote", error))?;
    codec::vote_from_pb(Some(message))
}

pub(super) fn decode_log_id(bytes: &[u8]) -> Result<LogId, Malformed> {
    let message = pb::LogId::decode(bytes);
    message
        .map(codec::log_id_from_pb)
        .map_err(|error| Malformed::new("commit mark", error))
}

pub(super) fn capped<'a>(entries: impl Iterator<Item = &'a Entry>, bytes_max: usize) -> Vec<Entry> {
    let mut bytes = 0;
    let mut taken = Vec::new();
    for entry in entries {
        bytes += codec::payload_to_bytes(&entry.payload).len();
        if bytes > bytes_max && !taken.is_empty() {
            break;
        }
        taken.push(entry.clone());
    }
    taken
}

pub(super) fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(from) => *from,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (from, end)
}
