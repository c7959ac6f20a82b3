//! A bucket whose server was found to honour conditions.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectStore as _, PutMode, PutPayload, RetryConfig, UpdateVersion,
};
use tokio::sync::OnceCell;

use super::head::HEAD_MAX;
use super::{BODY_MAX, KEY_MAX, S3Error};

/// The key of the object that conditions are tried on, unless
/// [`S3Store::probe_key`] names another.
pub const PROBE_KEY: &str = "ringfence-probe";

const PROBE: &[u8] = b"Ringfence tries on this object whether the store honours conditions.\n";

/// An ETag that no object has.
const NO_ETAG: &str = "\"00000000000000000000000000000000\"";

/// A bucket, reached by a client whose requests are each sent once: only the guard can tell a
/// repeated write's own trace from another's. Cloning is cheap.
///
/// Before the first guarded write it tries whether the server honours conditions, see
/// [`S3Store::check`].
#[derive(Clone)]
pub struct S3Store {
    client: Arc<AmazonS3>,
    probe: Path,
    checked: Arc<OnceCell<()>>,
}

impl S3Store {
    /// A bucket as `builder` describes it. Its retries are switched off and its conditional writes
    /// on; the guard retries itself. Nothing is sent yet.
    ///
    /// # Errors
    /// [`S3Error::Store`] if the description is not complete.
    pub fn new(builder: AmazonS3Builder) -> Result<Self, S3Error> {
        let once = RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        };
        let builder = builder
            .with_retry(once)
            .with_conditional_put(S3ConditionalPut::ETagMatch);
        let client = builder.build();
        Ok(Self {
            client: Arc::new(client.map_err(|source| S3Error::Store { source })?),
            probe: path(PROBE_KEY)?,
            checked: Arc::default(),
        })
    }

    /// Tries conditions on this object instead of [`PROBE_KEY`], where the rights of this client
    /// end at a prefix. It is made if it is not there, and never changed or deleted.
    ///
    /// # Errors
    /// [`S3Error::InvalidKey`].
    pub fn probe_key(mut self, key: &str) -> Result<Self, S3Error> {
        self.probe = path(key)?;
        self.checked = Arc::default();
        Ok(self)
    }

    /// Tries once whether the server refuses a write whose condition does not hold, by two or three
    /// requests on an object of its own; after that it costs nothing. Guarded writes do it by
    /// themselves; call it at the start of a service to fail early.
    ///
    /// It finds servers that ignore conditions. It cannot find one that checks them and writes in two
    /// steps, so that two writers pass at the same time: ask its vendor.
    ///
    /// # Errors
    /// [`S3Error::Unfit`] for good; [`S3Error::Store`] if it could not be tried, then it is tried
    /// again the next time.
    pub async fn check(&self) -> Result<(), S3Error> {
        let tried = self.checked.get_or_try_init(|| self.try_conditions());
        tried.await.copied()
    }

    async fn try_conditions(&self) -> Result<(), S3Error> {
        let unfit = |why| Err(S3Error::Unfit { why });
        if self.is_written(PutMode::Create).await? && self.is_written(PutMode::Create).await? {
            return unfit("it overwrites an object although the request says `If-None-Match: *`");
        }
        if self.is_written(if_match(NO_ETAG.to_owned())).await? {
            return unfit(
                "it overwrites an object although the request names another in `If-Match`",
            );
        }
        Ok(())
    }

    /// Whether the server writes the probe, or finds that its condition does not hold.
    async fn is_written(&self, mode: PutMode) -> Result<bool, S3Error> {
        match self.put(&self.probe, mode, Bytes::from_static(PROBE)).await {
            // The ETag of the answer does not matter.
            Ok(_) => Ok(true),
            Err(error) => match Failure::of(&error) {
                Failure::Conflict => Ok(false),
                _ => Err(S3Error::Store { source: error }),
            },
        }
    }

    /// Writes an object in one request. The ETag that it has now, if one that conditions can name.
    pub(super) async fn put(
        &self,
        key: &Path,
        mode: PutMode,
        content: Bytes,
    ) -> Result<Option<String>, Error> {
        let payload = PutPayload::from_bytes(content);
        let put = self.client.put_opts(key, payload, mode.into()).await?;
        Ok(put.e_tag.filter(|etag| is_strong(etag)))
    }

    /// Reads an object, or only as much of it as a head may take; `None`: it is not there.
    pub(super) async fn get(&self, key: &Path, part: Part) -> Result<Option<Seen>, S3Error> {
        let mut got = self.client.get_opts(key, part.options()).await;
        if part == Part::Head && matches!(got, Err(Error::Generic { .. })) {
            // An empty object has no such range.
            got = self.client.get_opts(key, Part::Whole.options()).await;
        }
        let failed = |source| S3Error::Store { source };
        let got = match got {
            Err(Error::NotFound { .. }) => return Ok(None),
            got => got.map_err(failed)?,
        };
        let etag = got.meta.e_tag.clone();
        let size = got.meta.size;
        let head = HEAD_MAX as u64;
        if part == Part::Whole && size > head + BODY_MAX {
            return Err(S3Error::TooLarge {
                offered: size,
                max: BODY_MAX,
            });
        }
        let content = got.bytes().await.map_err(failed)?;
        Ok(Some(Seen {
            etag,
            size,
            content,
        }))
    }

    /// The client, for what needs no guard: objects that are never changed, and lists.
    #[must_use]
    pub fn client(&self) -> &AmazonS3 {
        &self.client
    }
}

impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Store")
            .field("client", &self.client.to_string())
            .field("probe", &self.probe.as_ref())
            .field("checked", &self.checked.initialized())
            .finish_non_exhaustive()
    }
}

/// How much of an object is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Head,
    Whole,
}

impl Part {
    fn options(self) -> GetOptions {
        let range = match self {
            Self::Head => Some(GetRange::Bounded(0..HEAD_MAX as u64)),
            Self::Whole => None,
        };
        GetOptions::new().with_range(range)
    }
}

/// An object as it was read.
pub(super) struct Seen {
    pub(super) etag: Option<String>,
    pub(super) size: u64,
    pub(super) content: Bytes,
}

/// The key as the client takes it.
pub(super) fn path(key: &str) -> Result<Path, S3Error> {
    let invalid = |why: String| S3Error::InvalidKey {
        key: key.chars().take(KEY_MAX).collect(),
        why,
    };
    if key.is_empty() || key.len() > KEY_MAX {
        let length = key.len();
        let why = format!("got {length} bytes, expected 1 to {KEY_MAX}");
        return Err(invalid(why));
    }
    if key.starts_with('/') || key.ends_with('/') {
        return Err(invalid("remove the `/` at its beginning or end".to_owned()));
    }
    Path::parse(key).map_err(|error| invalid(error.to_string()))
}

/// Whether `If-Match` can name it: a weak one matches nothing.
pub(super) fn is_strong(etag: &str) -> bool {
    !etag.is_empty() && !etag.starts_with("W/")
}

/// Only over the object with this ETag.
pub(super) fn if_match(etag: String) -> PutMode {
    PutMode::Update(UpdateVersion {
        e_tag: Some(etag),
        version: None,
    })
}

/// What is known of a write after its request has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The condition did not hold, or another write was under way: this request wrote nothing.
    Conflict,
    /// The server refused for another reason, or was not reached: this request wrote nothing.
    Refused,
    /// It may have been made, or be made yet.
    Uncertain,
}

impl Failure {
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::Precondition { .. } | Error::AlreadyExists { .. } | Error::NotModified { .. } => {
                Self::Conflict
            }
            Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            // No such bucket.
            | Error::NotFound { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. } => Self::Refused,
            error if was_never_connected(error) => Self::Refused,
            _ => Self::Uncertain,
        }
    }
}

fn was_never_connected(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<HttpError>() {
            return error.kind() == HttpErrorKind::Connect;
        }
        cause = error.source();
    }
    false
}
