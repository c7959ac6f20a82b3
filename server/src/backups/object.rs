//! Backups in a bucket. Which of them stay is for the rules of the bucket to say.

use std::io::{self, BufWriter, Write};
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use ringfence_core::{BackupDigest, ClusterId, Frozen};
use ringfence_raft::write_backup;
use tokio::sync::mpsc;

use super::name::BackupName;
use crate::bucket::{BucketError, BucketUrl, Upload, find_name, names, put};

/// How much of a backup is passed on at a time, in bytes.
const PIECE_BYTES: usize = 256 << 10;
/// How many pieces are ahead of the upload.
const PIECES_AHEAD: usize = 2;

/// Writes one behind this URL.
pub(super) async fn write(
    state: Frozen,
    name: BackupName,
    url: &BucketUrl,
) -> io::Result<BackupDigest> {
    let (pieces, mut reader) = mpsc::channel(PIECES_AHEAD);
    let writing = tokio::task::spawn_blocking(move || {
        let pieces = BufWriter::with_capacity(PIECE_BYTES, Pieces(pieces));
        write_backup(&state, pieces)
    });
    // The same index is the same state, so the object that is there already will do as well.
    let mut upload = Upload::begin(url.join(&name.to_string()), true)
        .await
        .map_err(io::Error::other)?;
    let mut refused = Ok(());
    while let Some(piece) = reader.recv().await {
        refused = upload.write(&piece).await;
        if refused.is_err() {
            break;
        }
    }
    // The writer stops, if it has not come to its end.
    drop(reader);
    let written = writing.await.map_err(io::Error::other);
    let written = refused.map_err(io::Error::other).and(written?);
    match written {
        Ok(digest) => {
            upload.finish(digest).await.map_err(io::Error::other)?;
            let text = format!("{digest}\n");
            let put = put(url.join(&name.of_digest()), text.as_bytes()).await;
            put.map_err(io::Error::other)?;
            Ok(digest)
        }
        Err(error) => {
            upload.abort().await;
            Err(error)
        }
    }
}

/// When the newest backup of this cluster behind this URL was taken, since the Unix epoch, if that was
/// between these times. Older ones are not looked for: a bucket may have years of them.
pub(super) async fn last_taken(
    url: &BucketUrl,
    cluster: ClusterId,
    times: RangeInclusive<Duration>,
) -> Result<Option<Duration>, BucketError> {
    let oldest = BackupName {
        cluster,
        wall_ms: u64::try_from(times.start().as_millis()).unwrap_or(u64::MAX),
        index: 0,
    };
    let found = names(url, &oldest.to_string()).await?;
    let own = found.iter().filter_map(|name| BackupName::parse(name));
    let own = own.filter(|name| name.cluster == cluster);
    let taken = own.map(|name| Duration::from_millis(name.wall_ms));
    Ok(taken.filter(|time| times.contains(time)).max())
}

/// A backup of a cluster that is none of these. All of one cluster are passed over at once, since stores
/// list names in their order; one that does not (S3 Express) may hide some.
pub(super) async fn one_of_others(
    url: &BucketUrl,
    own: &[ClusterId],
) -> Result<Option<BackupName>, BucketError> {
    let mut from = BackupName::first();
    for _ in 0..=own.len() {
        match find_name(url, &from, BackupName::parse_either).await? {
            Some(name) if own.contains(&name.cluster) => from = name.behind_its_cluster(),
            other => return Ok(other),
        }
    }
    Ok(None)
}

/// The bytes on their way to the upload, from a thread that may block.
struct Pieces(mpsc::Sender<Bytes>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Bytes::copy_from_slice(bytes);
        let sent = self.0.blocking_send(piece);
        sent.map_err(|_| io::Error::other("the upload is over"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
