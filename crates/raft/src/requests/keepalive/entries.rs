//! The entries by which a batch of keep-alives is logged.

use ringfence_core::{Renew, SessionId};
use ringfence_planted::{Bug, planted};

use super::{Acknowledgement, Checked, SESSIONS_PER_RENEW_MAX};

/// The most bytes that the sessions of one entry take. Numbers that lie far apart take more bytes,
/// and then fewer of them fit.
const SESSION_BYTES_MAX: usize = 20 * 1024;
/// The most acknowledged losses in one entry: two numbers and their frame, 24 bytes at most each.
const ACKNOWLEDGED_PER_RENEW_MAX: usize = 400;

/// The entries of a batch: sorted session numbers, each once. There is always one, since also a
/// refusal waits for an entry. None is longer than an entry may be.
pub(super) fn entries(checked: &[Checked]) -> Vec<Renew> {
    let mut sessions: Vec<SessionId> = checked
        .iter()
        .flat_map(|one| one.alive.iter().copied())
        .collect();
    sessions.sort_unstable();
    sessions.dedup();
    let noticed = checked.iter().flat_map(|one| one.noticed.iter().copied());
    let mut acknowledged: Vec<Acknowledgement> = noticed.collect();
    acknowledged.sort_unstable();
    acknowledged.dedup();
    if planted(Bug::SizeLeftToTheLog) {
        return vec![Renew {
            sessions,
            acknowledged,
        }];
    }
    // What is acknowledged comes first: a loss that a session has acknowledged in this batch must
    // not be listed for it again.
    let mut entries: Vec<Renew> = acknowledged
        .chunks(ACKNOWLEDGED_PER_RENEW_MAX)
        .map(|part| Renew {
            sessions: Vec::new(),
            acknowledged: part.to_vec(),
        })
        .collect();
    let mut parts = session_parts(&sessions);
    match entries.last_mut() {
        Some(last) => last.sessions = parts.next().unwrap_or_default().to_vec(),
        None => entries.push(Renew {
            sessions: parts.next().unwrap_or_default().to_vec(),
            acknowledged: Vec::new(),
        }),
    }
    entries.extend(parts.map(|part| Renew {
        sessions: part.to_vec(),
        acknowledged: Vec::new(),
    }));
    entries
}

/// Sorted sessions in parts that each fit in one entry, where they stand as differences.
fn session_parts(mut sessions: &[SessionId]) -> impl Iterator<Item = &[SessionId]> {
    std::iter::from_fn(move || {
        let (mut bytes, mut before) = (0, 0);
        let fits = sessions.iter().take_while(|session| {
            // Seven bits of the difference in a byte.
            let difference = session.get() - before;
            bytes += (64 - difference.max(1).leading_zeros()).div_ceil(7) as usize;
            before = session.get();
            bytes <= SESSION_BYTES_MAX
        });
        let count = fits.count().min(SESSIONS_PER_RENEW_MAX);
        let (part, rest) = sessions.split_at(count);
        sessions = rest;
        (!part.is_empty()).then_some(part)
    })
}
