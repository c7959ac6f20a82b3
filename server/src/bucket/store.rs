//! The client of a bucket, made from the environment.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};

use super::environment;
use super::error::{Asked, BucketError, Means};
use super::http::Connections;
use super::url::{BucketUrl, Kind};

/// How often a request is repeated that failed without an answer, or with one of the store's own
/// faults; the first pause is 0.1 s, and each is twice as long.
const RETRIES: usize = 5;
/// How long after the first attempt none is made any more.
const RETRY_WITHIN: Duration = Duration::from_secs(30);

/// The client of the bucket of a URL. It connects when it is used.
///
/// # Errors
/// [`Means::Settings`] or [`Means::Failed`] if a variable has a value that cannot be used.
pub(super) fn open(url: &BucketUrl) -> Result<Arc<dyn ObjectStore>, BucketError> {
    built(url, Connections { reads: None })
}

/// The same, for an object that is read to its end.
///
/// # Errors
/// See [`open`].
pub(super) fn open_to_read(url: &BucketUrl) -> Result<Arc<dyn ObjectStore>, BucketError> {
    let reads = url.key().filename().map(ToOwned::to_owned);
    built(url, Connections { reads })
}

fn built(url: &BucketUrl, connections: Connections) -> Result<Arc<dyn ObjectStore>, BucketError> {
    environment::check(url)?;
    let retry = RetryConfig {
        max_retries: RETRIES,
        retry_timeout: RETRY_WITHIN,
        ..RetryConfig::default()
    };
    let store: Result<Arc<dyn ObjectStore>, object_store::Error> = match url.kind() {
        Kind::S3 => {
            let builder = AmazonS3Builder::from_env();
            check_way(url, &builder)?;
            builder
                .with_bucket_name(url.bucket())
                .with_retry(retry)
                .with_http_connector(connections)
                .build()
                .map(|store| Arc::new(store) as _)
        }
        Kind::Google => GoogleCloudStorageBuilder::from_env()
            .with_bucket_name(url.bucket())
            .with_retry(retry)
            .with_http_connector(connections)
            .build()
            .map(|store| Arc::new(store) as _),
        Kind::Azure => MicrosoftAzureBuilder::from_env()
            .with_container_name(url.bucket())
            .with_retry(retry)
            .with_http_connector(connections)
            .build()
            .map(|store| Arc::new(store) as _),
    };
    store.map_err(|error| BucketError::of(url, Asked::Write, &error))
}

/// Without TLS everything of a backup can be read on the way, so it has to be asked for.
fn check_way(url: &BucketUrl, builder: &AmazonS3Builder) -> Result<(), BucketError> {
    let get = |key| builder.get_config_value(&key);
    let endpoint = get(AmazonS3ConfigKey::S3Endpoint).or(get(AmazonS3ConfigKey::Endpoint));
    let plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    let allowed = get(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    match plain && allowed.as_deref() != Some("true") {
        true => Err(BucketError::new(
            url,
            Means::Settings,
            "AWS_ENDPOINT_URL has no TLS; use https://, or set AWS_ALLOW_HTTP=true where the network \
             between is your own",
        )),
        false => Ok(()),
    }
}
