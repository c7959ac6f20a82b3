//! Following floors: the greatest token ever granted per name, for guards that want to know it.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ringfence_core::{ClusterId, FencingToken, FloorNews, LeaseName};
use ringfence_proto::DecodeError;
use ringfence_proto::v1;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::wire::floor_from_wire;
use tonic::{Status, Streaming};

use crate::transport::Transport;
use crate::transport::connection::MESSAGE_BYTES_MAX;
use crate::transport::credential::Channel;
use crate::transport::driver::KeepRunning;
use crate::transport::error::CallError;
use crate::transport::refusal::Refusal;
use crate::transport::streams::{Reader, StreamKind};
use crate::watch::position::Position;

/// How many names [`Floors`] remembers, the ones that were granted last: of these it tells no floor
/// twice.
pub const FLOOR_NAMES_MAX: usize = 100_000;

/// How many bytes these names may have, together.
pub const FLOOR_NAME_BYTES_MAX: usize = 16 << 20;

/// One thing that [`Floors`] tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FloorsItem {
    /// The cluster is another one than before, restored for example: what follows is its state.
    /// Its tokens are greater all the same.
    ClusterChanged,
    /// This cluster reports what follows. Comes first, and behind [`FloorsItem::ClusterChanged`]: what
    /// an older server tells before it names its cluster is held back, except the oldest
    /// floors beyond [`FLOOR_NAMES_MAX`].
    Cluster(ClusterId),
    /// The greatest floor that was ever forgotten with an idle name, whatever its prefix.
    Forgotten(FencingToken),
    /// The floor of a name has risen to this token.
    Floor {
        /// The lease whose floor has risen.
        name: LeaseName,
        /// The greatest token ever granted for it.
        token: FencingToken,
    },
    /// Everything up to here has been reported. Comes at least every second.
    Reached(Position),
}

impl From<FloorsItem> for FloorNews {
    fn from(item: FloorsItem) -> Self {
        match item {
            FloorsItem::ClusterChanged => Self::Anew,
            FloorsItem::Cluster(cluster) => Self::Cluster(cluster),
            FloorsItem::Forgotten(token) => Self::Forgotten(token),
            FloorsItem::Floor { name, token } => Self::Floor { name, token },
            FloorsItem::Reached(_) => Self::Reached,
        }
    }
}

/// Floors of the names that begin with a prefix, all of them first, then each rise, in order: a
/// stream that goes on at another node when one fails, and never tells a smaller token for a name
/// than before. It remembers one token per name, for the [`FLOOR_NAMES_MAX`] names that were granted
/// last, of [`FLOOR_NAME_BYTES_MAX`] bytes: of an older one it may tell a floor again, or behind a
/// change of nodes a smaller one.
#[must_use = "following ends when it is dropped"]
pub struct Floors {
    reader: Reader<FloorsItem>,
}

impl Floors {
    /// Follows the floors of the names that begin with `prefix`.
    pub(crate) fn begin(
        transport: &Arc<Transport>,
        keep_running: &Arc<KeepRunning>,
        prefix: String,
    ) -> Self {
        let kind = FloorStream {
            prefix,
            ..FloorStream::default()
        };
        Self {
            reader: Reader::begin(transport, keep_running, kind),
        }
    }

    /// What is reported next; `None` behind an error. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`CallError`] if the cluster refuses to be followed so; nothing follows.
    pub async fn next(&mut self) -> Option<Result<FloorsItem, CallError>> {
        self.reader.next().await
    }
}

impl futures_core::Stream for Floors {
    type Item = Result<FloorsItem, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.reader.poll_next(cx)
    }
}

impl std::fmt::Debug for Floors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Floors").finish_non_exhaustive()
    }
}

/// State of one stream of floors: what it has reported, so that a reconnect repeats nothing.
#[derive(Default)]
struct FloorStream {
    prefix: String,
    cluster: Option<ClusterId>,
    /// Whether the stream that is open has said which cluster it is of. Servers before rights say so
    /// only once the present state is complete.
    is_identified: bool,
    /// What the open stream reported before it said so.
    held: ReportedFloors,
    forgotten: u64,
    floors: ReportedFloors,
    reached: (u64, u32),
}

/// Floors of the names that were granted last, those that were reported for example.
#[derive(Default)]
struct ReportedFloors {
    by_name: BTreeMap<LeaseName, FencingToken>,
    /// The same, the oldest grant first.
    by_age: BTreeSet<(FencingToken, LeaseName)>,
    /// The bytes of these names.
    bytes: usize,
}

impl ReportedFloors {
    /// Notes a floor; says whether it has risen, as far as is remembered.
    fn raise(&mut self, name: &LeaseName, token: FencingToken) -> bool {
        let has_risen = self.note(name, token);
        while self.pop_excess().is_some() {}
        has_risen
    }

