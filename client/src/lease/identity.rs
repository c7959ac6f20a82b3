//! Who a holder says it is; and telling two living processes apart that say the same.

use std::time::Duration;

use ringfence_core::SessionId;
use ringfence_proto::v1::GetSessionRequest;
use ringfence_proto::v1::sessions_client::SessionsClient;

use crate::session::client::Client;
use crate::transport::error::CallError;
use crate::transport::unary;

/// The pause between two looks at a session, as a part of its TTL: a session that is kept alive is
/// renewed every third of it.
const SAMPLES_PER_TTL: u32 = 8;
/// The shortest such pause.
const SAMPLE_PAUSE_MIN: Duration = Duration::from_millis(20);
/// How often its end has to move away before the session counts as kept alive: a new leader of the
/// cluster grants every session one fresh TTL, and only one.
const RENEWALS: u32 = 2;

/// Two living processes use one identity. Here that makes no two leaders, since sessions are kept
/// apart by their numbers; but logs, people and `Successor::Identity` cannot tell them apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "session {session} is alive and uses identity {identity:?} too; \
     give every process its own, the default for example"
)]
pub struct DuplicateIdentity {
    /// The identity that both processes use.
    pub identity: String,
    /// The session of the other process; `ringfence session get` shows it.
    pub session: SessionId,
}

/// An identity that no other process has: the host's name, an underscore and a random UUID.
#[must_use]
pub fn unique_identity() -> String {
    let host: String = host_name()
        .chars()
        .filter(|c| !c.is_control())
        .take(64)
        .collect();
    let host = if host.is_empty() { "host" } else { &host };
    format!("{host}_{}", uuid(rand::random()))
}

#[cfg(unix)]
fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// Windows sets this variable for every process.
#[cfg(windows)]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

/// Random bytes as a UUID of version 4.
fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// What a look at a session tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionSample {
    pub(crate) remaining_ms: u64,
    pub(crate) ttl_ms: u64,
}

/// Counts how often a session's end moved away.
#[derive(Debug, Default)]
pub(crate) struct RenewalCounter {
    last: Option<u64>,
    renewals: u32,
}

impl RenewalCounter {
    /// Takes a look; says whether the session is known to be kept alive by now.
    pub(crate) fn observe(&mut self, remaining_ms: u64) -> bool {
        // Cluster time only moves forward, so what is left grows by a renewal alone.
        if self.last.is_some_and(|last| remaining_ms > last) {
            self.renewals += 1;
        }
        self.last = Some(remaining_ms);
        self.renewals >= RENEWALS
    }
}

/// How the cluster sees a session; `None` if it has ended.
pub(crate) async fn sample_session(
    client: &Client,
    session: SessionId,
) -> Result<Option<SessionSample>, CallError> {
    let request = GetSessionRequest {
        session: session.get(),
        read: None,
    };
    let found = unary::call(&client.inner.transport, move |channel| async move {
        SessionsClient::new(channel).get(request).await
    })
    .await;
    match found {
        Ok(reply) => Ok(reply.session.map(|session| SessionSample {
            remaining_ms: session.remaining_ms,
            ttl_ms: session.ttl_ms,
        })),
        // Whatever the refusal is, no process is known to live behind this number.
        Err(CallError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Looks at a session until a process is known to keep it alive (`true`), or it has ended.
pub(crate) async fn is_kept_alive(client: &Client, session: SessionId) -> bool {
    let mut renewals = RenewalCounter::default();
    let mut pause = Duration::from_secs(1);
    loop {
        match sample_session(client, session).await {
            Ok(Some(sample)) => {
                if renewals.observe(sample.remaining_ms) {
                    return true;
                }
                pause = Duration::from_millis(sample.ttl_ms) / SAMPLES_PER_TTL;
            }
            Ok(None) => return false,
            // Nothing is known meanwhile; the next look tells.
            Err(_) => {}
        }
        client
            .sleep_until(client.now() + pause.max(SAMPLE_PAUSE_MIN))
            .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s2_2_the_default_identity_is_the_host_and_a_uuid() {
        let one = unique_identity();
        let (_, uuid) = one.rsplit_once('_').unwrap_or_default();
        assert_eq!(uuid.len(), 36, "{one}");
        assert_eq!(uuid.as_bytes()[14], b'4', "{one}");
        assert_eq!(uuid.matches('-').count(), 4, "{one}");
        assert!(one.len() <= 255);
    }

    #[test]
    fn s3_1_two_default_identities_differ() {
        assert_ne!(unique_identity(), unique_identity());
    }

    #[test]
    fn s0_8_one_fresh_ttl_is_no_pulse_and_two_renewals_are() {
        let mut renewals = RenewalCounter::default();
        for (remaining, alive) in [(900, false), (500, false), (1_000, false), (700, false)] {
            assert_eq!(renewals.observe(remaining), alive);
        }
        assert!(renewals.observe(1_000));
    }
}
