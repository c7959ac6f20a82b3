//! What a member says of itself with the answer to every heartbeat, so that its leader knows.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ringfence_proto::record::RECORD_VERSION;
use tonic::metadata::{MetadataMap, MetadataValue};

use super::header;
use crate::store::log_store::LogStore;

const NO_ROOM: &str = "ringfence-no-room";
const PEER_AUTH: &str = "ringfence-peer-auth";
const SYNC_MICROS: &str = "ringfence-sync-micros";
const VERSION: &str = "ringfence-version";

/// The longest text that is taken for the version of a release, in bytes.
const VERSION_BYTES_MAX: usize = 64;

/// The condition of a member, by its own words. What its release does not announce yet is 0, false
/// or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// The newest version of log commands that it knows.
    pub records: u32,
    /// Whether it has no room for more log.
    pub no_room: bool,
    /// Whether its peer port admits those alone who show a certificate with a name of peers.
    pub peer_auth: bool,
    /// How long the newest flush of its log to the disk took that has ended.
    pub last_sync: Duration,
    /// The version of its release: 64 visible characters at most.
    pub version: Arc<str>,
}

impl Condition {
    /// That of the node with this log, and with an authenticated peer port or not.
    pub(crate) fn of(log: &LogStore, peer_auth: bool) -> Self {
        let stats = log.wal_stats();
        // One of less than a microsecond is one.
        let micros = stats.last_sync_micros.max(u64::from(stats.syncs > 0));
        let last_sync = Duration::from_micros(micros);
        Self::own(log.no_room(), peer_auth, last_sync)
    }

    fn own(no_room: bool, peer_auth: bool, last_sync: Duration) -> Self {
        Self {
            records: RECORD_VERSION,
            no_room,
            peer_auth,
            last_sync,
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }

    /// Lets an answer carry it.
    pub(crate) fn announce(&self, metadata: &mut MetadataMap) {
        let micros = u64::try_from(self.last_sync.as_micros()).unwrap_or(u64::MAX);
        header::announce(metadata);
        metadata.insert(NO_ROOM, MetadataValue::from(u32::from(self.no_room)));
        metadata.insert(PEER_AUTH, MetadataValue::from(u32::from(self.peer_auth)));
        metadata.insert(SYNC_MICROS, MetadataValue::from(micros));
        if let Ok(version) = MetadataValue::try_from(&*self.version) {
            metadata.insert(VERSION, version);
        }
    }

    /// What an answer carries; `None` if it is one that announces nothing.
    pub(crate) fn announced(metadata: &MetadataMap) -> Option<Self> {
        let text = |key: &str| metadata.get(key).and_then(|value| value.to_str().ok());
        let is = |key: &str| text(key) == Some("1");
        let micros = text(SYNC_MICROS).and_then(|micros| micros.parse().ok());
        let condition = Self {
            records: header::announced(metadata),
            no_room: is(NO_ROOM),
            peer_auth: is(PEER_AUTH),
            last_sync: Duration::from_micros(micros.unwrap_or(0)),
            version: version_of(text(VERSION).unwrap_or_default()),
        };
        // Every release knows some log commands.
        (condition.records > 0).then_some(condition)
    }
}

/// What a peer has said of itself last.
#[derive(Debug, Default)]
pub(super) struct Heard(Mutex<Option<(Condition, Duration)>>);

impl Heard {
    /// Notes what the answer to a message says that was sent then.
    pub(super) fn note(&self, condition: Condition, sent: Duration) {
        *self.0.lock() = Some((condition, sent));
    }

    /// It, and how long ago the message was sent that it answers.
    pub(super) fn newest(&self, now: Duration) -> Option<(Condition, Duration)> {
        let heard = self.0.lock().clone();
        heard.map(|(condition, sent)| (condition, now.saturating_sub(sent)))
    }
}

/// What another party calls a version, or nothing if it cannot be one.
pub(crate) fn version_of(text: &str) -> Arc<str> {
    match is_version(text) {
        true => text.into(),
        false => Arc::default(),
    }
}

/// Whether a text may be shown as the version of a release.
fn is_version(text: &str) -> bool {
    text.len() <= VERSION_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata_of(condition: &Condition) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        condition.announce(&mut metadata);
        metadata
    }

    #[test]
    fn a_condition_is_announced_whole_and_replaces_the_one_before() {
        let full = Condition::own(true, true, Duration::from_micros(1_250));
        let mut metadata = metadata_of(&full);
        assert_eq!(Condition::announced(&metadata), Some(full));
        let well = Condition::own(false, false, Duration::ZERO);
        well.announce(&mut metadata);
        assert_eq!(Condition::announced(&metadata), Some(well));
    }

    #[test]
    fn an_answer_that_announces_nothing_says_nothing_of_a_condition() {
        assert_eq!(Condition::announced(&MetadataMap::new()), None);
    }

    #[test]
    fn a_release_that_announces_its_log_commands_alone_is_well_as_far_as_anybody_knows() {
        let mut metadata = MetadataMap::new();
        header::announce(&mut metadata);
        let known = Condition {
            records: RECORD_VERSION,
            ..Condition::default()
        };
        assert_eq!(Condition::announced(&metadata), Some(known));
    }

    /// Whatever else is heard of the peer meanwhile.
    #[test]
    fn a_condition_is_as_old_as_the_message_that_it_answers() {
        let heard = Heard::default();
        let at = Duration::from_secs;
        assert_eq!(heard.newest(at(10)), None);
        let full = Condition::own(true, false, Duration::ZERO);
        heard.note(full.clone(), at(7));
        assert_eq!(heard.newest(at(10)), Some((full.clone(), at(3))));
        assert_eq!(heard.newest(at(3_600)), Some((full, at(3_593))));
        let well = Condition::own(false, false, Duration::ZERO);
        heard.note(well.clone(), at(3_600));
        assert_eq!(heard.newest(at(3_600)), Some((well, Duration::ZERO)));
    }

    #[test]
    fn what_is_no_version_is_not_shown_as_one() {
        let long = "9".repeat(VERSION_BYTES_MAX + 1);
        for wrong in ["0.2.0 <b>", "\u{e9}", long.as_str()] {
            let mut metadata = metadata_of(&Condition::own(false, false, Duration::ZERO));
            let bytes = MetadataValue::try_from(wrong.as_bytes()).unwrap();
            metadata.insert(VERSION, bytes);
            let read = Condition::announced(&metadata).unwrap();
            assert_eq!(&*read.version, "", "{wrong:?}");
        }
        let longest = "9".repeat(VERSION_BYTES_MAX);
        assert!(is_version(&longest) && is_version("1.0.0-rc.1+a"));
    }
}