    /// The same beyond what may be remembered.
    fn note(&mut self, name: &LeaseName, token: FencingToken) -> bool {
        let before = self.by_name.get(name).copied();
        if before.is_some_and(|before| before >= token) {
            return false;
        }
        match before {
            Some(before) => drop(self.by_age.remove(&(before, name.clone()))),
            None => self.bytes += name.as_str().len(),
        }
        self.by_name.insert(name.clone(), token);
        self.by_age.insert((token, name.clone()));
        true
    }

    /// Forgets the oldest floor if there are more than may be remembered.
    fn pop_excess(&mut self) -> Option<(LeaseName, FencingToken)> {
        if self.by_name.len() <= FLOOR_NAMES_MAX && self.bytes <= FLOOR_NAME_BYTES_MAX {
            return None;
        }
        let (token, oldest) = self.by_age.pop_first()?;
        self.by_name.remove(&oldest);
        self.bytes -= oldest.as_str().len();
        Some((oldest, token))
    }
}

impl FloorStream {
    /// Keeps floors until it is known whose they are. What there is no room for is reported at once: a
    /// follower that is bound to clusters leaves it out, and all others lose nothing.
    fn hold(&mut self, floors: &[(LeaseName, FencingToken)], items: &mut Vec<FloorsItem>) {
        for (name, token) in floors {
            self.held.note(name, *token);
            while let Some((name, token)) = self.held.pop_excess() {
                if self.floors.raise(&name, token) {
                    items.push(FloorsItem::Floor { name, token });
                }
            }
        }
    }
}

impl StreamKind for FloorStream {
    type Message = v1::WatchFloorsResponse;
    type Item = FloorsItem;

    async fn open(&self, channel: Channel) -> Result<Streaming<v1::WatchFloorsResponse>, Status> {
        let request = v1::WatchFloorsRequest {
            prefix: self.prefix.clone(),
        };
        let mut leases = LeasesClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        Ok(leases.watch_floors(request).await?.into_inner())
    }

    fn decode(&mut self, message: v1::WatchFloorsResponse) -> Result<Vec<FloorsItem>, DecodeError> {
        let position = message.position.as_ref().map(Position::from_wire);
        let position = position.transpose()?;
        let floors: Vec<_> = message
            .floors
            .iter()
            .map(floor_from_wire)
            .collect::<Result<_, _>>()?;

        let mut items = Vec::new();
        self.is_identified |= position.is_some();
        if !self.is_identified {
            self.hold(&floors, &mut items);
            return Ok(items);
        }
        if let Some(position) = position
            && self.cluster != Some(position.cluster())
        {
            if self.cluster.is_some() {
                items.push(FloorsItem::ClusterChanged);
                self.reached = (0, 0);
            }
            self.cluster = Some(position.cluster());
            items.push(FloorsItem::Cluster(position.cluster()));
        }
        if message.forgotten > self.forgotten {
            self.forgotten = message.forgotten;
            items.extend(FencingToken::new(message.forgotten).map(FloorsItem::Forgotten));
        }
        let held = std::mem::take(&mut self.held).by_age.into_iter();
        let held = held.map(|(token, name)| (name, token));
        for (name, token) in held.chain(floors) {
            // A stream that was opened again begins with all floors, on a node that may lag.
            if self.floors.raise(&name, token) {
                items.push(FloorsItem::Floor { name, token });
            }
        }
        if let Some(position) = position.filter(|_| message.complete) {
            let reached = (position.index(), position.events().unwrap_or(u32::MAX));
            if reached >= self.reached {
                self.reached = reached;
                items.push(FloorsItem::Reached(position));
            }
        }
        Ok(items)
    }

    fn on_break(&mut self) {
        // The next node tells everything again, and may be one of another cluster.
        self.is_identified = false;
        self.held = ReportedFloors::default();
    }

    fn on_refusal(&mut self, _: &Refusal) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(index: u64, floors: &[(&str, u64)]) -> v1::WatchFloorsResponse {
        let floors = floors.iter().map(|&(name, token)| v1::Floor {
            name: name.into(),
            token,
        });
        v1::WatchFloorsResponse {
            forgotten: 0,
            floors: floors.collect(),
            position: Some(v1::Position {
                cluster_id: vec![1; 16].into(),
                index,
                n: 0,
                term: 0,
            }),
            complete: true,
        }
    }

    fn decode(kind: &mut FloorStream, message: v1::WatchFloorsResponse) -> Vec<FloorsItem> {
        kind.decode(message).expect("it makes sense")
    }

