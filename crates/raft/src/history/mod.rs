//! History: who held a token, from when to when, and why it ended.
//!
//! It is an index derived from applied entries and decides nothing: a thread of its own writes it
//! in batches, nobody waits for it, and when it is damaged it is thrown away and built anew from
//! what the log still has. What it does not know it says: an answer names the log indices it
//! covers.
//!
//! A node may index entries before its own disk has them. They are committed all the same, so
//! what the index says stays true; after a crash they are applied and indexed once more.

mod chain;
mod feed;
mod fill;
mod ranges;
mod record;
mod store;

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use ringfence_core::{FencingToken, LeaseName};
use ringfence_proto::raft as pb;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

pub(crate) use feed::HistoryFeed;
pub(crate) use fill::fill_gaps;
pub use record::{HistoryEnd, HistoryRecord};
use store::{Change, Store};

/// The most records of one answer.
pub const HISTORY_RECORDS_MAX: usize = 1_000;
/// Records in one message to a peer.
const RECORDS_PER_PART: usize = 500;
const DIR: &str = "history";

/// How much history is kept; what is over either limit is dropped, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Grants.
    pub records_max: u64,
    /// How long after its beginning a grant is remembered, by the wall clock.
    pub age_max: Duration,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            records_max: 10_000_000,
            age_max: Duration::from_secs(30 * 24 * 60 * 60),
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryQuery {
    /// The grants of a lease, newest first, at most `limit`, which is at most
    /// [`HISTORY_RECORDS_MAX`].
    Name {
        /// The lease.
        name: LeaseName,
        /// The most records wanted.
        limit: usize,
    },
    /// The grant with this token.
    Token(FencingToken),
}

/// What is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryAnswer {
    /// The grants, newest first.
    pub records: Vec<HistoryRecord>,
    /// The log indices that the index covers, first and last, sorted.
    pub covered: Vec<(u64, u64)>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The index cannot be read at present.
    #[error("the history index cannot be read: {why}")]
    Unavailable {
        /// Why.
        why: String,
    },
}

impl From<std::io::Error> for HistoryError {
    fn from(error: std::io::Error) -> Self {
        Self::Unavailable {
            why: error.to_string(),
        }
    }
}

/// The history of one node.
pub(crate) struct History {
    store: Mutex<Option<Store>>,
    feed: HistoryFeed,
}

impl History {
    /// Opens the index; a damaged one is emptied. One that cannot be opened at all keeps nothing.
    pub(crate) fn open(data_dir: &Path, limits: HistoryLimits) -> (Arc<Self>, HistoryFeed) {
        let path = data_dir.join(DIR);
        let opened = Store::open(&path).or_else(|error| {
            tracing::warn!(%error, "the history index is damaged and begins anew");
            std::fs::remove_dir_all(&path)?;
            Store::open(&path)
        });
        let store = match opened {
            Ok(store) => Some(store),
            Err(error) => {
                tracing::error!(%error, "this node keeps no history");
                None
            }
        };
        let feed = match &store {
            Some(store) => feed::start(store.clone(), limits),
            None => HistoryFeed::off(),
        };
        (
            Arc::new(Self {
                store: Mutex::new(store),
                feed: feed.clone(),
            }),
            feed,
        )
    }

    /// The history of a node that keeps none.
    pub(crate) fn none() -> (Arc<Self>, HistoryFeed) {
        let feed = HistoryFeed::off();
        let history = Self {
            store: Mutex::default(),
            feed: feed.clone(),
        };
        (Arc::new(history), feed)
    }

    fn store(&self) -> Result<Store, HistoryError> {
        let store = self
            .store
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        store.ok_or_else(|| HistoryError::Unavailable {
            why: "this node keeps none".to_owned(),
        })
    }

    /// Looks something up.
    pub(crate) async fn query(&self, query: HistoryQuery) -> Result<HistoryAnswer, HistoryError> {
        let store = self.store()?;
        let feed = self.feed.clone();
        let look = move || match &query {
            HistoryQuery::Name { name, limit } => feed.look(
                |noted, _| noted == name.as_str(),
                |change| of_name(&store, change, name, (*limit).min(HISTORY_RECORDS_MAX)),
            ),
            HistoryQuery::Token(token) => {
                let token = token.get();
                feed.look(
                    |_, noted| noted == token,
                    |change| of_token(&store, change, token),
                )
            }
        };
        crate::runtime::blocking(look)
            .await
            .map_err(|error| HistoryError::Unavailable {
                why: error.to_string(),
            })?
    }

    /// Writes what is still under way and lets go of the directory.
    pub(crate) async fn close(&self) {
        let store = self
            .store
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let feed = self.feed.clone();
        let close = move || {
            feed.end();
            drop(store);
        };
        if let Err(error) = crate::runtime::blocking(close).await {
            tracing::warn!(%error, "the history index was not closed");
        }
    }
}

fn of_token(store: &Store, mut waiting: Change, token: u64) -> Result<HistoryAnswer, HistoryError> {
    let covered = store.covered_with(&waiting)?;
    let record = joined(store.of_token(token)?, waiting.take(token));
    let records = record.and_then(record::from_pb).into_iter().collect();
    Ok(HistoryAnswer { records, covered })
}

fn of_name(
    store: &Store,
    mut waiting: Change,
    name: &LeaseName,
    limit: usize,
) -> Result<HistoryAnswer, HistoryError> {
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

/// Sends a peer what this node knows of a range of log indices.
pub(crate) fn serve(
    history: &History,
    first: u64,
    last: u64,
) -> Pin<Box<dyn Stream<Item = Result<pb::HistoryPart, Status>> + Send>> {
    let (parts, sent) = mpsc::channel(4);
    match history.store() {
        Ok(store) => {
            let _detached = crate::runtime::blocking(move || {
                if let Err(error) = send_range(&store, first, last, &parts) {
                    drop(parts.blocking_send(Err(Status::unavailable(error.to_string()))));
                }
            });
        }
        Err(error) => drop(parts.try_send(Err(Status::unavailable(error.to_string())))),
    }
    Box::pin(ReceiverStream::new(sent))
}

fn send_range(
    store: &Store,
    first: u64,
    last: u64,
    parts: &mpsc::Sender<Result<pb::HistoryPart, Status>>,
) -> std::io::Result<()> {
    // The ranges are read first: records that come meanwhile are sent but not promised.
    let covered = ranges::within(&store.covered()?, first, last);
    let mut records = Vec::new();
    // Whoever has a gap asks again and again; only what closes it is worth a walk over everything.
    let known = !covered.is_empty();
    for record in store.all().take_while(|_| known) {
        let record = record?;
        if !record::touches(&record, first, last) {
            continue;
        }
        records.push(record);
        if records.len() == RECORDS_PER_PART {
            let part = pb::HistoryPart {
                records: std::mem::take(&mut records),
                covered: vec![],
            };
            if parts.blocking_send(Ok(part)).is_err() {
                return Ok(());
            }
        }
    }
    let covered = covered
        .into_iter()
        .map(|(first, last)| pb::IndexRange { first, last });
    let part = pb::HistoryPart {
        records,
        covered: covered.collect(),
    };
    drop(parts.blocking_send(Ok(part)));
    Ok(())
}
