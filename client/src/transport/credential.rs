//! The bearer token that a client shows with every call, and when its file is read again.
#![cfg_attr(
    not(feature = "unstable"),
    allow(unreachable_pub, reason = "the feature `unstable` shows it")
)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_core::ClusterId;
use tokio::sync::{Notify, watch};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Status, transport};

use crate::clock::Clock;
use crate::sync::lock;
use crate::transport::error::ConnectError;
use crate::transport::refusal::{Reason, Refusal};
use crate::transport::trace;

/// The longest token, in bytes: it has to fit the headers that a server takes.
const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// How often the file is looked at that a token came from.
const LOOK: Duration = Duration::from_secs(5);
/// How soon a file is looked at again because the token was refused.
const LOOK_MIN: Duration = Duration::from_secs(1);
/// The longest time for which a token is taken to be valid without a look at its file.
const LOOK_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A connection that shows the token with each call.
pub type Channel = InterceptedService<transport::Channel, Credential>;

/// The header that names the cluster that a call is meant for.
const CLUSTER_HEADER: &str = "ringfence-cluster";

/// A server refused the certificate that was shown, or that none was: it says so in the handshake or behind
/// it, before it reads a call.
#[cfg(feature = "tls")]
fn of_certificate(error: &(dyn std::error::Error + 'static)) -> Option<Refusal> {
    let why = ringfence_tls::certificate_refused(error)?;
    Some(Refusal {
        reason: Reason::Unauthenticated,
        metadata: [("why".to_owned(), why.clone())].into(),
        message: why,
        retry_after: None,
    })
}

/// Without TLS there is no certificate.
#[cfg(not(feature = "tls"))]
fn of_certificate(_: &(dyn std::error::Error + 'static)) -> Option<Refusal> {
    None
}

/// Where a token is taken from.
pub(crate) enum TokenSource {
    /// As it was given.
    Text(String),
    /// A file that may be replaced.
    File(PathBuf),
}

/// What a client proves with who it is; nothing unless a token was given. Clones share it.
#[derive(Clone, Default)]
pub struct Credential(Arc<Shared>);

#[derive(Default)]
struct Shared {
    token: Option<watch::Sender<Header>>,
    file: Option<PathBuf>,
    look: Notify,
    /// Why the last stream was not opened, if it was for who this client is.
    refusal: Mutex<Option<Refusal>>,
    /// Why keep-alives were refused last, or their stream not opened, if it was for who this client is.
    keep_alive_refusal: Mutex<Option<Refusal>>,
    /// How many streams were not opened for that.
    refusals: AtomicU64,
    /// Whether every endpoint that there is refuses this client for that, again and again.
    refused_by_all: watch::Sender<bool>,
    /// The cluster that this client belongs to, once it knows one.
    cluster: Mutex<Option<Header>>,
}

type Header = MetadataValue<Ascii>;

impl Credential {
    /// Takes the token from where it is, so that what is wrong with it is reported at once.
    pub(crate) fn new(source: TokenSource) -> Result<Self, ConnectError> {
        let (header, file) = match source {
            TokenSource::Text(text) => (header(&text).map_err(|why| why.to_owned()), None),
            TokenSource::File(path) => (read(&path), Some(path)),
        };
        let header = header.map_err(|why| ConnectError::Token { why })?;
        Ok(Self(Arc::new(Shared {
            token: Some(watch::Sender::new(header)),
            file,
            ..Shared::default()
        })))
    }

    /// The token in a file, which is read once.
    ///
    /// # Errors
    /// [`ConnectError::Token`] says what is wrong with it.
    #[cfg(feature = "unstable")]
    pub fn of_file(path: &Path) -> Result<Self, ConnectError> {
        Self::new(TokenSource::File(path.to_owned()))
    }

    /// The connection with this token on each call.
    #[must_use]
    pub fn on(&self, channel: transport::Channel) -> Channel {
        InterceptedService::new(channel, self.clone())
    }

    /// Names this cluster in each call from now on: a node of another one refuses what changes anything.
    pub(crate) fn name_cluster(&self, cluster: ClusterId) {
        // Hexadecimal digits are a header.
        *lock(&self.0.cluster) = cluster.to_string().parse().ok();
    }

    /// The token as it is now, for a stream that has to be opened again when it changes.
    pub(crate) fn shown(&self) -> Shown {
        Shown(self.0.token.as_ref().map(watch::Sender::subscribe))
    }

    /// A stream was not opened.
    pub(crate) fn failed(&self, status: &Status) {
        let refusal = Refusal::from_status(status);
        let refusal = refusal.filter(|refusal| {
            matches!(
                refusal.reason,
                Reason::Unauthenticated | Reason::PermissionDenied
            )
        });
        self.not_opened(refusal.or_else(|| of_certificate(status)));
    }

    /// No connection was made for a stream.
    pub(crate) fn not_connected(&self, error: &transport::Error) {
        if let Some(refusal) = of_certificate(error) {
            self.not_opened(Some(refusal));
        }
    }

    fn not_opened(&self, refusal: Option<Refusal>) {
        if let Some(refusal) = &refusal {
            self.refused(refusal);
            self.keep_alive_refused(refusal);
            self.0.refusals.fetch_add(1, Ordering::Relaxed);
        }
        *lock(&self.0.refusal) = refusal;
    }

    /// Something was refused: perhaps there is a newer token.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        if refusal.reason == Reason::Unauthenticated {
            self.0.look.notify_one();
        }
    }

    /// No session can be kept alive: perhaps for who this client is.
    pub(crate) fn keep_alive_refused(&self, refusal: &Refusal) {
        let of_caller = [Reason::Unauthenticated, Reason::PermissionDenied];
        if of_caller.contains(&refusal.reason) {
            *lock(&self.0.keep_alive_refusal) = Some(refusal.clone());
        }
    }

    /// A keep-alive was answered: what was refused before it is over.
    pub(crate) fn keep_alive_taken(&self) {
        *lock(&self.0.keep_alive_refusal) = None;
    }

    /// Why no session is kept alive, if the last keep-alive was refused for who this client is.
    #[cfg(feature = "unstable")]
    pub(crate) fn keep_alive_refusal(&self) -> Option<Refusal> {
        lock(&self.0.keep_alive_refusal).clone()
    }

    /// Why the last stream was not opened, if it was for who this client is.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        lock(&self.0.refusal).clone()
    }

    /// How many streams were not opened for who this client is.
    pub(crate) fn refusals(&self) -> u64 {
        self.0.refusals.load(Ordering::Relaxed)
    }

    /// Whether every endpoint refuses this client for who it is, as far as is known now.
    pub(crate) fn set_refused_by_all(&self, refused: bool) {
        let set = |known: &mut bool| std::mem::replace(known, refused) != refused;
        self.0.refused_by_all.send_if_modified(set);
    }

    /// Completes when every endpoint refuses this client for who it is.
    pub(crate) async fn refused_by_all(&self) {
        let mut refused = self.0.refused_by_all.subscribe();
        // An error is impossible: the sender lives as long as this.
        refused.wait_for(|refused| *refused).await.ok();
    }

    /// Reads the file again when it is time to, for ever; returns at once if there is none.
    pub(crate) async fn follow(&self, clock: &dyn Clock) {
        let (Some(token), Some(file)) = (&self.0.token, &self.0.file) else {
            return;
        };
        let mut trouble = None;
        let mut pause = pause_after(&token.borrow());
        loop {
            let read_at = clock.now();
            crate::sync::select! {
                () = clock.sleep_until(read_at + pause) => {}
                () = self.0.look.notified() => clock.sleep_until(read_at + LOOK_MIN).await,
            }
            let path = file.clone();
            // A slow disk must hold up no other task of this thread, such as keep-alives.
            let Ok(read) = tokio::task::spawn_blocking(move || read(&path)).await else {
                continue;
            };
            pause = LOOK;
            match read {
                Ok(header) => {
                    trouble = None;
                    let changed = *token.borrow() != header;
                    if changed {
                        pause = pause_after(&header);
                        token.send_replace(header);
                        tracing::debug!("another token");
                    }
                }
                Err(why) if trouble.as_ref() == Some(&why) => {}
                Err(why) => {
                    tracing::warn!(%why, "the token that was read before is shown further on");
                    trouble = Some(why);
                }
            }
        }
    }
}

