//! Where a backup is: a path of this machine, or a URL of a bucket.

use std::fmt;
use std::path::{Path, PathBuf};

use super::error::BucketError;
use super::store::open;
use super::url::{BucketUrl, UrlError, is_nearly};

/// Where a backup is, or backups are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A file or a directory.
    Path(PathBuf),
    /// An object, or what the names of objects begin with.
    Bucket(BucketUrl),
}

impl Place {
    /// What an argument names: a URL if it has `://`, or begins with the scheme of one. A file of such a
    /// name is `./s3:name`.
    ///
    /// # Errors
    /// [`UrlError`] says what a URL lacks. It repeats none of it: there may be a secret in it.
    pub(crate) fn of(argument: &Path) -> Result<Self, UrlError> {
        let is_url = |text: &&str| text.contains("://") || is_nearly(text);
        match argument.to_str().filter(is_url) {
            Some(url) => BucketUrl::parse(url).map(Self::Bucket),
            None => Ok(Self::Path(argument.to_owned())),
        }
    }

    /// The same of one backup that is there: a URL has to name an object.
    ///
    /// # Errors
    /// See [`Place::of`].
    pub(crate) fn of_one(argument: &Path) -> Result<Self, UrlError> {
        let place = Self::of(argument)?;
        match &place {
            Self::Bucket(url) if url.is_prefix() => Err(UrlError::no_object()),
            _ => Ok(place),
        }
    }

    /// Whether the environment has what the client of a bucket needs; nothing is asked.
    ///
    /// # Errors
    /// [`BucketError`] if a variable has a value that cannot be used.
    pub(crate) fn check(&self) -> Result<(), BucketError> {
        match self {
            Self::Path(_) => Ok(()),
            Self::Bucket(url) => open(url).map(drop),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Bucket(url) => url.fmt(f),
        }
    }
}
