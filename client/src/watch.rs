//! Watching leases: every grant and every end, in order, without gaps or duplicates.
//!
//! `info` is what a watch tells of a lease, `position` the place from which it goes on, `floors` a
//! watch of the greatest tokens. `observer` shares few watches among the many leases that one client
//! follows. No session is known here.

pub(crate) mod floors;
pub(crate) mod info;
pub(crate) mod observer;
pub(crate) mod position;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ringfence_proto::DecodeError;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::{self, watch_event};
use tonic::{Status, Streaming};

use crate::transport::Transport;
use crate::transport::connection::MESSAGE_BYTES_MAX;
use crate::transport::credential::Channel;
use crate::transport::driver::KeepRunning;
use crate::transport::error::CallError;
use crate::transport::refusal::{Reason, Refusal};
use crate::transport::streams::{Reader, StreamKind};
use crate::watch::info::{EndInfo, GrantInfo, LeaseInfo};
use crate::watch::position::Position;

/// One thing that a [`Watch`] tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchItem {
    /// The present state follows: forget what was reported before. Every watch without a position
    /// begins with it; what comes until the next [`Reached`](Self::Reached) is the state.
    Restarted(RestartReason),
    /// Part of the present state: a lease that is held. What is not reported is free.
    Present(LeaseInfo),
    /// A lease was granted.
    Granted {
        /// The new grant, as the log entry recorded it.
        grant: GrantInfo,
        /// A watch that starts from this position continues with the next event.
        position: Position,
    },
    /// A grant has ended.
    Ended {
        /// Which one, and why.
        ended: EndInfo,
        /// A watch that starts from this position continues with the next event.
        position: Position,
    },
    /// Everything up to here has been reported. Comes at least every second.
    Reached(Position),
}

/// Why a watch begins with the present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestartReason {
    /// It was started without a position.
    Start,
    /// A node failed before it had reported the whole present state.
    Interrupted,
    /// The events behind the position are no longer kept.
    Compacted,
    /// The cluster is another one than that of the position: it was restored, for example.
    ClusterChanged,
    /// The cluster never had the position: its disks were rolled back to an older copy, for
    /// example. What was acknowledged behind that copy is lost.
    PositionUnknown,
}

/// Grants and ends of the leases whose names begin with a prefix: a stream that goes on at another
/// node when one fails. It ends with an error only if the cluster refuses it for good.
///
/// A reader that falls behind holds up only itself, and receives [`RestartReason::Compacted`].
#[must_use = "a watch ends when it is dropped"]
pub struct Watch {
    reader: Reader<WatchItem>,
}

impl Watch {
    /// Watches from the present state on, or behind a position.
    pub(crate) fn begin(
        transport: &Arc<Transport>,
        keep_running: &Arc<KeepRunning>,
        prefix: String,
        resume_from: Option<Position>,
    ) -> Self {
        let kind = LeaseStream {
            prefix,
            restart: resume_from.is_none().then_some(RestartReason::Start),
            in_state: false,
            resume_from,
        };
        Self {
            reader: Reader::begin(transport, keep_running, kind),
        }
    }

    /// What is reported next; `None` behind an error. Dropping the future loses nothing.
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
struct LeaseStream {
    prefix: String,
    /// Behind this everything is still to be reported; `None`: from the present state on.
    resume_from: Option<Position>,
    /// Why the next message begins a present state, if it does.
    restart: Option<RestartReason>,
    /// In the middle of a present state.
    in_state: bool,
}

impl StreamKind for LeaseStream {
    type Message = v1::WatchResponse;
    type Item = WatchItem;

    async fn open(&self, channel: Channel) -> Result<Streaming<v1::WatchResponse>, Status> {
        let request = v1::WatchRequest {
            prefix: self.prefix.clone(),
            from: self.resume_from.map(Position::to_wire),
        };
        let mut leases = LeasesClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        Ok(leases.watch(request).await?.into_inner())
    }