    #[test]
    fn a_floor_is_told_again_only_if_it_has_risen() {
        let mut kind = FloorStream::default();
        assert_eq!(
            decode(&mut kind, message(5, &[("a", 3), ("b", 4)])).len(),
            4
        );

        // Opened again on a node that lags: nothing is reported twice, nothing goes back.
        assert_eq!(decode(&mut kind, message(4, &[("a", 3), ("b", 2)])), []);

        assert_eq!(
            decode(&mut kind, message(6, &[("a", 3), ("b", 7)])).len(),
            2
        );
    }

    #[test]
    fn no_more_floors_are_remembered_than_allowed() {
        let mut told = ReportedFloors::default();
        let token = |value| FencingToken::new(value).expect("in range");
        let name = |at: u64| LeaseName::parse(&format!("{at:0>255}")).expect("a name");
        let count = u64::try_from(FLOOR_NAME_BYTES_MAX / 255).expect("fits") + 1_000;
        for at in 1..=count {
            assert!(told.raise(&name(at), token(at)));
        }
        assert!(told.bytes <= FLOOR_NAME_BYTES_MAX);
        assert_eq!(told.by_name.len(), told.by_age.len());
        assert!(!told.raise(&name(count), token(count)));
        // Forgotten: reported again.
        assert!(told.raise(&name(1), token(1)));
    }

    /// As servers before rights begin: no cluster is named before the state is complete.
    fn unnamed(floors: &[(&str, u64)]) -> v1::WatchFloorsResponse {
        v1::WatchFloorsResponse {
            position: None,
            complete: false,
            ..message(0, floors)
        }
    }

    fn floor(name: &str, token: u64) -> FloorsItem {
        FloorsItem::Floor {
            name: LeaseName::parse(name).expect("a name"),
            token: FencingToken::new(token).expect("in range"),
        }
    }

    #[test]
    fn floors_of_an_older_server_are_told_behind_the_cluster_that_they_are_of() {
        let mut kind = FloorStream::default();
        let first = unnamed(&[("a", 3)]);
        assert_eq!(decode(&mut kind, first), []);
        assert_eq!(decode(&mut kind, unnamed(&[("b", 4)])), []);

        let told = decode(&mut kind, message(5, &[("a", 6)]));

        let cluster = FloorsItem::Cluster(ClusterId::new([1; 16]));
        assert_eq!(told[..3], [cluster, floor("a", 3), floor("b", 4)]);
        assert_eq!(told[3], floor("a", 6));
        assert!(matches!(told[4..], [FloorsItem::Reached(_)]));
        // On the same stream it is known.
        assert_eq!(decode(&mut kind, unnamed(&[("b", 7)])), [floor("b", 7)]);
    }

    #[test]
    fn floors_behind_a_break_are_those_of_the_cluster_that_the_next_stream_names() {
        let mut kind = FloorStream::default();
        decode(&mut kind, message(5, &[("a", 3)]));
        kind.on_break();
        assert_eq!(decode(&mut kind, unnamed(&[("a", 900)])), []);
        // This stream breaks too, before it has said whose they are: nothing of it is reported.
        kind.on_break();
        assert_eq!(decode(&mut kind, unnamed(&[("a", 901)])), []);
        let mut other = message(1, &[]);
        if let Some(position) = &mut other.position {
            position.cluster_id = vec![2; 16].into();
        }

        let told = decode(&mut kind, other);

        let cluster = FloorsItem::Cluster(ClusterId::new([2; 16]));
        let expected = [FloorsItem::ClusterChanged, cluster, floor("a", 901)];
        assert_eq!(told[..3], expected);
    }

    #[test]
    fn no_more_floors_are_held_back_than_allowed_and_none_is_lost() {
        let mut kind = FloorStream::default();
        let name = |at: u64| format!("{at:0>255}");
        let count = u64::try_from(FLOOR_NAME_BYTES_MAX / 255).expect("fits") + 10;
        let mut told = Vec::new();
        for at in 1..=count {
            told.extend(decode(&mut kind, unnamed(&[(&name(at), at)])));
        }
        assert!(kind.held.bytes <= FLOOR_NAME_BYTES_MAX);
        assert!((9..=11).contains(&told.len()), "{}", told.len());
        told.extend(decode(&mut kind, message(5, &[])));
        let floors = told.iter();
        let floors = floors.filter(|item| matches!(item, FloorsItem::Floor { .. }));
        assert_eq!(floors.count() as u64, count);
    }

    #[test]
    fn another_cluster_is_told() {
        let mut kind = FloorStream::default();
        decode(&mut kind, message(5, &[("a", 3)]));
        let mut other = message(1, &[("a", 900)]);
        if let Some(position) = &mut other.position {
            position.cluster_id = vec![2; 16].into();
        }

        let items = decode(&mut kind, other);

        assert_eq!(items[0], FloorsItem::ClusterChanged);
        let told = ClusterId::new([2; 16]);
        assert_eq!(items[1], FloorsItem::Cluster(told));
        assert_eq!(items.len(), 4);
    }
}
