//! What went wrong at a bucket, for people.

use std::error::Error;
use std::fmt;

use object_store::Error as StoreError;

use super::url::BucketUrl;

/// How much of what a store has said is repeated, in characters.
const SAID_MAX: usize = 400;

/// A backup that a bucket did not take, or did not give. Its text says what to do.
#[derive(Debug)]
pub(crate) struct BucketError {
    url: BucketUrl,
    means: Means,
    /// What is known about it: from the store, the network or the machine.
    said: String,
    /// Who was asked: scheme, host and port; nothing if no request was made.
    asked: String,
}

/// What an error means to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// There is an object already.
    Exists,
    /// There is no such bucket.
    NoBucket,
    /// The bucket has no such object.
    NoObject,
    /// The environment has no credentials, and the machine gives none.
    NoCredentials,
    /// The store does not let the caller do that.
    Denied,
    /// The bucket is in another region, or at another server.
    Elsewhere,
    /// What answers has a certificate of an unknown authority, or one of another name.
    Untrusted,
    /// Nothing answers, or not in time.
    Unreachable,
    /// What was sent is not what was to be sent.
    OtherDigest,
    /// What the environment says; no request was made.
    Settings,
    /// The store itself, or what was sent to it.
    Failed,
}

/// What was asked of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Read,
    Write,
}

impl BucketError {
    pub(super) fn new(url: &BucketUrl, means: Means, said: impl Into<String>) -> Self {
        Self {
            url: url.clone(),
            means,
            said: said.into(),
            asked: String::new(),
        }
    }

    /// What an error of the store means at this URL.
    pub(super) fn of(url: &BucketUrl, asked: Asked, error: &StoreError) -> Self {
        let text = error.to_string();
        let code = element(&text, "Code").filter(|code| is_word(code));
        let said = said(error, &text, code);
        Self {
            asked: origin(&text).map(clean).unwrap_or_default(),
            ..Self::new(url, means(asked, error, &text, code), said)
        }
    }

    pub(crate) fn means(&self) -> Means {
        self.means
    }
}

impl Error for BucketError {}

impl fmt::Display for BucketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (url, said) = (&self.url, &self.said);
        let at = match self.asked.as_str() {
            "" => String::new(),
            asked => format!(" at {asked}"),
        };
        // Of what is said without an answer of the store the host is a part.
        let at_once = match said.contains(&self.asked) {
            true => "",
            false => &at,
        };
        let (credentials, places) = (url.kind().credentials(), url.kind().places());
        match self.means {
            Means::Exists => write!(f, "{url} exists already{at}"),
            Means::NoBucket => write!(
                f,
                "the bucket of {url} does not exist{at}; make it, or correct its name or {places}"
            ),
            Means::NoObject => write!(
                f,
                "{url} does not exist{at}; look at what the bucket has, and correct the name"
            ),
            Means::NoCredentials => write!(
                f,
                "no credentials for {url}: the environment has none, and the machine gives none \
                 ({said}); set {credentials}"
            ),
            Means::Denied => write!(
                f,
                "no access to {url}{at_once}: {said}; check {credentials}, and what they may do in the bucket"
            ),
            Means::Elsewhere => write!(
                f,
                "the bucket of {url} is not where it was looked for{at_once}: {said}; correct {places}"
            ),
            Means::Untrusted => write!(
                f,
                "the certificate of the store of {url} is not trusted: {said}; name a PEM file with \
                 its authority in SSL_CERT_FILE, or correct {places}"
            ),
            Means::Unreachable => write!(
                f,
                "the store of {url} cannot be reached: {said}; check {places}, and the network"
            ),
            Means::OtherDigest => write!(
                f,
                "{url} would have another digest than the backup; nothing was kept; take it again"
            ),
            Means::Settings => write!(f, "{url} cannot be used: {said}"),
            Means::Failed => write!(f, "{url}{at_once}: {said}; check {credentials}, {places}"),
        }
    }
}

