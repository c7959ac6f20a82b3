//! Reading the log: from the ring in memory, or from the disk.

use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;

use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use openraft::RaftLogReader;

use super::stored::{bounds, capped, entry_from_wal};
use super::{Log, LogStore, READ_BYTES_MAX};
use crate::types::type_config::{Entry, TypeConfig, Vote};

/// The most bytes that one read of the disk returns.
const DISK_READ_BYTES_MAX: u64 = 8 << 20;

impl Log {
    /// Entries from `from`, below `end`, up to `bytes_max` but at least one if there is one.
    async fn entries(
        self: &Arc<Self>,
        from: u64,
        end: u64,
        bytes_max: usize,
    ) -> io::Result<Vec<Entry>> {
        let (from, ring_first) = {
            let inner = self.read();
            let purged = inner.purged.map_or(0, |purged| purged.index + 1);
            let from = from.max(purged);
            if let Some(entries) = inner.ring.range(from, end) {
                return Ok(capped(entries, bytes_max));
            }
            (from, inner.ring.first())
        };
        // What the ring has never held or has dropped is on disk, up to where the ring begins.
        let disk_end = ring_first.map_or(end, |first| end.min(first));
        if from >= disk_end {
            return Ok(Vec::new());
        }
        let wal = self.wal()?;
        let limit = (bytes_max as u64).min(DISK_READ_BYTES_MAX);
        let read = crate::platform::runtime::blocking(move || wal.read(from, disk_end, limit));
        let entries = read
            .await
            .map_err(io::Error::other)?
            .map_err(io::Error::other)?;
        if entries.is_empty()
            && let Some(first) = ring_first
            && let Some(entries) = self.read().ring.range(first, end)
        {
            // The log begins where the ring does.
            return Ok(capped(entries, bytes_max));
        }
        Ok(entries
            .into_iter()
            .map(entry_from_wal)
            .collect::<Result<_, _>>()?)
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let (mut from, end) = bounds(&range);
        let end = end.min(self.log.read().last.map_or(0, |last| last.index + 1));
        let mut all = Vec::new();
        while from < end {
            let part = self.log.entries(from, end, usize::MAX).await?;
            let Some(last) = part.last() else { break };
            from = last.log_id.index + 1;
            all.extend(part);
        }
        Ok(all)
    }

    /// What is applied is read through this. A node that was away has much to apply at once, so it
    /// is read in parts.
    async fn entries_stream<RB: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = Result<Entry, io::Error>> + Send {
        let (from, end) = bounds(&range);
        let end = end.min(self.last_index() + 1);
        let parts = stream::try_unfold((self.log.clone(), from), move |(log, from)| async move {
            if from >= end {
                return Ok::<_, io::Error>(None);
            }
            let part = log.entries(from, end, READ_BYTES_MAX).await?;
            let next = part.last().map(|last| last.log_id.index + 1);
            let part = stream::iter(part.into_iter().map(Ok));
            Ok(next.map(|next| (part, (log, next))))
        });
        parts.try_flatten().boxed()
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.log.read().vote)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        let bytes_max = self.log.replicated_together();
        self.log.entries(start, end, bytes_max).await
    }
}
