//! Watching leases: every grant and every end, in order, without gaps or duplicates.

use std::pin::Pin;
use std::task::{Context, Poll};

use ringfence_proto::refusal::Refusal;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::{self, Position, Reason, watch_event};
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::client::Client;
use crate::connection::MESSAGE_BYTES_MAX;
use crate::error::CallError;
use crate::streams::{Kind, Reader};

/// One thing that a [`Watch`] tells.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WatchItem {
    /// The present state follows: forget what was told before. Every watch without a position
    /// begins with it; what comes until the next [`Reached`](Self::Reached) is the state.
    Anew(Anew),
    /// Part of the present state: a lease that is held. What is not told is free.
    Present(v1::Lease),
    /// A lease was granted.
    Granted {
        /// The grant.
        grant: v1::Grant,
        /// Continues behind it.
        position: Option<Position>,
    },
    /// A grant has ended.
    Ended {
        /// Which one, and why.
        ended: v1::GrantEnded,
        /// Continues behind it.
        position: Option<Position>,
    },
    /// Everything up to here has been told. Comes at least every second.
    Reached(Position),
}

/// Why a watch begins with the present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Anew {
    /// It was started without a position.
    Start,
    /// A node failed before it had told the whole present state.
    Interrupted,
    /// The events behind the position are no longer kept.
    Compacted,
    /// The cluster is another one than that of the position: it was restored, for example.
    ClusterChanged,
}

/// Grants and ends of the leases whose names begin with a prefix: a stream that goes on at another
/// node when one fails. It ends with an error only if the cluster refuses it for good.
///
/// A reader that falls behind holds up nobody but itself, and is told [`Anew::Compacted`].
#[must_use = "a watch ends when it is dropped"]
pub struct Watch {
    reader: Reader<WatchItem>,
}

impl Client {
    /// Watches the leases whose names begin with `prefix` (all of them if it is empty), from the
    /// present state on.
    pub fn watch(&self, prefix: impl Into<String>) -> Watch {
        Watch::begin(self, prefix.into(), None)
    }

    /// Watches on behind a position that an earlier watch reached, also of another process.
    pub fn watch_from(&self, prefix: impl Into<String>, position: Position) -> Watch {
        Watch::begin(self, prefix.into(), Some(position))
    }
}

impl Watch {
    fn begin(client: &Client, prefix: String, told: Option<Position>) -> Self {
        let kind = Leases {
            prefix,
            anew: told.is_none().then_some(Anew::Start),
            presenting: false,
            told,
        };
        Self {
            reader: Reader::begin(client, kind),
        }
    }

    /// What is told next; `None` behind an error. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`CallError`] if the cluster refuses to be watched so; nothing follows.
    pub async fn next(&mut self) -> Option<Result<WatchItem, CallError>> {
        self.reader.next().await
    }
}

impl futures_core::Stream for Watch {
    type Item = Result<WatchItem, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.reader.poll_next(cx)
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// Where the watch stands.
struct Leases {
    prefix: String,
    /// Behind this everything is still to be told; `None`: from the present state on.
    told: Option<Position>,
    /// Why the next message begins a present state, if it does.
    anew: Option<Anew>,
    /// In the middle of a present state.
    presenting: bool,
}

impl Kind for Leases {
    type Message = v1::WatchResponse;
    type Item = WatchItem;

    async fn open(&self, channel: Channel) -> Result<Streaming<v1::WatchResponse>, Status> {
        let request = v1::WatchRequest {
            prefix: self.prefix.clone(),
            from: self.told.clone(),
        };
        let mut leases = LeasesClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        Ok(leases.watch(request).await?.into_inner())
    }

