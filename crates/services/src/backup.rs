//! `Cluster.Backup`: the bytes of a backup, as fast as their reader takes them.
//!
//! The state is frozen when the call comes. A thread that may block writes the file's bytes from it, a
//! part at a time; while the reader is behind it stands still, and after a while it gives up.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringfence_core::{Frozen, Scope, Verb};
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
use crate::rights::judged;
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
    };
    tokio::task::spawn_blocking(move || write(&state, parts, place));
    Ok(ReceiverStream::new(reader))
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
}

impl Parts {
    fn send(&mut self) -> io::Result<()> {
        let part = std::mem::take(&mut self.next);
        let sending = timeout(self.stall_max, self.parts.send(Ok(part)));
        match self.runtime.block_on(sending) {
            Ok(Ok(())) => Ok(()),
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
