//! The spans that wait for the collector: as many as may, in number and in bytes. A span for which
//! there is no room is dropped, and counted; nothing waits.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_raft::{Span, SpanValue};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::limits::{SPAN_BATCH_MAX, SPAN_BATCH_WAIT, SPANS_QUEUED_BYTES_MAX, SPANS_QUEUED_MAX};

#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// Notified when there is a whole batch.
    full: Notify,
}

#[derive(Default)]
struct Waiting {
    spans: VecDeque<Span>,
    bytes: usize,
    /// Those in traces that callers began: half of all, so that they displace none of the node's own.
    of_callers: usize,
    of_callers_bytes: usize,
}

/// There is no room.
pub(super) struct Full;

impl Queue {
    pub(super) fn push(&self, span: Span) -> Result<(), Full> {
        let bytes = memory(&span);
        let mut waiting = self.lock();
        if waiting.spans.len() >= SPANS_QUEUED_MAX || waiting.bytes + bytes > SPANS_QUEUED_BYTES_MAX
        {
            return Err(Full);
        }
        if span.ids.from_caller {
            if waiting.of_callers >= SPANS_QUEUED_MAX / 2
                || waiting.of_callers_bytes + bytes > SPANS_QUEUED_BYTES_MAX / 2
            {
                return Err(Full);
            }
            waiting.of_callers += 1;
            waiting.of_callers_bytes += bytes;
        }
        waiting.bytes += bytes;
        waiting.spans.push_back(span);
        if waiting.spans.len() >= SPAN_BATCH_MAX {
            self.full.notify_one();
        }
        Ok(())
    }

    /// The next batch: when it is whole, or what there is after a while.
    pub(super) async fn batch(&self) -> Vec<Span> {
        loop {
            self.ripe(SPAN_BATCH_WAIT).await;
            let batch = self.take();
            if !batch.is_empty() {
                return batch;
            }
        }
    }

    async fn ripe(&self, within: Duration) {
        timeout(within, self.full.notified()).await.ok();
    }

    /// What there is, at most a batch.
    pub(super) fn take(&self) -> Vec<Span> {
        let mut waiting = self.lock();
        let some = waiting.spans.len().min(SPAN_BATCH_MAX);
        let batch: Vec<Span> = waiting.spans.drain(..some).collect();
        waiting.bytes -= batch.iter().map(memory).sum::<usize>();
        let of_callers = || batch.iter().filter(|span| span.ids.from_caller);
        waiting.of_callers -= of_callers().count();
        waiting.of_callers_bytes -= of_callers().map(memory).sum::<usize>();
        if waiting.spans.len() >= SPAN_BATCH_MAX {
            self.full.notify_one();
        }
        batch
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it holds the lock, so that what waits is whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a span takes in memory, about.
fn memory(span: &Span) -> usize {
    let texts = span.attributes.iter().map(|(_, value)| match value {
        SpanValue::Text(text) => text.len(),
        SpanValue::Number(_) => 0,
    });
    size_of::<Span>()
        + span.name.len()
        + span.attributes.capacity() * size_of::<(&str, SpanValue)>()
        + texts.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::super::tests::span;
    use super::*;

    #[test]
    fn it_is_limited_in_number_and_its_room_comes_back() {
        let queue = Queue::default();
        let taken = (0..SPANS_QUEUED_MAX + 5).filter(|_| queue.push(span("call")).is_ok());
        assert_eq!(taken.count(), SPANS_QUEUED_MAX);
        let mut seen = 0;
        loop {
            let batch = queue.take();
            if batch.is_empty() {
                break;
            }
            assert!(batch.len() <= SPAN_BATCH_MAX);
            seen += batch.len();
        }
        assert_eq!(seen, SPANS_QUEUED_MAX);
        assert_eq!(queue.lock().bytes, 0);
        assert!(queue.push(span("call")).is_ok());
    }

    #[test]
    fn spans_of_callers_take_half_of_it() {
        let queue = Queue::default();
        let of_caller = || {
            let mut span = span("call");
            span.ids.from_caller = true;
            span
        };
        let fill = || (0..SPANS_QUEUED_MAX).filter(|_| queue.push(of_caller()).is_ok());
        assert_eq!(fill().count(), SPANS_QUEUED_MAX / 2);
        assert!(queue.push(span("call")).is_ok());
        while !queue.take().is_empty() {}
        assert_eq!(fill().count(), SPANS_QUEUED_MAX / 2);
    }

    #[test]
    fn it_is_limited_in_bytes() {
        let queue = Queue::default();
        let large = || {
            let mut large = span("call");
            let text = "n".repeat(SPANS_QUEUED_BYTES_MAX / 10);
            large.attributes.push(("ringfence.lease.name", text.into()));
            large
        };
        let taken = (0..20).filter(|_| queue.push(large()).is_ok()).count();
        assert_eq!(taken, 9, "what a span itself takes is counted, too");
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_whole_or_waits_no_longer_than_it_may() {
        let queue = Queue::default();
        for _ in 0..SPAN_BATCH_MAX + 1 {
            queue.push(span("call")).ok().unwrap();
        }
        #[expect(clippy::disallowed_methods, reason = "time stands still in this test")]
        let begun = tokio::time::Instant::now();
        assert_eq!(queue.batch().await.len(), SPAN_BATCH_MAX);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(queue.batch().await.len(), 1);
        assert_eq!(begun.elapsed(), SPAN_BATCH_WAIT);
    }
}
