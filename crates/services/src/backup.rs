//! `Cluster.Backup`: the bytes of a backup, as fast as their reader takes them.
//!
//! The state is frozen when the call comes. A thread that may block writes the file's bytes from it, a
//! part at a time; while the reader is behind it stands still, and after a while it gives up.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringfence_core::{Frozen, Mode, Scope, Verb};
use ringfence_proto::v1::Reason;
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::write_backup;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::Context;
use crate::caller::Who;
use crate::limits::{BACKUP_PART_BYTES_MAX, BACKUP_PARTS_AHEAD, BACKUP_STALL_MAX, BACKUPS_MAX};
use crate::rights::{expired, judged};
use crate::status::{RETRY_AFTER, limit, not_read};

type Part = Result<v1::BackupResponse, Status>;

/// Freezes the state for a caller that may have it, and begins to write.
pub(crate) async fn begin(context: &Context, who: &Who) -> Result<ReceiverStream<Part>, Refusal> {
    context.demand(who, Verb::Backup)?;
    let place = Arc::clone(&context.backups).try_acquire_owned();
    let place = place.map_err(|_| {
        let advice = "wait until the other backup is done, or ask another node";
        limit("backups_per_node", BACKUPS_MAX, advice)
    })?;
    let state = context.node.backup().await.map_err(not_read)?;
    // Judged again on the state that is shown.
    let caller = context.caller(who);
    context.heed(judged(state.access(), caller.as_ref(), |access| {
        access.judge(who.principal(), Verb::Backup, Scope::Cluster)
    }))?;
    let Some(cluster) = state.cluster().filter(|_| state.is_formed()) else {
        let why = "this node belongs to no cluster that is formed, so there is nothing to back up";
        return Err(Refusal::unavailable(why, None, RETRY_AFTER));
    };
    tracing::info!(
        principal = who.principal().map(|principal| principal.as_str()),
        index = state.index(),
        "a backup is begun"
    );
    let first = v1::BackupResponse {
        cluster_id: wire::cluster_id_to_wire(&cluster),
        index: state.index(),
        unix_ms: state.wall().0,
        ..Default::default()
    };
    let (parts, reader) = mpsc::channel(BACKUP_PARTS_AHEAD);
    let parts = Parts {
        parts,
        next: first,
        stall_max: BACKUP_STALL_MAX,
        runtime: Handle::current(),
        may_go_on: {
            let (context, who) = (context.clone(), who.clone());
            Box::new(move || may_go_on(&context, &who))
        },
    };
    tokio::task::spawn_blocking(move || write(&state, parts, place));
    Ok(ReceiverStream::new(reader))
}

/// Whether the caller may still have a backup that was begun. A node that may know old rights alone ends
/// none.
fn may_go_on(context: &Context, who: &Who) -> Result<(), Refusal> {
    if context.node.access_mode() != Mode::Enforced {
        return Ok(());
    }
    if who.has_expired() {
        return Err(expired());
    }
    match context.demand(who, Verb::Backup) {
        Err(refusal) if refusal.reason == Reason::Unavailable => Ok(()),
        judged => judged,
    }
}

/// Writes all parts; `place` is free again when that is over.
fn write(state: &Frozen, mut parts: Parts, place: OwnedSemaphorePermit) {
    let index = state.index();
    let buffered = BufWriter::with_capacity(BACKUP_PART_BYTES_MAX, &mut parts);
    let written = write_backup(state, buffered).and_then(|digest| {
        parts.next.digest = Bytes::copy_from_slice(digest.as_bytes());
        parts.send()?;
        Ok(digest)
    });
    match written {
        Ok(digest) => tracing::info!(index, %digest, "a backup is written"),
        // Its reader sees a stream without the last part.
        Err(error) => tracing::warn!(index, %error, "a backup is broken off"),
    }
    drop(place);
}

/// The parts on their way to the reader.
struct Parts {
    parts: mpsc::Sender<Part>,
    /// What goes next.
    next: v1::BackupResponse,
    stall_max: Duration,
    runtime: Handle,
    /// Asked before each part.
    may_go_on: Box<dyn Fn() -> Result<(), Refusal> + Send>,
}

impl Parts {
    fn send(&mut self) -> io::Result<()> {
        let part = std::mem::take(&mut self.next);
        let part = (self.may_go_on)().map(|()| part);
        let refused = part.as_ref().err().map(|refusal| refusal.message.clone());
        let part = part.map_err(Status::from);
        let sending = timeout(self.stall_max, self.parts.send(part));
        match self.runtime.block_on(sending) {
            Ok(Ok(())) => refused.map_or(Ok(()), |why| Err(io::Error::other(why))),
            Ok(Err(_)) => Err(io::Error::other("its reader has gone")),
            Err(_) => {
                let why = format!("its reader took nothing for {:?}", self.stall_max);
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
        }
    }
}

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(BACKUP_PART_BYTES_MAX);
        self.next.data = Bytes::copy_from_slice(&bytes[..count]);
        self.send()?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ringfence_core::{
        ACCESS_CHANGES_MAX, AccessChange, Frozen, NamePattern, Principal, PrincipalPattern, Rule,
    };
    use tokio::sync::Semaphore;
    use tokio_stream::StreamExt;
    use tonic::Code;