/// Where machines of clouds are asked for credentials, as it is in a request.
const IDENTITY_SERVICES: [&str; 3] = [
    "/latest/api/token",
    "//169.254.",
    "//metadata.google.internal",
];

fn means(asked: Asked, error: &StoreError, text: &str, code: Option<&str>) -> Means {
    if IDENTITY_SERVICES
        .iter()
        .any(|service| text.contains(service))
    {
        return Means::NoCredentials;
    }
    match code {
        Some("NoSuchBucket" | "ContainerNotFound") => return Means::NoBucket,
        Some(
            "AuthorizationHeaderMalformed"
            | "IllegalLocationConstraintException"
            | "PermanentRedirect",
        ) => return Means::Elsewhere,
        // The library says so of some answers only, as not of a list's.
        Some("AccessDenied" | "InvalidAccessKeyId" | "SignatureDoesNotMatch") => {
            return Means::Denied;
        }
        _ => {}
    }
    match error {
        StoreError::AlreadyExists { .. } => Means::Exists,
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => Means::Denied,
        StoreError::NotFound { .. } => match (code, asked) {
            // Nothing but the bucket has to be there for it.
            (None | Some("NoSuchKey" | "BlobNotFound"), Asked::Write) => Means::NoBucket,
            (None | Some("NoSuchKey" | "BlobNotFound"), Asked::Read) => Means::NoObject,
            (Some(_), _) => Means::Failed,
        },
        // Its body, which would say more, is not read.
        _ if text.contains("Received redirect without") => Means::Elsewhere,
        _ if text.contains("HTTP error: ") => match causes(error).contains("peer certificate") {
            true => Means::Untrusted,
            false => Means::Unreachable,
        },
        _ => Means::Failed,
    }
}

/// The code and the message of a store's answer; who was asked, and the innermost cause; or all of it.
fn said(error: &StoreError, text: &str, code: Option<&str>) -> String {
    if let Some(code) = code {
        let message = element(text, "Message").unwrap_or_default();
        let said = format!("{code}: {}", plain(message));
        return clean(said.trim_end_matches([':', ' ', '.']));
    }
    match (origin(text), text.split_once(" - ")) {
        (Some(origin), Some((_, answer))) if !text.contains("HTTP error: ") => {
            clean(&format!("{origin} said: {answer}"))
        }
        (Some(origin), _) => clean(&format!("{origin}: {}", causes(error))),
        (None, _) => {
            let all = text.split_once(" error: ").map_or(text, |(_, what)| what);
            let innermost = causes(error);
            match all.contains(&innermost) {
                true => clean(all),
                false => clean(&format!("{all}: {innermost}")),
            }
        }
    }
}

/// The innermost cause.
fn causes(error: &StoreError) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

/// The scheme, the host and the port of the request that failed, as the library shows it.
fn origin(text: &str) -> Option<&str> {
    let (_, request) = text.split_once("Error performing ")?;
    let url = request.split_whitespace().nth(1)?;
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.find('/').unwrap_or(rest.len());
    Some(&url[..scheme.len() + "://".len() + host])
}

fn is_word(code: &str) -> bool {
    code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// In one line, and not at any length.
fn clean(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(SAID_MAX).map(clean).collect()
}

/// What is in an element of an answer in XML.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inside, _) = rest.split_once(&format!("</{name}>"))?;
    Some(inside)
}