    fn decode(&mut self, message: v1::WatchResponse) -> Result<Vec<WatchItem>, DecodeError> {
        // All of it is read before any of it counts as reported.
        let events: Vec<WatchItem> = message
            .events
            .into_iter()
            .filter_map(|event| item(event).transpose())
            .collect::<Result<_, _>>()?;
        let reached = message.position.as_ref().map(Position::from_wire);
        let reached = reached.transpose()?;

        let mut items = Vec::with_capacity(events.len() + 2);
        if message.compacted && !self.in_state {
            self.restart = Some(RestartReason::Compacted);
        }
        if let Some(restart) = self.restart.take() {
            self.in_state = true;
            // A reader that breaks off here has to begin again.
            self.resume_from = None;
            items.push(WatchItem::Restarted(restart));
        }
        for event in events {
            if let WatchItem::Granted { position, .. } | WatchItem::Ended { position, .. } = &event
                && !self.in_state
            {
                self.resume_from = Some(*position);
            }
            items.push(event);
        }
        if let Some(position) = reached {
            self.in_state = false;
            self.resume_from = Some(position);
            items.push(WatchItem::Reached(position));
        }
        Ok(items)
    }

    fn on_break(&mut self) {
        if self.resume_from.is_none() && self.restart.is_none() {
            self.restart = Some(RestartReason::Interrupted);
        }
        self.in_state = false;
    }

    fn on_refusal(&mut self, refusal: &Refusal) -> bool {
        let restart = match refusal.reason {
            Reason::ClusterChanged => RestartReason::ClusterChanged,
            Reason::Compacted => RestartReason::Compacted,
            Reason::PositionUnknown => RestartReason::PositionUnknown,
            _ => return false,
        };
        // Without a position there is nothing to be refused so.
        let again = self.resume_from.take().is_some();
        self.restart = Some(restart);
        self.in_state = false;
        again
    }
}

/// What an event says; `None` if it is one of a newer server's: what it tells is behind its position
/// all the same.
fn item(event: v1::WatchEvent) -> Result<Option<WatchItem>, DecodeError> {
    let position = || match &event.position {
        Some(position) => Position::from_wire(position),
        None => Err(DecodeError::Missing {
            field: "event.position",
        }),
    };
    Ok(Some(match event.kind {
        None => return Ok(None),
        Some(watch_event::Kind::Present(lease)) => WatchItem::Present(LeaseInfo::from_wire(lease)?),
        Some(watch_event::Kind::Granted(grant)) => WatchItem::Granted {
            grant: GrantInfo::from_wire(grant)?,
            position: position()?,
        },
        Some(watch_event::Kind::Ended(ended)) => WatchItem::Ended {
            ended: EndInfo::from_wire(ended)?,
            position: position()?,
        },
    }))
}

#[cfg(test)]
mod tests {
    use ringfence_proto::Refusal as Wire;

    use super::*;

    fn wire_position(index: u64) -> v1::Position {
        v1::Position {
            cluster_id: vec![1; 16].into(),
            index,
            n: 0,
            term: 0,
        }
    }

    fn position(index: u64) -> Position {
        Position::from_wire(&wire_position(index)).expect("it makes sense")
    }

    fn on_refusal(kind: &mut LeaseStream, refusal: Wire) -> bool {
        kind.on_refusal(&Refusal::of(refusal).expect("its reason is known"))
    }

    fn decode(kind: &mut LeaseStream, message: v1::WatchResponse) -> Vec<WatchItem> {
        kind.decode(message).expect("it makes sense")
    }

    fn kind(resume_from: Option<Position>) -> LeaseStream {
        LeaseStream {
            prefix: String::new(),
            restart: resume_from.is_none().then_some(RestartReason::Start),
            in_state: false,
            resume_from,
        }
    }