    use super::*;
    use crate::alone::{alone, proven, within};

    #[tokio::test(flavor = "multi_thread")]
    async fn one_backup_is_written_at_a_time_and_the_next_when_its_reader_has_gone() {
        let alone = alone().await;
        let who = Who::default();
        let reader = begin(&alone.context, &who).await.unwrap();
        // Its last part waits for the reader, or its thread has not come that far.
        let place = Arc::clone(&alone.context.backups);
        let held = place.try_acquire_owned();
        if held.is_err() {
            let refused = begin(&alone.context, &who).await.err().unwrap();
            assert_eq!(refused.reason, Reason::Limit);
            assert_eq!(refused.metadata["limit"], "backups_per_node");
        }
        drop((reader, held));
        let again = async {
            while begin(&alone.context, &who).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within("a free place", again).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_streamed_is_the_file_and_its_last_part_says_the_digest() {
        let alone = alone().await;
        let parts = begin(&alone.context, &Who::default()).await.unwrap();
        let parts: Vec<v1::BackupResponse> = parts.map(Result::unwrap).collect().await;
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.data.to_vec()).collect();
        let (first, last) = (&parts[0], parts.last().unwrap());
        let read = ringfence_raft::Backup::read_from("b".as_ref(), &bytes[..]).unwrap();
        assert_eq!(last.digest[..], read.digest.as_bytes()[..]);
        let header = &read.contents.header;
        assert_eq!(first.cluster_id[..], header.cluster.as_bytes()[..]);
        assert_eq!((first.index, first.unix_ms), (header.index, header.wall.0));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_backup_ends_with_the_ban_of_its_reader() {
        let alone = alone().await;
        let operator = Principal::parse("cert:cn:operator").unwrap();
        alone.enforce().await;
        alone.allow(operator.as_str(), Verb::Backup, "*").await;
        // More than is ahead of a reader.
        let long = |n: usize| format!("cert:cn:{n:0>240}");
        for entry in 0..60 {
            let rules = (0..ACCESS_CHANGES_MAX).map(|n| {
                let of = long(entry * ACCESS_CHANGES_MAX + n);
                AccessChange::AddRule(Rule {
                    principals: PrincipalPattern::parse(&of).unwrap(),
                    verb: Verb::Acquire,
                    names: Some(NamePattern::parse(&format!("{n:0>250}")).unwrap()),
                })
            });
            alone.change(rules.collect()).await;
        }
        let who = Who::new(Some(proven(operator.as_str())));
        let mut reader = begin(&alone.context, &who).await.unwrap();
        let first = reader.next().await.unwrap().unwrap();
        alone.change(vec![AccessChange::Ban(operator)]).await;
        let mut bytes = first.data.len();
        let end = loop {
            match reader.next().await {
                Some(Ok(part)) if part.digest.is_empty() => bytes += part.data.len(),
                other => break other,
            }
        };
        let refused = matches!(&end, Some(Err(status)) if status.code() == Code::PermissionDenied);
        assert!(refused, "{bytes} bytes were read, and then {end:?}");
    }

    fn parts_of(state: Frozen, ahead: usize) -> (mpsc::Receiver<Part>, Arc<Semaphore>) {
        let (parts, reader) = mpsc::channel(ahead);
        let places = Arc::new(Semaphore::new(1));
        let place = Arc::clone(&places).try_acquire_owned().unwrap();
        let parts = Parts {
            parts,
            next: v1::BackupResponse::default(),
            stall_max: Duration::from_millis(50),
            runtime: Handle::current(),
            may_go_on: Box::new(|| Ok(())),
        };
        tokio::task::spawn_blocking(move || write(&state, parts, place));
        (reader, places)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_reader_that_takes_nothing_is_given_up_and_sees_no_digest() {
        let alone = alone().await;
        let (mut reader, places) = parts_of(alone.node.frozen(), 1);
        drop(within("a free place", places.acquire()).await.unwrap());
        let mut digests = Vec::new();
        while let Some(part) = reader.recv().await {
            digests.push(part.unwrap().digest);
        }
        assert_eq!(digests.len(), 1, "there was room for one part");
        assert!(digests[0].is_empty());
    }
}
