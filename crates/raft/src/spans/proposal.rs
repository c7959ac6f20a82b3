//! The leader's part of a call: from the proposal to the commit, and the applying.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{OpenSpan, Span, SpanKind};
use crate::platform::clock;

/// Proposals of this process that are recorded and under way. While there are none, entries are applied
/// without a look at the clock.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// When the batch whose proposers are answered on this thread was begun to be applied, and when it
    /// was.
    static BATCH: Cell<Option<(Duration, Duration)>> = const { Cell::new(None) };
}

/// A proposal that is recorded.
pub(crate) struct Proposed {
    of: Arc<OpenSpan>,
    begun: Duration,
}

impl Proposed {
    /// It is about to be given to the log.
    pub(crate) fn now(of: &Arc<OpenSpan>) -> Self {
        UNDER_WAY.fetch_add(1, Ordering::Relaxed);
        Self {
            of: Arc::clone(of),
            begun: clock::since_boot(),
        }
    }

    /// It was committed and applied at `index`.
    pub(crate) fn applied(self, index: u64) {
        let Some((begun, ended)) = BATCH.get() else {
            return self.record("ringfence.commit", self.begun, clock::since_boot(), |_| ());
        };
        let note = |span: &mut Span| span.attributes.push(("ringfence.log.index", index.into()));
        self.record("ringfence.commit", self.begun, begun, note);
        self.record("ringfence.apply", begun, ended, note);
    }

    /// What became of it is not known, or it was not taken.
    pub(crate) fn failed(self, error: &'static str) {
        self.record(
            "ringfence.commit",
            self.begun,
            clock::since_boot(),
            |span| {
                span.failed = true;
                span.attributes.push(("error.type", error.into()));
            },
        );
    }

    fn record(
        &self,
        name: &'static str,
        begun: Duration,
        ended: Duration,
        note: impl FnOnce(&mut Span),
    ) {
        let Some(ids) = self.of.ids_of_child() else {
            return;
        };
        let mut span = Span {
            ids,
            kind: SpanKind::Internal,
            name: name.into(),
            begun,
            ended,
            attributes: Vec::new(),
            failed: false,
        };
        note(&mut span);
        self.of.sink.ended(span);
    }
}

impl Drop for Proposed {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A batch is about to be applied: the time, if a proposal that is recorded is under way.
pub(crate) fn applying() -> Option<Duration> {
    (UNDER_WAY.load(Ordering::Relaxed) > 0).then(clock::since_boot)
}

/// Answers the proposers of a batch that [`applying`] was asked for and that is applied now.
pub(crate) fn answering(begun: Option<Duration>, applied: Option<Duration>, answer: impl FnOnce()) {
    BATCH.set(begun.zip(applied));
    answer();
    BATCH.set(None);
}
