//! What the environment says of a store, looked at before the library builds a request of it: it panics
//! where a value fits into none, and a panic ends a node.

use std::env;
use std::fs::File;
use std::io::Read as _;

use http::Uri;
use serde_json::Value;
use url::Url;

use super::error::{BucketError, Means};
use super::url::{BucketUrl, Kind};

/// What the names of variables with the place of a file end with.
const FILES: [&str; 4] = [
    "_FILE",
    "_CREDENTIALS",
    "SERVICE_ACCOUNT",
    "SERVICE_ACCOUNT_PATH",
];
/// What the names of variables with the content of a key file end with.
const KEYS: [&str; 1] = ["SERVICE_ACCOUNT_KEY"];
/// The longest key file, in bytes.
const KEY_BYTES_MAX: u64 = 1 << 20;
/// What the names of variables with a host end with.
const HOSTS: [&str; 3] = ["_METADATA_HOST", "_METADATA_IP", "_METADATA_ROOT"];
/// What the names of variables with a URL end with.
const URLS: [&str; 7] = [
    "_ENDPOINT",
    "_ENDPOINT_URL",
    "_ENDPOINT_URL_S3",
    "_ENDPOINT_URL_STS",
    "_FULL_URI",
    "_AUTHORITY_HOST",
    "_BASE_URL",
];
/// A file whose content goes into a header.
const TOKEN_FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";

/// Looks at all variables that the client of a bucket is made from.
///
/// # Errors
/// [`Means::Settings`], with the name of a variable and without its value, which may be a secret.
pub(super) fn check(url: &BucketUrl) -> Result<(), BucketError> {
    for (name, value) in env::vars_os() {
        let Some(name) = name.to_str().filter(|name| url.kind().reads(name)) else {
            continue;
        };
        let why = match value.to_str() {
            Some(value) => wrong(url.kind(), name, value),
            None => Some("is no text in UTF-8; set it again"),
        };
        if let Some(why) = why {
            return Err(refused(url, name, why));
        }
    }
    // It was read just now.
    let token = env::var_os(TOKEN_FILE).and_then(|file| std::fs::read_to_string(file).ok());
    match token {
        Some(token) if url.kind() == Kind::S3 && !fits(&token) => Err(refused(
            url,
            TOKEN_FILE,
            "names a file with more in it than a token in one line",
        )),
        _ => Ok(()),
    }
}

fn refused(url: &BucketUrl, name: &str, why: &str) -> BucketError {
    BucketError::new(url, Means::Settings, format!("{name} {why}"))
}

/// What is wrong with a variable that is read, and what to do.
fn wrong(kind: Kind, name: &str, value: &str) -> Option<&'static str> {
    let ends = |with: &[&str]| with.iter().any(|with| name.ends_with(with));
    if value.is_empty() {
        return Some("has no value; set it, or unset it");
    }
    if ends(&KEYS) {
        return wrong_key(value);
    }
    if ends(&FILES) {
        // The value is not repeated: it may be what is meant to be in the file.
        return match read(value) {
            None => Some("names no file that this user can read, of 1 MiB at most"),
            Some(key) if kind == Kind::Google => wrong_key(&key),
            Some(_) => None,
        };
    }
    if ends(&HOSTS) && (value.contains('/') || !is_base(&format!("http://{value}"))) {
        return Some("is no host; expected one as metadata.google.internal, or HOST:PORT");
    }
    if !fits(value) {
        return Some(
            "has a line break, a space at an end, or another character that no request may have; set \
             it again without",
        );
    }
    if ends(&URLS) && !is_base(value) {
        return Some(
            "is no URL of a server; expected https://HOST or https://HOST:PORT, and no user, password, \
             ? or # in it",
        );
    }
    if name == "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
        && !(value.starts_with('/') && is_base(&format!("http://host{value}")))
    {
        return Some("is no path of a URL; expected one that begins with /");
    }
    let of_region = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if kind == Kind::S3 && name.ends_with("_REGION") && !value.bytes().all(of_region) {
        return Some("is no region; expected one as eu-west-1");
    }
    None
}

/// A file, if it is one and is not too long.
fn read(path: &str) -> Option<String> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    let read = file
        .take(KEY_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .ok()?;
    (read as u64 <= KEY_BYTES_MAX).then_some(text)
}

/// What is wrong with a key file, as far as the library would not say it.
fn wrong_key(key: &str) -> Option<&'static str> {
    let key: Value = serde_json::from_str(key).ok()?;
    let base = key.get("gcs_base_url")?.as_str()?;
    match is_base(base) {
        true => None,
        false => Some("has a gcs_base_url that is no URL of a server; expected https://HOST"),
    }
}

