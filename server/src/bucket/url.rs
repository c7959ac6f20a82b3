//! URLs of buckets: `s3://BUCKET/KEY`, `gs://BUCKET/KEY` and `az://CONTAINER/KEY`.

use std::fmt;

use object_store::aws::AmazonS3ConfigKey;
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;
use object_store::path::Path;

/// The longest name of a bucket, in bytes: that of Google, with dots.
const BUCKET_BYTES_MAX: usize = 222;
/// The longest key, in bytes. Stores take 1,024; a node adds the name of the backup.
const KEY_BYTES_MAX: usize = 900;

/// Whose API a bucket has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Amazon S3, and the servers that speak as it does.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
}

/// An object of a bucket, or what the keys of objects begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketUrl {
    kind: Kind,
    bucket: String,
    key: Path,
    /// Whether it is what names are behind: it ended with `/`, or has no key.
    is_prefix: bool,
}

/// A URL that names no bucket.
#[derive(Debug, thiserror::Error)]
#[error("{why}; expected s3://BUCKET/KEY, gs://BUCKET/KEY or az://CONTAINER/KEY")]
pub(crate) struct UrlError {
    why: String,
}

impl UrlError {
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }

    pub(super) fn no_object() -> Self {
        Self::new("the URL names no object: it ends with / or with the bucket")
    }
}

impl Kind {
    const ALL: [Self; 3] = [Self::S3, Self::Google, Self::Azure];

    fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
        }
    }

    /// Whether the client of such a bucket is made from this variable, too.
    pub(super) fn reads(self, variable: &str) -> bool {
        if self.others().contains(&variable) {
            return true;
        }
        let key = variable.to_ascii_lowercase();
        match self {
            Self::S3 => variable.starts_with("AWS_") && key.parse::<AmazonS3ConfigKey>().is_ok(),
            Self::Google => {
                variable.starts_with("GOOGLE_") && key.parse::<GoogleConfigKey>().is_ok()
            }
            Self::Azure => variable.starts_with("AZURE_") && key.parse::<AzureConfigKey>().is_ok(),
        }
    }

    /// Variables of the machine's identity, and old names, which the library reads besides.
    fn others(self) -> &'static [&'static str] {
        match self {
            Self::S3 => &[],
            Self::Google => &[
                "GCE_METADATA_HOST",
                "GCE_METADATA_IP",
                "GCE_METADATA_ROOT",
                "SERVICE_ACCOUNT",
            ],
            Self::Azure => &[
                "IDENTITY_ENDPOINT",
                "IDENTITY_HEADER",
                "MSI_ENDPOINT",
                "MSI_SECRET",
            ],
        }
    }

    /// The variables that say where the store is.
    pub(super) fn places(self) -> &'static str {
        match self {
            Self::S3 => "AWS_REGION and AWS_ENDPOINT_URL",
            Self::Google => "GOOGLE_APPLICATION_CREDENTIALS",
            Self::Azure => "AZURE_STORAGE_ACCOUNT_NAME",
        }
    }

    /// The variables that say who asks.
    pub(super) fn credentials(self) -> &'static str {
        match self {
            Self::S3 => "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            Self::Google => "GOOGLE_APPLICATION_CREDENTIALS",
            Self::Azure => "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
        }
    }
}

/// Whether a text begins as a URL of a bucket, and is none: `s3:/bucket` would be a directory.
pub(super) fn is_nearly(text: &str) -> bool {
    let scheme = text
        .split_once(':')
        .map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| Kind::ALL.iter().any(|kind| kind.scheme() == scheme))
}

impl BucketUrl {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// [`UrlError`], which repeats none of it.
    pub(crate) fn parse(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| UrlError::new("this is no URL"))?;
        let kind = Kind::ALL.into_iter().find(|kind| kind.scheme() == scheme);
        let kind = kind.ok_or_else(|| UrlError::new("the URL has another scheme"))?;
        if rest.contains(['@', '?', '#', '%']) {
            let why = "the URL has one of @ ? # %: credentials come from the environment, and never \
                       stand in a URL";
            return Err(UrlError::new(why));
        }
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if !(1..=BUCKET_BYTES_MAX).contains(&bucket.len()) || !bucket.bytes().all(allowed) {
            let why = format!(
                "the name of the bucket has to be 1 to {BUCKET_BYTES_MAX} letters, digits and . - _"
            );
            return Err(UrlError::new(why));
        }
        let is_prefix = key.is_empty() || key.ends_with('/');
        let key = key.strip_suffix('/').unwrap_or(key);
        // The parser takes these away.
        if key.starts_with('/') || key.ends_with('/') {
            return Err(UrlError::new("the key has an empty segment"));
        }
        if key.len() > KEY_BYTES_MAX {
            let why = format!(
                "the key has {} bytes, at most {KEY_BYTES_MAX} are allowed",
                key.len()
            );
            return Err(UrlError::new(why));
        }
        let key = Path::parse(key).map_err(|_| {
            UrlError::new("the key has an empty segment, a segment . or .., or odd characters")
        })?;
        Ok(Self {
            kind,
            bucket: bucket.to_owned(),
            key,
            is_prefix,
        })
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The key; that of the root if the URL names a bucket alone.
    pub(crate) fn key(&self) -> &Path {
        &self.key
    }

    /// Whether it names no object, and only what the names of objects begin with.
    pub(crate) fn is_prefix(&self) -> bool {
        self.is_prefix
    }

    /// The object of this name behind this URL.
    pub(crate) fn join(&self, name: &str) -> Self {
        Self {
            key: self.key.clone().join(name),
            is_prefix: false,
            ..self.clone()
        }
    }
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/{}", self.kind.scheme(), self.bucket, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_the_three_stores_are_taken_as_they_are() {
        for url in ["s3://b/prod/x.backup", "gs://b.c-d/x", "az://box/a b/c"] {
            assert_eq!(BucketUrl::parse(url).unwrap().to_string(), url);
        }
        assert!(!BucketUrl::parse("s3://b/prod").unwrap().is_prefix());
        for (prefix, object) in [
            ("s3://b", "s3://b/n"),
            ("s3://b/", "s3://b/n"),
            ("s3://b/prod/", "s3://b/prod/n"),
        ] {
            let prefix = BucketUrl::parse(prefix).unwrap();
            assert!(prefix.is_prefix() && !prefix.join("n").is_prefix());
            assert_eq!(prefix.join("n").to_string(), object);
        }
    }

    #[test]
    fn a_secret_in_a_url_is_refused_and_not_repeated() {
        for url in [
            "s3://id:hunter2@b/key",
            "az://box/key?sig=hunter2",
            "https://hunter2.example/b",
            "s3://b/hunter2//x",
            "s3://b//hunter2",
            "s3://b/hunter2//",
            "s3:///hunter2",
            "s3://b/../hunter2",
            "S3://b/hunter2",
        ] {
            let refused = BucketUrl::parse(url).unwrap_err().to_string();
            assert!(refused.contains("expected s3://BUCKET/KEY"), "{refused}");
            assert!(!refused.contains("hunter2"), "{refused}");
        }
        let long = format!("s3://b/{}", "k".repeat(KEY_BYTES_MAX + 1));
        assert!(BucketUrl::parse(&long).is_err());
    }
}
