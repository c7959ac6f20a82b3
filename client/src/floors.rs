//! Following floors: the greatest token ever granted per name, for guards that want to know it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use ringfence_core::{FencingToken, LeaseName};
use ringfence_proto::refusal::Refusal;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::{self, Position};
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::client::Client;
use crate::connection::MESSAGE_BYTES_MAX;
use crate::error::CallError;
use crate::streams::{Kind, Reader};

/// One thing that [`Floors`] tells.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FloorsItem {
    /// The cluster is another one than before, restored for example: what follows is its state.
    /// Its tokens are greater all the same.
    ClusterChanged,
    /// The greatest floor that was ever forgotten with an idle name, whatever its prefix.
    Forgotten(FencingToken),
    /// The floor of a name has risen to this token.
    Floor {
        /// The name.
        name: LeaseName,
        /// The greatest token ever granted for it.
        token: FencingToken,
    },
    /// Everything up to here has been told. Comes at least every second.
    Reached(Position),
}

/// Floors of the names that begin with a prefix, all of them first, then each rise, in order: a
/// stream that goes on at another node when one fails, and never tells a smaller token for a name
/// than before. It remembers one token per name.
#[must_use = "following ends when it is dropped"]
pub struct Floors {
    reader: Reader<FloorsItem>,
}

impl Client {
    /// Follows the floors of the names that begin with `prefix`; all of them if it is empty.
    pub fn watch_floors(&self, prefix: impl Into<String>) -> Floors {
        let kind = Rising {
            prefix: prefix.into(),
            ..Rising::default()
        };
        Floors {
            reader: Reader::begin(self, kind),
        }
    }
}

impl Floors {
    /// What is told next; `None` behind an error. Dropping the future loses nothing.
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

/// What was told.
#[derive(Default)]
struct Rising {
    prefix: String,
    cluster: Bytes,
    forgotten: u64,
    floors: BTreeMap<String, u64>,
    reached: (u64, u32),
}

impl Kind for Rising {
    type Message = v1::WatchFloorsResponse;
    type Item = FloorsItem;

    async fn open(&self, channel: Channel) -> Result<Streaming<v1::WatchFloorsResponse>, Status> {
        let request = v1::WatchFloorsRequest {
            prefix: self.prefix.clone(),
        };
        let mut leases = LeasesClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        Ok(leases.watch_floors(request).await?.into_inner())
    }

    fn take(&mut self, message: v1::WatchFloorsResponse) -> Vec<FloorsItem> {
        let mut items = Vec::new();
        if let Some(position) = &message.position
            && position.cluster_id != self.cluster
        {
            if !self.cluster.is_empty() {
                items.push(FloorsItem::ClusterChanged);
                self.reached = (0, 0);
            }
            self.cluster = position.cluster_id.clone();
        }
        if message.forgotten > self.forgotten {
            self.forgotten = message.forgotten;
            items.extend(FencingToken::new(message.forgotten).map(FloorsItem::Forgotten));
        }
        for floor in message.floors {
            let told = self.floors.get(&floor.name).copied().unwrap_or(0);
            // A stream that was opened again begins with all floors, on a node that may lag.
            if floor.token <= told {
                continue;
            }
            let name = LeaseName::parse(&floor.name).ok();
            if let (Some(name), Some(token)) = (name, FencingToken::new(floor.token)) {
                self.floors.insert(floor.name, floor.token);
                items.push(FloorsItem::Floor { name, token });
            }
        }
        if let Some(position) = message.position.filter(|_| message.complete) {
            let reached = (position.index, position.n);
            if reached >= self.reached {
                self.reached = reached;
                items.push(FloorsItem::Reached(position));
            }
        }
        items
    }

    fn broke(&mut self) {}

    fn refused(&mut self, _: &Refusal) -> bool {
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
            position: Some(Position {
                cluster_id: vec![1; 16].into(),
                index,
                n: 0,
            }),
            complete: true,
        }
    }

    #[test]
    fn a_floor_is_told_again_only_if_it_has_risen() {
        let mut kind = Rising::default();
        assert_eq!(kind.take(message(5, &[("a", 3), ("b", 4)])).len(), 3);

        // Opened again on a node that lags: nothing is told twice, nothing goes back.
        assert_eq!(kind.take(message(4, &[("a", 3), ("b", 2)])), []);

        assert_eq!(kind.take(message(6, &[("a", 3), ("b", 7)])).len(), 2);
    }

    #[test]
    fn another_cluster_is_told() {
        let mut kind = Rising::default();
        kind.take(message(5, &[("a", 3)]));
        let mut other = message(1, &[("a", 900)]);
        if let Some(position) = &mut other.position {
            position.cluster_id = vec![2; 16].into();
        }

        let items = kind.take(other);

        assert_eq!(items[0], FloorsItem::ClusterChanged);
        assert_eq!(items.len(), 3);
    }
}