/// Whether a text may be in a header.
fn fits(text: &str) -> bool {
    text.trim() == text && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// Whether a path can be put behind it.
fn is_base(text: &str) -> bool {
    // It reads an address both ways, and takes for granted that it can.
    let (Ok(uri), Ok(_)) = (text.parse::<Uri>(), Url::parse(text)) else {
        return false;
    };
    let scheme = uri
        .scheme_str()
        .is_some_and(|scheme| ["http", "https"].contains(&scheme));
    scheme && !uri.host().unwrap_or_default().is_empty() && !text.contains(['@', '?', '#'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_request_can_have_is_refused_and_not_repeated() {
        for (name, value, expected) in [
            ("AWS_ENDPOINT_URL", "", "no value"),
            ("AWS_ACCESS_KEY_ID", "hunter2\n", "line break"),
            ("AWS_SESSION_TOKEN", " hunter2", "line break"),
            ("AWS_SECRET_ACCESS_KEY", "hünter2", "line break"),
            (
                "AWS_ENDPOINT_URL",
                "127.0.0.1:9000",
                "expected https://HOST",
            ),
            ("AWS_ENDPOINT", "not a url", "expected https://HOST"),
            (
                "AWS_ENDPOINT_URL",
                "http://h:99999",
                "expected https://HOST",
            ),
            (
                "AWS_ENDPOINT_URL",
                "http://1.2.3.999",
                "expected https://HOST",
            ),
            (
                "AWS_ENDPOINT_URL_S3",
                "https://id:hunter2@store",
                "no user, password",
            ),
            (
                "AWS_METADATA_ENDPOINT",
                "ftp://host",
                "expected https://HOST",
            ),
            (
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                "/v1",
                "expected https://HOST",
            ),
            (
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                "v1",
                "begins with /",
            ),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "hunter2", "names no file"),
            ("AWS_REGION", "eu west", "eu-west-1"),
            ("AWS_DEFAULT_REGION", "eu/west", "eu-west-1"),
        ] {
            assert!(Kind::S3.reads(name), "{name}");
            let why = wrong(Kind::S3, name, value).unwrap_or_else(|| panic!("{name}={value}"));
            assert!(why.contains(expected), "{name}: {why}");
            assert!(!why.contains("hunter2"));
        }
    }

    #[test]
    fn what_the_identity_of_a_machine_cannot_have_is_refused() {
        let key = r#"{"gcs_base_url":"not a url","private_key":"hunter2"}"#;
        for (kind, name, value, expected) in [
            (Kind::Google, "GCE_METADATA_HOST", "", "no value"),
            (Kind::Google, "GCE_METADATA_HOST", "a b", "no host"),
            (Kind::Google, "GCE_METADATA_IP", "[::1", "no host"),
            (Kind::Google, "GCE_METADATA_IP", "%zz", "no host"),
            (Kind::Google, "GCE_METADATA_HOST", "http://x", "no host"),
            (
                Kind::Google,
                "GOOGLE_SERVICE_ACCOUNT_KEY",
                key,
                "no URL of a server",
            ),
            (
                Kind::Google,
                "GOOGLE_APPLICATION_CREDENTIALS",
                key,
                "names no file",
            ),
            (Kind::Google, "SERVICE_ACCOUNT", key, "names no file"),
            (Kind::Azure, "IDENTITY_ENDPOINT", "*", "no URL of a server"),
            (
                Kind::Azure,
                "IDENTITY_ENDPOINT",
                "http://",
                "no URL of a server",
            ),
            (Kind::Azure, "IDENTITY_HEADER", "hunter2\n", "line break"),
        ] {
            assert!(kind.reads(name), "{name}");
            let why = wrong(kind, name, value).unwrap_or_else(|| panic!("{name}={value}"));
            assert!(why.contains(expected), "{name}: {why}");
            assert!(!why.contains("hunter2"));
        }
    }

    #[test]
    fn what_tools_of_the_stores_take_is_taken() {
        for (kind, name, value) in [
            (
                Kind::S3,
                "AWS_ENDPOINT_URL",
                "https://s3.example:9000/minio",
            ),
            (Kind::S3, "AWS_ENDPOINT_URL_S3", "http://[::1]:9000"),
            (Kind::S3, "AWS_REGION", "us-gov-east-1"),
            (Kind::S3, "AWS_SECRET_ACCESS_KEY", "wJalr/K7+bPx="),
            (Kind::S3, "AWS_WEB_IDENTITY_TOKEN_FILE", "/etc/hostname"),
            (
                Kind::S3,
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                "/v2/credentials/1-2",
            ),
            (
                Kind::Google,
                "GCE_METADATA_HOST",
                "metadata.google.internal",
            ),
            (Kind::Google, "GCE_METADATA_IP", "169.254.169.254"),
            (
                Kind::Azure,
                "IDENTITY_ENDPOINT",
                "http://localhost:4141/msi/token",
            ),
            (Kind::Google, "GOOGLE_SERVICE_ACCOUNT_KEY", "{\n}\n"),
            (Kind::Azure, "AZURE_STORAGE_ACCOUNT_KEY", "aGk="),
            (
                Kind::Azure,
                "AZURE_AUTHORITY_HOST",
                "https://login.microsoftonline.com",
            ),
        ] {
            assert!(kind.reads(name), "{name}");
            assert_eq!(wrong(kind, name, value), None, "{name}={value}");
        }
        assert!(!Kind::S3.reads("AWS_PAGER") && !Kind::S3.reads("GOOGLE_BUCKET"));
    }
}