/// A text of XML without what stands for quotes there.
fn plain(text: &str) -> String {
    let text = text.replace("&#34;", "\"").replace("&quot;", "\"");
    text.replace("&#39;", "'").replace("&apos;", "'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> StoreError {
        StoreError::Generic {
            store: "S3",
            source: text.into(),
        }
    }

    fn missing(text: &str) -> StoreError {
        StoreError::NotFound {
            path: "k".into(),
            source: text.into(),
        }
    }

    fn shown(asked: Asked, error: &StoreError) -> String {
        let url = BucketUrl::parse("s3://b/k").unwrap();
        BucketError::of(&url, asked, error).to_string()
    }

    #[test]
    fn an_answer_is_known_by_its_code_and_another_one_is_repeated_in_part() {
        let answer = "PUT 403: <Error><Code>SignatureDoesNotMatch</Code><Message>Check &#34;it\n&#34;.\
                      </Message><Key>k</Key></Error>";
        let refused = shown(Asked::Read, &generic(answer));
        let expected = "no access to s3://b/k: SignatureDoesNotMatch: Check \"it \"; check AWS_";
        assert!(refused.starts_with(expected), "{refused}");
        let odd = format!("<Code>a b</Code>\n{}", "x".repeat(1_000));
        let odd = shown(Asked::Read, &generic(&odd));
        assert!(odd.contains("a b") && !odd.contains('\n'), "{odd}");
        assert!(odd.chars().count() < SAID_MAX + 200, "{odd}");
    }

    #[test]
    fn a_bucket_elsewhere_is_no_missing_one() {
        let expected = "the region 'us-east-1' is wrong; expecting 'eu-west-1'";
        let wrong = format!(
            "<Error><Code>AuthorizationHeaderMalformed</Code><Message>{expected}</Message></Error>"
        );
        let redirect = "Received redirect without LOCATION, this normally indicates a wrong region";
        for (answer, expected) in [(&*wrong, expected), (redirect, redirect)] {
            let wrong = shown(Asked::Write, &generic(answer));
            assert!(wrong.contains("is not where it was looked for"), "{wrong}");
            assert!(wrong.contains(expected), "{wrong}");
            assert!(
                wrong.ends_with("correct AWS_REGION and AWS_ENDPOINT_URL"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn what_is_missing_depends_on_what_was_asked_and_on_the_code() {
        let no_key = missing("<Error><Code>NoSuchKey</Code></Error>");
        assert!(shown(Asked::Read, &no_key).contains("look at what the bucket has"));
        assert!(shown(Asked::Write, &missing("")).contains("make it"));
        let no_bucket = missing("<Error><Code>NoSuchBucket</Code></Error>");
        assert!(shown(Asked::Read, &no_bucket).contains("make it"));
        // A completion that was repeated.
        let over = shown(
            Asked::Write,
            &missing("<Error><Code>NoSuchUpload</Code></Error>"),
        );
        assert!(
            over.contains("NoSuchUpload") && !over.contains("make it"),
            "{over}"
        );
    }

    #[test]
    fn a_machine_without_an_identity_is_no_store_that_cannot_be_reached() {
        let asked = "Error performing PUT http://169.254.169.254/latest/api/token in 1s - HTTP error: \
                     Connection refused";
        let nothing = shown(Asked::Write, &generic(asked));
        assert!(
            nothing.starts_with("no credentials for s3://b/k"),
            "{nothing}"
        );
        assert!(nothing.contains("http://169.254.169.254"), "{nothing}");
        let asked = asked.replace("169.254.169.254/latest/api/token", "h:1/b/k");
        let nothing = shown(Asked::Write, &generic(&asked));
        let expected = "the store of s3://b/k cannot be reached: http://h:1: ";
        assert!(nothing.starts_with(expected), "{nothing}");
    }

    #[test]
    fn an_answer_names_the_host_that_gave_it() {
        let answer = "Error performing GET https://store.example:9000/b/k in 1ms - Server returned non-2xx \
                      status code: 403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code></Error>";
        let refused = shown(Asked::Read, &generic(answer));
        let expected = "no access to s3://b/k at https://store.example:9000: SignatureDoesNotMatch";
        assert!(refused.starts_with(expected), "{refused}");
        let absent = shown(
            Asked::Read,
            &missing(&answer.replace("SignatureDoesNotMatch", "NoSuchKey")),
        );
        assert!(
            absent.starts_with("s3://b/k does not exist at https://store.example:9000;"),
            "{absent}"
        );
    }
}
