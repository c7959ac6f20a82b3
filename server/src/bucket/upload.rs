//! An object that is being written: there as a whole or not at all.
//!
//! What fits into one part is one request. What does not is an upload in parts, which the store shows
//! when it is completed. A process that is killed leaves parts that only the store sees; its lifecycle
//! rule for incomplete uploads removes them.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::{
    MultipartUpload, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload,
};
use ringfence_core::BackupDigest;
use ringfence_raft::Hashed;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::error::{Asked, BucketError, Means};
use super::store::open;
use super::url::BucketUrl;

/// The bytes of a part: the least that S3 takes. One is filled while another one is on its way, so an
/// upload has two of them in memory.
const PART_BYTES: usize = 5 << 20;

/// How long an upload that is given up waits for the part on its way.
const UNDERWAY_MAX: Duration = Duration::from_secs(10);

/// A backup on its way into a bucket.
///
/// It is in its place when [`Upload::finish`] returns, and [`Upload::abort`] leaves nothing of it.
pub(crate) struct Upload {
    url: BucketUrl,
    store: Arc<dyn ObjectStore>,
    replace: bool,
    hashed: Hashed<io::Sink>,
    part: Vec<u8>,
    /// What went before this part, if anything did.
    parts: Option<Box<dyn MultipartUpload>>,
    sending: Option<JoinHandle<object_store::Result<()>>>,
}

/// Writes an object of a few bytes; one that is there is replaced.
///
/// # Errors
/// As [`Upload::begin`].
pub(crate) async fn put(url: BucketUrl, bytes: &[u8]) -> Result<(), BucketError> {
    let mut upload = Upload::begin(url, true).await?;
    upload.write(bytes).await?;
    upload.complete().await
}

impl Upload {
    /// Begins an object. `replace`: one that is there may be replaced.
    ///
    /// # Errors
    /// [`Means::Exists`] if there is one and it may not; what the store refuses.
    pub(crate) async fn begin(url: BucketUrl, replace: bool) -> Result<Self, BucketError> {
        let mut upload = Self {
            store: open(&url)?,
            url,
            replace,
            hashed: Hashed::new(io::sink()),
            part: Vec::with_capacity(PART_BYTES),
            parts: None,
            sending: None,
        };
        upload.look().await?;
        Ok(upload)
    }

    /// Where it will be.
    pub(crate) fn url(&self) -> &BucketUrl {
        &self.url
    }

    /// Whether the place is free, where that counts.
    async fn look(&mut self) -> Result<(), BucketError> {
        if self.replace {
            return Ok(());
        }
        // `HEAD` would need the same right, and its refusal has no body that says why.
        match self.store.get(self.url.key()).await {
            Ok(_) => Err(BucketError::new(&self.url, Means::Exists, "")),
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.error(&error)),
        }
    }

    /// Takes the next bytes. It waits while two parts are full.
    ///
    /// # Errors
    /// What the store refuses. Nothing is to be written behind that.
    pub(crate) async fn write(&mut self, mut bytes: &[u8]) -> Result<(), BucketError> {
        // A sink fails in nothing.
        self.hashed.write_all(bytes).ok();
        while !bytes.is_empty() {
            if self.part.len() == PART_BYTES {
                self.send().await?;
            }
            let room = PART_BYTES - self.part.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.part.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// Sends the part, once the one before has arrived.
    async fn send(&mut self) -> Result<(), BucketError> {
        self.arrived().await?;
        let next = Vec::with_capacity(PART_BYTES);
        let part = PutPayload::from(std::mem::replace(&mut self.part, next));
        let parts = match &mut self.parts {
            Some(parts) => parts,
            none => {
                let begun = self.store.put_multipart(self.url.key()).await;
                none.insert(
                    begun.map_err(|error| BucketError::of(&self.url, Asked::Write, &error))?,
                )
            }
        };
        self.sending = Some(tokio::spawn(parts.put_part(part)));
        Ok(())
    }

    async fn arrived(&mut self) -> Result<(), BucketError> {
        let Some(sending) = self.sending.take() else {
            return Ok(());
        };
        let sent = sending.await;
        let sent =
            sent.map_err(|error| BucketError::new(&self.url, Means::Failed, error.to_string()))?;
        sent.map_err(|error| self.error(&error))
    }

    /// Puts the object in its place, if it has this digest.
    ///
    /// # Errors
    /// As [`Upload::begin`], and [`Means::OtherDigest`]; the place is as it was before then.
    pub(crate) async fn finish(mut self, digest: BackupDigest) -> Result<(), BucketError> {
        let finished = match self.hashed.digest() == digest {
            true => self.complete().await,
            false => Err(BucketError::new(&self.url, Means::OtherDigest, "")),
        };
        if finished.is_err() {
            self.abort().await;
        }
        finished
    }

    async fn complete(&mut self) -> Result<(), BucketError> {
        if self.parts.is_none() {
            let mode = match self.replace {
                true => PutMode::Overwrite,
                false => PutMode::Create,
            };
            let object = PutPayload::from(std::mem::take(&mut self.part));
            let options = PutOptions::from(mode);
            let put = self
                .store
                .put_opts(self.url.key(), object.clone(), options)
                .await;
            return match put {
                // An answer can be lost where the object is not.
                Err(error) if !self.has(object).await => Err(self.error(&error)),
                _ => Ok(()),
            };
        }
        self.send().await?;
        self.arrived().await?;
        // The completion has no condition, so another upload may come in between; both are whole then,
        // and the later one stays.
        self.look().await?;
        let Some(parts) = &mut self.parts else {
            return Ok(());
        };
        let completed = parts.complete().await;
        completed.map(drop).map_err(|error| self.error(&error))
    }

    /// Whether the bucket has just this object.
    async fn has(&mut self, object: PutPayload) -> bool {
        let expected = Bytes::from(object);
        match self.store.get(self.url.key()).await {
            Ok(found) if found.meta.size == expected.len() as u64 => {
                found.bytes().await.is_ok_and(|found| found == expected)
            }
            _ => false,
        }
    }

    /// Leaves nothing of it in the bucket, if the store still answers.
    pub(crate) async fn abort(mut self) {
        // A part that reaches the store behind the abort would stay.
        if let Some(mut sending) = self.sending.take()
            && timeout(UNDERWAY_MAX, &mut sending).await.is_err()
        {
            sending.abort();
        }
        if let Some(parts) = &mut self.parts
            && let Err(error) = parts.abort().await
        {
            let why = BucketError::of(&self.url, Asked::Write, &error);
            tracing::warn!(error = %why, "parts of an upload stay behind; the bucket's rule for \
                 incomplete uploads removes them");
        }
    }

    fn error(&self, error: &object_store::Error) -> BucketError {
        BucketError::of(&self.url, Asked::Write, error)
    }
}