    fn take(&mut self, message: v1::WatchResponse) -> Vec<WatchItem> {
        let mut items = Vec::with_capacity(message.events.len() + 2);
        if message.compacted && !self.presenting {
            self.anew = Some(Anew::Compacted);
        }
        if let Some(anew) = self.anew.take() {
            self.presenting = true;
            // Whoever breaks off here has to begin again.
            self.told = None;
            items.push(WatchItem::Anew(anew));
        }
        for event in message.events {
            let position = event.position;
            if position.is_some() && !self.presenting {
                self.told.clone_from(&position);
            }
            match event.kind {
                Some(watch_event::Kind::Present(lease)) => items.push(WatchItem::Present(lease)),
                Some(watch_event::Kind::Granted(grant)) => {
                    items.push(WatchItem::Granted { grant, position });
                }
                Some(watch_event::Kind::Ended(ended)) => {
                    items.push(WatchItem::Ended { ended, position });
                }
                // Of a newer server: what it tells is behind the position all the same.
                None => {}
            }
        }
        if let Some(position) = message.position {
            self.presenting = false;
            self.told = Some(position.clone());
            items.push(WatchItem::Reached(position));
        }
        items
    }

    fn broke(&mut self) {
        if self.told.is_none() && self.anew.is_none() {
            self.anew = Some(Anew::Interrupted);
        }
        self.presenting = false;
    }

    fn refused(&mut self, refusal: &Refusal) -> bool {
        let anew = match refusal.reason {
            Reason::ClusterChanged => Anew::ClusterChanged,
            Reason::Compacted => Anew::Compacted,
            _ => return false,
        };
        // Without a position there is nothing to be refused so.
        let again = self.told.take().is_some();
        self.anew = Some(anew);
        self.presenting = false;
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(index: u64) -> Position {
        Position {
            cluster_id: vec![1; 16].into(),
            index,
            n: 0,
        }
    }

    fn kind(told: Option<Position>) -> Leases {
        Leases {
            prefix: String::new(),
            anew: told.is_none().then_some(Anew::Start),
            presenting: false,
            told,
        }
    }

    fn present() -> v1::WatchEvent {
        v1::WatchEvent {
            kind: Some(watch_event::Kind::Present(v1::Lease::default())),
            position: None,
        }
    }

    fn granted(index: u64) -> v1::WatchEvent {
        v1::WatchEvent {
            kind: Some(watch_event::Kind::Granted(v1::Grant::default())),
            position: Some(position(index)),
        }
    }

    #[test]
    fn a_watch_begins_with_the_present_and_goes_on_behind_what_it_told() {
        let mut kind = kind(None);
        let items = kind.take(v1::WatchResponse {
            events: vec![present()],
            position: Some(position(7)),
            compacted: false,
        });
        assert_eq!(items[0], WatchItem::Anew(Anew::Start));
        assert_eq!(items[2], WatchItem::Reached(position(7)));

        kind.take(v1::WatchResponse {
            events: vec![granted(9)],
            ..v1::WatchResponse::default()
        });
        kind.broke();

        assert_eq!(kind.told, Some(position(9)));
        assert_eq!(kind.anew, None);
    }

    #[test]
    fn a_present_state_that_broke_off_is_told_anew() {
        let mut kind = kind(None);
        let half = v1::WatchResponse {
            events: vec![present()],
            ..v1::WatchResponse::default()
        };
        assert_eq!(kind.take(half.clone()).len(), 2);

        kind.broke();

        assert_eq!(kind.told, None);
        assert_eq!(kind.take(half)[0], WatchItem::Anew(Anew::Interrupted));
    }

    #[test]
    fn compaction_is_told_once_as_an_item() {
        let mut kind = kind(Some(position(3)));
        let half = v1::WatchResponse {
            events: vec![present()],
            position: None,
            compacted: true,
        };
        let first = kind.take(half.clone());
        assert_eq!(first[0], WatchItem::Anew(Anew::Compacted));
        assert_eq!(kind.take(half).len(), 1);
        assert_eq!(kind.told, None, "the old position is of no use any more");
    }

    #[test]
    fn another_cluster_is_watched_from_its_present_state() {
        let mut kind = kind(Some(position(3)));
        let refusal = Refusal::new(Reason::ClusterChanged, "another cluster");
        assert!(kind.refused(&refusal));
        assert_eq!(kind.told, None);
        assert!(!kind.refused(&Refusal::new(Reason::InvalidArgument, "no prefix")));
    }
}