impl Interceptor for Credential {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0.token {
            let header = token.borrow().clone();
            request.metadata_mut().insert("authorization", header);
        }
        if let Some(cluster) = lock(&self.0.cluster).clone() {
            request.metadata_mut().insert(CLUSTER_HEADER, cluster);
        }
        if let Some(place) = trace::header() {
            request.metadata_mut().insert("traceparent", place);
        }
        Ok(request)
    }
}

/// See [`Credential::shown`].
pub(crate) struct Shown(Option<watch::Receiver<Header>>);

impl Shown {
    /// Completes when there is another token.
    pub(crate) async fn replaced(&mut self) {
        if let Some(token) = &mut self.0
            && token.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

fn read(path: &Path) -> Result<Header, String> {
    let of_file = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let size = std::fs::metadata(path).map_err(|error| of_file(&error))?;
    // To open a pipe would wait for its writer, and its content can be read once only.
    if !size.is_file() {
        return Err(of_file(
            &"it is no regular file; expected one, since it is read again when it changes",
        ));
    }
    if size.len() > TOKEN_BYTES_MAX as u64 {
        return Err(of_file(&TOO_LONG));
    }
    let text = std::fs::read_to_string(path).map_err(|error| of_file(&error))?;
    header(&text).map_err(|why| of_file(&why))
}

const TOO_LONG: &str = "the token is longer than 8 KiB";

/// What proves the caller; never shown in a log.
fn header(text: &str) -> Result<Header, &'static str> {
    let token = text.trim();
    if token.is_empty() {
        return Err("the token is empty");
    }
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TOO_LONG);
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(
            "the token has a space, or a character that no token has; expected the token alone",
        );
    }
    let mut header: Header = format!("Bearer {token}")
        .parse()
        .map_err(|_| "the token has a character that no header has")?;
    header.set_sensitive(true);
    Ok(header)
}

