//! Which calls are recorded, and how many spans at most.

use std::num::{NonZeroU64, NonZeroU128};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::Rng;
use ringfence_proto::TraceParent;
use ringfence_raft::{Sink, Span, SpanIds, since_boot};

use super::figures::{Dropped, Figures};
use super::queue::Queue;
use crate::config::Sampler;
use crate::limits::SPANS_PER_SECOND_MAX;

/// Decides, and hands what has ended to the queue.
pub(super) struct Tracer {
    sampler: Sampler,
    /// Of traces that this node begins.
    own: Rate,
    /// Of traces that callers began: they take nothing from those of the node.
    of_callers: Rate,
    queue: Arc<Queue>,
    figures: Figures,
}

impl Tracer {
    pub(super) fn new(sampler: Sampler, queue: Arc<Queue>, figures: Figures) -> Self {
        Self {
            sampler,
            own: Rate::default(),
            of_callers: Rate::default(),
            queue,
            figures,
        }
    }

    fn rate(&self, from_caller: bool) -> &Rate {
        match from_caller {
            true => &self.of_callers,
            false => &self.own,
        }
    }

    /// A number for one more span, if one more may be recorded.
    fn number(&self, from_caller: bool) -> Option<NonZeroU64> {
        if !self.rate(from_caller).take(since_boot()) {
            self.figures.dropped(Dropped::Rate, 1);
            return None;
        }
        Some(rand::rng().random())
    }
}

impl Sink for Tracer {
    fn serve(&self, parent: Option<TraceParent>) -> Option<SpanIds> {
        let parent_counts = self.sampler.heeds_callers;
        let trace = match parent {
            Some(parent) if parent_counts && !parent.sampled => return None,
            Some(parent) if parent_counts => parent.trace,
            Some(parent) => self
                .sampler
                .ratio
                .takes(parent.trace)
                .then_some(parent.trace)?,
            None => {
                // Half of the number decides, so that most calls need no more than that.
                let mut random = rand::rng();
                let low: u64 = random.random();
                if !self.sampler.ratio.takes_low(low) {
                    return None;
                }
                let high: NonZeroU64 = random.random();
                let trace = u128::from(high.get()) << 64 | u128::from(low);
                NonZeroU128::new(trace)?
            }
        };
        Some(SpanIds {
            trace,
            span: self.number(parent.is_some())?,
            parent: parent.map(|parent| parent.span),
            from_caller: parent.is_some(),
        })
    }

    fn child(&self, of: &SpanIds) -> Option<NonZeroU64> {
        self.number(of.from_caller)
    }

    fn ended(&self, span: Span) {
        if self.queue.push(span).is_err() {
            self.figures.dropped(Dropped::Queue, 1);
        }
    }

    fn forgotten(&self, ids: &SpanIds) {
        self.rate(ids.from_caller).give_back();
    }
}

/// At most [`SPANS_PER_SECOND_MAX`] in a second, and as many at once.
#[derive(Default)]
struct Rate(Mutex<Duration>);

/// What one takes of a second.
const EACH: Duration = Duration::from_nanos(1_000_000_000 / SPANS_PER_SECOND_MAX);

impl Rate {
    fn take(&self, now: Duration) -> bool {
        let mut used_until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = (*used_until).max(now) + EACH;
        let fits = next.saturating_sub(now) <= Duration::from_secs(1);
        if fits {
            *used_until = next;
        }
        fits
    }

    fn give_back(&self) {
        let mut used_until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *used_until = used_until.saturating_sub(EACH);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::span;
    use super::*;
    use crate::limits::SPANS_QUEUED_MAX;

    fn tracer(heeds_callers: bool, ratio: f64) -> (Tracer, Figures) {
        let figures = Figures::default();
        let sampler = Sampler {
            heeds_callers,
            ratio: Sampler::ratio_for_test(ratio),
        };
        (
            Tracer::new(sampler, Arc::default(), figures.clone()),
            figures,
        )
    }

    fn caller(sampled: bool) -> Option<TraceParent> {
        Some(TraceParent {
            trace: NonZeroU128::new(1 << 62).unwrap(),
            span: NonZeroU64::new(7).unwrap(),
            sampled,
        })
    }

    #[test]
    fn a_callers_flag_counts_unless_the_sampler_says_otherwise() {
        let (heeding, _) = tracer(true, 1.0);
        let ids = heeding.serve(caller(true)).unwrap();
        assert_eq!(ids.trace.get(), 1 << 62);
        assert_eq!(ids.parent, NonZeroU64::new(7));
        assert_eq!(heeding.serve(caller(false)), None);
        let (heeding, _) = tracer(true, 0.0);
        assert!(heeding.serve(caller(true)).is_some());
        assert_eq!(heeding.serve(None), None);

        let (never, _) = tracer(false, 0.0);
        assert_eq!(never.serve(caller(true)), None);
        let (always, _) = tracer(false, 1.0);
        assert!(always.serve(caller(false)).is_some());
    }

    #[test]
    fn a_share_of_the_traces_that_begin_here_is_told() {
        let (tracer, _) = tracer(true, 0.01);
        let taken = (0..40_000).filter(|_| tracer.serve(None).is_some());
        let taken = taken.count();
        assert!((250..550).contains(&taken), "{taken}");
    }

    #[test]
    fn callers_take_no_more_than_their_share_and_nothing_of_the_nodes() {
        let (tracer, figures) = tracer(true, 1.0);
        let asked = 3 * SPANS_PER_SECOND_MAX;
        let taken = (0..asked).filter(|_| tracer.serve(caller(true)).is_some());
        let taken = taken.count() as u64;
        assert!(
            (SPANS_PER_SECOND_MAX..2 * SPANS_PER_SECOND_MAX).contains(&taken),
            "{taken}"
        );
        assert_eq!(figures.count(Dropped::Rate), asked - taken);
        let own = tracer.serve(None).unwrap();
        assert!(tracer.child(&own).is_some());
    }

    #[test]
    fn a_rate_comes_back_with_time() {
        let rate = Rate::default();
        let at = Duration::from_secs(9);
        let taken = (0..2 * SPANS_PER_SECOND_MAX)
            .filter(|_| rate.take(at))
            .count() as u64;
        assert_eq!(taken, SPANS_PER_SECOND_MAX);
        assert!(!rate.take(at));
        assert!(rate.take(at + EACH));
        assert!(!rate.take(at + EACH));
        rate.give_back();
        assert!(rate.take(at + EACH));
        assert!(!rate.take(at + EACH));
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let (tracer, figures) = tracer(true, 1.0);
        for _ in 0..SPANS_QUEUED_MAX + 3 {
            tracer.ended(span("call"));
        }
        assert_eq!(figures.count(Dropped::Queue), 3);
    }
}
