//! What a follower takes of an append stream: no more than its disk keeps up with and has room for,
//! and nothing more once no caller waits for the answers.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use ringfence_proto::raft as pb;
use tokio::sync::watch;
use tonic::Status;

use crate::store::log_store::LogStore;
use crate::store::log_store::reserve::on_disk;

/// What the log adds to each entry, at most, in bytes.
const ENTRY_HEAD: u64 = 32;

/// Held by the answers of a stream. When it goes, whatever the stream waits for is given up: the
/// caller has left.
pub(super) struct Answered {
    _open: watch::Sender<()>,
}

/// Lets the requests of one stream in.
#[derive(Clone)]
pub(super) struct Intake {
    log: LogStore,
    unflushed_max: u64,
    segment_bytes: u64,
    /// What was taken of this stream and may not be on the disk yet: the last index of each request, and
    /// what it takes there.
    taken: Arc<Mutex<VecDeque<(u64, u64)>>>,
    answered: watch::Receiver<()>,
}

impl Intake {
    /// An intake into a log, of segments of so many bytes, of which at most `unflushed_max` bytes
    /// wait for the disk.
    pub(super) fn new(log: LogStore, unflushed_max: u64, segment_bytes: u64) -> (Self, Answered) {
        let (open, answered) = watch::channel(());
        let intake = Self {
            log,
            unflushed_max,
            segment_bytes,
            taken: Arc::default(),
            answered,
        };
        (intake, Answered { _open: open })
    }

    /// Returns the request once the log can take it.
    ///
    /// # Errors
    /// If the caller has left meanwhile.
    pub(super) async fn take(
        &self,
        request: pb::AppendRequest,
    ) -> Result<pb::AppendRequest, Status> {
        // Entries that the disk cannot take lie in memory; what is not read here waits with the
        // leader, which keeps it on its disk.
        self.while_answered(self.log.flushed_to(self.unflushed_max))
            .await?;
        let bytes = |entry: &pb::Entry| entry.payload.len() as u64 + ENTRY_HEAD;
        if let Some(last) = request.entries.last().map(|entry| entry.index) {
            let bytes = request.entries.iter().map(bytes).sum();
            let term = request.vote.map_or(0, |vote| vote.term);
            let waiting = || self.on_the_way();
            let room = self
                .log
                .has_room_for(term, bytes, self.segment_bytes, waiting);
            self.while_answered(room).await?;
            self.taken.lock().push_back((last, on_disk(bytes)));
        }
        Ok(request)
    }

    /// How many bytes were taken that the disk does not have.
    fn on_the_way(&self) -> u64 {
        let flushed = self.log.flushed_index();
        let mut taken = self.taken.lock();
        while taken
            .pop_front_if(|(last, _)| Some(*last) <= flushed)
            .is_some()
        {}
        taken.iter().map(|(_, bytes)| bytes).sum()
    }

    async fn while_answered(&self, wait: impl Future<Output = ()>) -> Result<(), Status> {
        let mut answered = self.answered.clone();
        let left = async move { while answered.changed().await.is_ok() {} };
        tokio::select! {
            biased;
            () = wait => Ok(()),
            () = left => Err(Status::cancelled("no caller waits for the answer")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ringfence_wal::{Options, Wal};

    use super::*;

    #[tokio::test]
    async fn what_waits_ends_when_nobody_waits_for_the_answer_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let (wal, recovered) = Wal::open(dir.path(), Options::new(*b"me")).unwrap();
        let log = LogStore::new(wal, recovered, u64::MAX).unwrap();
        let (intake, answered) = Intake::new(log, 0, 1 << 20);
        let waits = tokio::spawn({
            let intake = intake.clone();
            async move { intake.while_answered(std::future::pending()).await }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waits.is_finished(), "somebody waits for the answer");
        drop(answered);
        let left = tokio::time::timeout(Duration::from_secs(10), waits).await;
        assert!(left.unwrap().unwrap().is_err());
        let bare = intake.take(pb::AppendRequest::default()).await;
        assert!(bare.is_ok(), "what need not wait is taken");
    }
}
