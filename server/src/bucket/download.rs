//! A backup in a bucket, checked while it comes.

use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures_util::StreamExt as _;
use object_store::ObjectStoreExt as _;
use ringfence_core::BackupDigest;
use ringfence_raft::{Backup, BackupError};
use tokio::sync::mpsc;

use super::error::{Asked, BucketError, Means};
use super::store::{open, open_to_read};
use super::url::BucketUrl;

/// How many pieces of an object wait for being checked.
const PIECES_AHEAD: usize = 2;

/// How many objects a list may have.
const LISTED_MAX: usize = 100_000;
/// The longest name that is kept of a list, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// How long a list may take.
const LIST_MAX: Duration = Duration::from_secs(120);

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// It did not come as a whole.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// It is not one, or not the right one.
    #[error(transparent)]
    Backup(#[from] BackupError),
}

/// Reads an object to its end and verifies it, as [`Backup::read`] does with a file. `digest`: what it
/// has to have, if that is known.
///
/// # Errors
/// [`ReadError`] says what to do.
pub(crate) async fn read(
    url: &BucketUrl,
    digest: Option<BackupDigest>,
) -> Result<Backup, ReadError> {
    let (pieces, input) = mpsc::channel(PIECES_AHEAD);
    let name = PathBuf::from(url.to_string());
    let path = name.clone();
    let input = Input {
        pieces: input,
        piece: Bytes::new(),
    };
    let reading = tokio::task::spawn_blocking(move || Backup::read_from(&path, input));
    let fetched = fetch(url, pieces).await;
    let read = reading.await;
    // What did not come is no damage of what is there.
    fetched?;
    let read = read.map_err(|error| BucketError::new(url, Means::Failed, error.to_string()))??;
    Ok(match digest {
        Some(digest) => read.expect(&name, digest)?,
        None => read,
    })
}

/// The names behind a URL from this one on, in any order, without what is in folders, and without those
/// that are longer than any of a backup.
///
/// # Errors
/// What the store refuses. [`Means::Failed`] if the list has more than [`LISTED_MAX`] objects, or is not
/// there within [`LIST_MAX`].
pub(crate) async fn names(url: &BucketUrl, from: &str) -> Result<Vec<String>, BucketError> {
    let mut names = Vec::new();
    let listing = look_through(url, from, |name| {
        names.push(name.to_owned());
        None::<()>
    });
    in_time(url, listing).await?;
    Ok(names)
}

/// What is found by the first name for which it is found, under the rules of [`names`].
///
/// # Errors
/// As [`names`], for the names up to that one.
pub(crate) async fn find_name<T>(
    url: &BucketUrl,
    from: &str,
    found: impl FnMut(&str) -> Option<T>,
) -> Result<Option<T>, BucketError> {
    in_time(url, look_through(url, from, found)).await
}

async fn in_time<T>(
    url: &BucketUrl,
    listing: impl Future<Output = Result<T, BucketError>>,
) -> Result<T, BucketError> {
    let listed = tokio::time::timeout(LIST_MAX, listing).await;
    listed.unwrap_or_else(|_| {
        let why = format!("the list is not there after {LIST_MAX:?}");
        Err(BucketError::new(url, Means::Failed, why))
    })
}

async fn look_through<T>(
    url: &BucketUrl,
    from: &str,
    mut found: impl FnMut(&str) -> Option<T>,
) -> Result<Option<T>, BucketError> {
    let error = |error| BucketError::of(url, Asked::Read, &error);
    let (store, prefix) = (open(url)?, url.key());
    let mut listed = store.list_with_offset(Some(prefix), url.join(from).key());
    let mut count = 0;
    while let Some(object) = listed.next().await {
        let object = object.map_err(error)?;
        count += 1;
        if count > LISTED_MAX {
            let why = format!("there are more than {LISTED_MAX} objects behind it");
            return Err(BucketError::new(url, Means::Failed, why));
        }
        let name = object.location.prefix_match(prefix).and_then(|mut parts| {
            let name = parts.next()?;
            parts.next().is_none().then(|| name.as_ref().to_owned())
        });
        let name = name.filter(|name| name.len() <= NAME_BYTES_MAX);
        if let Some(found) = name.and_then(|name| found(&name)) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Passes the object on, until its end or that of its reader.
async fn fetch(url: &BucketUrl, pieces: mpsc::Sender<Bytes>) -> Result<(), BucketError> {
    let error = |error| BucketError::of(url, Asked::Read, &error);
    let object = open_to_read(url)?.get(url.key()).await.map_err(error)?;
    let mut stream = object.into_stream();
    while let Some(piece) = stream.next().await {
        if pieces.send(piece.map_err(error)?).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// The pieces of an object, on a thread that may block.
struct Input {
    pieces: mpsc::Receiver<Bytes>,
    piece: Bytes,
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}
