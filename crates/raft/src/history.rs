//! Placeholder while the rest takes shape.
use crate::events::Position;
use futures_util::Stream;
use ringfence_core::Event;
use ringfence_proto::raft as pb;
use std::pin::Pin;
use tonic::Status;
/// How much history is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HistoryLimits {}
pub(crate) struct HistoryFeed {}
impl HistoryFeed {
    pub(crate) fn applied(&self, _index: u64, _events: &[(Position, Event)]) {}
    pub(crate) fn skipped_to(&self, _index: u64) {}
}
pub(crate) struct History {}
pub(crate) fn serve(
    _h: &History,
    _first: u64,
    _last: u64,
) -> Pin<Box<dyn Stream<Item = Result<pb::HistoryPart, Status>> + Send>> {
    Box::pin(futures_util::stream::empty())
}
impl History {
    pub(crate) fn open(
        _d: &std::path::Path,
        _l: HistoryLimits,
    ) -> (std::sync::Arc<Self>, HistoryFeed) {
        (std::sync::Arc::new(Self {}), HistoryFeed {})
    }
}
