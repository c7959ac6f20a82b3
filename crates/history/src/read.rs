//! Reading the index: for callers, and for peers that lack a part of it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringfence_core::LeaseName;
use ringfence_proto::raft as pb;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::feed::Shared;
use crate::store::{Change, Store};
use crate::trial::Trial;
use crate::{HISTORY_QUERY_MAX, HistoryAnswer, HistoryError, ranges, record};

/// Records in one message to a peer.
const RECORDS_PER_PART: usize = 500;

/// The handles through which an index is read. One caller and one peer read at a time: a store
/// that does not answer holds up one thread, and the others learn at once or in time.
pub(crate) struct Readers {
    callers: Reader,
    peers: Reader,
    trial: Trial,
}

struct Reader {
    turn: Arc<Semaphore>,
    store: Arc<Mutex<Store>>,
}

impl Reader {
    fn of(store: &Store) -> io::Result<Self> {
        Ok(Self {
            turn: Arc::new(Semaphore::new(1)),
            store: Arc::new(Mutex::new(store.another()?)),
        })
    }
}

impl Readers {
    pub(crate) fn of(store: &Store, trial: Trial) -> io::Result<Self> {
        Ok(Self {
            trial,
            callers: Reader::of(store)?,
            peers: Reader::of(store)?,
        })
    }

    /// Reads for a caller, within [`HISTORY_QUERY_MAX`].
    pub(crate) async fn read<R: Send + 'static>(
        &self,
        shared: &Arc<Shared>,
        work: impl FnOnce(&Store) -> io::Result<R> + Send + 'static,
    ) -> Result<R, HistoryError> {
        let reading = async {
            let turn = self.callers.turn.clone().acquire_owned().await;
            let turn = turn.map_err(|error| unavailable(&error))?;
            let (store, shared) = (self.callers.store.clone(), shared.clone());
            let trial = self.trial.clone();
            let read = spawn_blocking(move || {
                read_one(&store, &shared, turn, |store| trial.guard(|| work(store)))
            });
            let read = read.await;
            read.map_err(|error| unavailable(&error))?
                .map_err(|error| unavailable(&error))
        };
        let late = |_| HistoryError::Unavailable {
            why: format!(
                "the history index did not answer within {}; the disk is slow or stuck",
                seconds(HISTORY_QUERY_MAX)
            ),
        };
        timeout(HISTORY_QUERY_MAX, reading).await.map_err(late)?
    }

    /// Reads a range of log indices for a peer, part by part.
    pub(crate) fn parts(
        &self,
        shared: &Arc<Shared>,
        (first, last): (u64, u64),
        parts: mpsc::Sender<Result<pb::HistoryPart, HistoryError>>,
    ) {
        let turn = self.peers.turn.clone().acquire_owned();
        let (store, shared) = (self.peers.store.clone(), shared.clone());
        let trial = self.trial.clone();
        let _detached = tokio::spawn(async move {
            let turn = tokio::select! {
                turn = turn => turn,
                () = parts.closed() => return,
            };
            // The semaphore is never closed.
            let Ok(turn) = turn else { return };
            let _detached = spawn_blocking(move || {
                let sent = read_one(&store, &shared, turn, |store| {
                    trial.guard(|| send_range(store, first, last, &parts))
                });
                if let Err(error) = sent {
                    parts.blocking_send(Err(unavailable(&error))).ok();
                }
            });
        });
    }
}

/// Reads, and tells the keeper what is wrong with the index.
fn read_one<R>(
    store: &Mutex<Store>,
    shared: &Shared,
    turn: OwnedSemaphorePermit,
    work: impl FnOnce(&Store) -> io::Result<R>,
) -> io::Result<R> {
    let store = store.lock().unwrap_or_else(PoisonError::into_inner);
    let read = work(&store);
    if let Err(error) = &read
        && !store.is_broken()
    {
        shared.report(io::Error::new(error.kind(), error.to_string()));
    }
    drop(store);
    drop(turn);
    read
}

fn unavailable(error: &dyn std::fmt::Display) -> HistoryError {
    HistoryError::Unavailable {
        why: error.to_string(),
    }
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

pub(crate) fn of_token(
    store: &Store,
    mut waiting: Change,
    token: u64,
) -> io::Result<HistoryAnswer> {
    let covered = store.covered_with(&waiting)?;
    let record = joined(store.of_token(token)?, waiting.take(token));
    let records = record.and_then(record::from_pb).into_iter().collect();
    Ok(HistoryAnswer { records, covered })
}

pub(crate) fn of_name(
    store: &Store,
    mut waiting: Change,
    name: &LeaseName,
    limit: usize,
) -> io::Result<HistoryAnswer> {
    let covered = store.covered_with(&waiting)?;
    let written = store.of_name(name, limit)?;
    let mut records: Vec<_> = written
        .into_iter()
        .filter_map(|known| {
            let more = waiting.take(known.token);
            joined(Some(known), more)
        })
        .collect();
    records.extend(waiting.into_records());
    records.sort_by_key(|record| std::cmp::Reverse(record.token));
    records.truncate(limit);
    let records = records.into_iter().filter_map(record::from_pb).collect();
    Ok(HistoryAnswer { records, covered })
}

fn joined(
    known: Option<pb::HistoryRecord>,
    more: Option<pb::HistoryRecord>,
) -> Option<pb::HistoryRecord> {
    match (known, more) {
        (Some(mut known), Some(more)) => {
            record::merge(&mut known, more);
            Some(known)
        }
        (known, more) => known.or(more),
    }
}

/// Sends what is known of a range. Each part says up to where it completes the range, so that a
/// peer keeps what it has when the rest does not arrive: records come in the order of tokens, thus
/// of their grants, and an end comes with its grant, which lies before it.
fn send_range(
    store: &Store,
    first: u64,
    last: u64,
    parts: &mpsc::Sender<Result<pb::HistoryPart, HistoryError>>,
) -> io::Result<()> {
    // The ranges are read first: records that come meanwhile are sent but not promised.
    let covered = ranges::within(&store.covered()?, first, last);
    let part = |records, upto| pb::HistoryPart {
        records,
        covered: ranges::within(&covered, first, upto)
            .into_iter()
            .map(|(first, last)| pb::IndexRange { first, last })
            .collect(),
    };
    let mut records = Vec::new();
    // A peer with a gap asks again and again; only what closes it is worth a walk over everything.
    let known = !covered.is_empty();
    for record in store.all()?.take_while(|_| known) {
        let record = record?;
        if records.len() >= RECORDS_PER_PART && record.granted_index > first {
            // Another grant of the same entry may follow.
            let complete = part(std::mem::take(&mut records), record.granted_index - 1);
            if parts.blocking_send(Ok(complete)).is_err() {
                return Ok(());
            }
        }
        if record::touches(&record, first, last) {
            records.push(record);
        }
    }
    parts.blocking_send(Ok(part(records, last))).ok();
    Ok(())
}
