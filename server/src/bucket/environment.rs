//! What the environment says of a store, looked at before the library builds a request of it: it panics
//! where a value fits into none, and a panic ends a node.

use std::env;

use http::Uri;
use url::Url;

use super::error::{BucketError, Means};
use super::url::{BucketUrl, Kind};

/// What the names of variables with the place of a file, or the content of one, end with.
const FILES: [&str; 5] = [
    "_FILE",
    "_CREDENTIALS",
    "_SERVICE_ACCOUNT",
    "_SERVICE_ACCOUNT_PATH",
    "_SERVICE_ACCOUNT_KEY",
];
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
    // A file that cannot be read is for the library to say.
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
    if ends(&FILES) {
        return None;
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
            (Kind::S3, "AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/tökens/t"),
            (
                Kind::S3,
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                "/v2/credentials/1-2",
            ),
            (
                Kind::Google,
                "GOOGLE_APPLICATION_CREDENTIALS",
                "/etc/key.json",
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