/// How long a token is shown until its file is looked at: two thirds of its lifetime, if it tells
/// that.
fn pause_after(header: &Header) -> Duration {
    let expires = header.to_str().ok().and_then(expires_of);
    let Some(expires) = expires else {
        return LOOK;
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "says when a file is looked at; whether a token is valid, the cluster decides"
    )]
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let left = Duration::from_secs(expires).saturating_sub(now.unwrap_or_default());
    (left / 3 * 2).clamp(LOOK, LOOK_MAX)
}

/// When a JSON Web Token expires, in seconds since the Unix epoch; `None` if it is no such token.
fn expires_of(header: &str) -> Option<u64> {
    let mut parts = header.rsplit('.');
    let (_signature, payload, _head) = (parts.next()?, parts.next()?, parts.next()?);
    let claims = String::from_utf8(from_base64url(payload)?).ok()?;
    let (_, behind) = claims.split_once("\"exp\"")?;
    let number = behind.trim_start().strip_prefix(':')?.trim_start();
    let end = number
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(number.len());
    number[..end].parse().ok()
}

fn from_base64url(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.bytes() {
        let six = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(six)) & 0xffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// `{"sub":"alice","exp":4102444800}`, expires in 2100.
    const CLAIMS: &str = "eyJzdWIiOiJhbGljZSIsImV4cCI6NDEwMjQ0NDgwMH0";

    #[test]
    fn the_lifetime_of_a_json_web_token_is_read_and_of_no_other() {
        let token = |claims: &str| format!("Bearer eyJhbGciOiJFUzI1NiJ9.{claims}.c2lnbmF0dXJl");
        assert_eq!(expires_of(&token(CLAIMS)), Some(4_102_444_800));
        assert_eq!(expires_of(&token("e30")), None);
        assert_eq!(expires_of(&token("!!!!")), None);
        assert_eq!(expires_of("Bearer rft_7_AAAA"), None);
        let long = token(CLAIMS).parse().unwrap();
        assert_eq!(pause_after(&long), LOOK_MAX);
    }

    #[test]
    fn what_is_no_token_is_refused_and_never_shown() {
        for (text, fault) in [(" \n", "empty"), ("two words", "space"), ("ä", "character")] {
            let fault_of = header(text).unwrap_err();
            assert!(fault_of.contains(fault), "{text:?}: {fault_of}");
        }
        assert!(header(&"x".repeat(TOKEN_BYTES_MAX + 1)).is_err());
        let header = header(" rft_7_secret\n").unwrap();
        assert_eq!(header.to_str().unwrap(), "Bearer rft_7_secret");
        assert!(!format!("{header:?}").contains("secret"));
    }
}