    fn present() -> v1::WatchEvent {
        v1::WatchEvent {
            kind: Some(watch_event::Kind::Present(v1::Lease {
                name: "db".into(),
                ..v1::Lease::default()
            })),
            position: None,
        }
    }

    fn grant() -> v1::Grant {
        v1::Grant {
            name: "db".into(),
            token: 7,
            session: 3,
            ..v1::Grant::default()
        }
    }

    fn granted(index: u64) -> v1::WatchEvent {
        v1::WatchEvent {
            kind: Some(watch_event::Kind::Granted(grant())),
            position: Some(wire_position(index)),
        }
    }

    #[test]
    fn a_watch_begins_with_the_present_and_goes_on_behind_what_it_told() {
        let mut kind = kind(None);
        let items = decode(
            &mut kind,
            v1::WatchResponse {
                events: vec![present()],
                position: Some(wire_position(7)),
                compacted: false,
            },
        );
        assert_eq!(items[0], WatchItem::Restarted(RestartReason::Start));
        assert_eq!(items[2], WatchItem::Reached(position(7)));

        decode(
            &mut kind,
            v1::WatchResponse {
                events: vec![granted(9)],
                ..v1::WatchResponse::default()
            },
        );
        kind.on_break();

        assert_eq!(kind.resume_from, Some(position(9)));
        assert_eq!(kind.restart, None);
    }

    #[test]
    fn a_present_state_that_broke_off_is_told_anew() {
        let mut kind = kind(None);
        let half = v1::WatchResponse {
            events: vec![present()],
            ..v1::WatchResponse::default()
        };
        assert_eq!(decode(&mut kind, half.clone()).len(), 2);

        kind.on_break();

        assert_eq!(kind.resume_from, None);
        assert_eq!(
            decode(&mut kind, half)[0],
            WatchItem::Restarted(RestartReason::Interrupted)
        );
    }

    #[test]
    fn compaction_is_told_once_as_an_item() {
        let mut kind = kind(Some(position(3)));
        let half = v1::WatchResponse {
            events: vec![present()],
            position: None,
            compacted: true,
        };
        let first = decode(&mut kind, half.clone());
        assert_eq!(first[0], WatchItem::Restarted(RestartReason::Compacted));
        assert_eq!(decode(&mut kind, half).len(), 1);
        assert_eq!(
            kind.resume_from, None,
            "the old position is of no use any more"
        );
    }

    #[test]
    fn a_rolled_back_cluster_is_watched_from_its_present_state() {
        let mut kind = kind(Some(position(3)));
        assert!(on_refusal(&mut kind, Wire::position_unknown(3, 1)));
        assert_eq!(kind.resume_from, None);
        let first = decode(&mut kind, v1::WatchResponse::default());
        assert_eq!(
            first[0],
            WatchItem::Restarted(RestartReason::PositionUnknown)
        );
    }

    #[test]
    fn another_cluster_is_watched_from_its_present_state() {
        let mut kind = kind(Some(position(3)));
        let refusal = Wire::new(v1::Reason::ClusterChanged, "another cluster");
        assert!(on_refusal(&mut kind, refusal));
        assert_eq!(kind.resume_from, None);
        let refusal = Wire::new(v1::Reason::InvalidArgument, "no prefix");
        assert!(!on_refusal(&mut kind, refusal));
    }

    #[test]
    fn a_message_that_makes_no_sense_tells_nothing_and_skips_nothing() {
        let mut kind = kind(Some(position(3)));
        let mut nameless = granted(5);
        nameless.kind = Some(watch_event::Kind::Granted(v1::Grant::default()));
        let message = v1::WatchResponse {
            events: vec![granted(4), nameless],
            position: Some(wire_position(5)),
            compacted: false,
        };
        let fault = kind.decode(message).expect_err("a grant of no lease");
        assert!(fault.to_string().contains("name"), "{fault}");
        assert_eq!(kind.resume_from, Some(position(3)));
    }
}
