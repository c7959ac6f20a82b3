//! One record of the history: a grant and its end.

use ringfence_core::{
    EndCause, Event, FencingToken, Granted, Identity, LeaseName, SessionId, WallTime,
};
use ringfence_proto::raft as pb;
use ringfence_proto::record::{decode_event, encode_event};

/// A grant and, as far as the index covers it, its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryRecord {
    /// Name of the lease.
    pub name: LeaseName,
    /// The token of the grant.
    pub token: FencingToken,
    /// The grant; `None` if its entry is not covered.
    pub granted: Option<Granted>,
    /// Its end; `None` while it is in force, or if its entry is not covered.
    pub ended: Option<HistoryEnd>,
}

/// The end of a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryEnd {
    /// The log index of the entry that ended it.
    pub index: u64,
    /// Wall-clock time of the entry that ended it, for people; ordered by `index`, not by this.
    pub at: WallTime,
    /// Whose grant it was.
    pub session: SessionId,
    /// Identity of the session that held the grant.
    pub identity: Identity,
    /// The cause of the end, as the log has it.
    pub cause: EndCause,
}

/// The lease and the token of the grant that an event is about, if it is about one.
pub(crate) fn grant_of(event: &Event) -> Option<(&str, u64)> {
    match event {
        Event::Granted(granted) => Some((granted.name.as_str(), granted.token.get())),
        Event::Ended { name, token, .. } => Some((name.as_str(), token.get())),
        Event::WaitEnded { .. }
        | Event::SessionOpened { .. }
        | Event::SessionEnded { .. }
        | Event::Forgotten { .. } => None,
    }
}

/// The record that an event makes, alone; `None` if it is about no grant.
pub(crate) fn of_event(index: u64, event: &Event) -> Option<pb::HistoryRecord> {
    match event {
        Event::Granted(granted) => Some(pb::HistoryRecord {
            token: granted.token.get(),
            name: granted.name.to_string(),
            granted: encode_event(event),
            granted_index: index,
            ..pb::HistoryRecord::default()
        }),
        Event::Ended { name, token, .. } => Some(pb::HistoryRecord {
            token: token.get(),
            name: name.to_string(),
            ended: encode_event(event),
            ended_index: index,
            ..pb::HistoryRecord::default()
        }),
        Event::WaitEnded { .. }
        | Event::SessionOpened { .. }
        | Event::SessionEnded { .. }
        | Event::Forgotten { .. } => None,
    }
}

/// A record that a peer sent, in no chain here.
pub(crate) fn alone(record: pb::HistoryRecord) -> pb::HistoryRecord {
    pb::HistoryRecord {
        previous: 0,
        ..record
    }
}

/// Puts together what two records know of one grant.
pub(crate) fn merge(known: &mut pb::HistoryRecord, more: pb::HistoryRecord) {
    if !more.granted.is_empty() {
        known.granted = more.granted;
        known.granted_index = more.granted_index;
    }
    if !more.ended.is_empty() {
        known.ended = more.ended;
        known.ended_index = more.ended_index;
    }
}

/// Whether the grant or its end lies between two log indices.
pub(crate) fn touches(record: &pb::HistoryRecord, first: u64, last: u64) -> bool {
    let range = first..=last;
    (!record.granted.is_empty() && range.contains(&record.granted_index))
        || (!record.ended.is_empty() && range.contains(&record.ended_index))
}

/// The record as callers see it; `None` if its bytes mean nothing.
pub(crate) fn from_pb(record: pb::HistoryRecord) -> Option<HistoryRecord> {
    let granted = match decode_event(&record.granted) {
        Ok(Event::Granted(granted)) => Some(granted),
        _ => None,
    };
    let ended = match decode_event(&record.ended) {
        Ok(Event::Ended {
            session,
            identity,
            cause,
            at,
            ..
        }) => Some(HistoryEnd {
            index: record.ended_index,
            at,
            session,
            identity,
            cause,
        }),
        _ => None,
    };
    Some(HistoryRecord {
        name: LeaseName::parse(&record.name).ok()?,
        token: FencingToken::new(record.token)?,
        granted,
        ended,
    })
}
