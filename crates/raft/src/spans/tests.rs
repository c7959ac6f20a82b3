#![allow(clippy::unwrap_used)]

use std::sync::atomic::AtomicU64;

use super::*;

/// Takes every span, and numbers them.
#[derive(Default)]
struct All {
    last: AtomicU64,
    ended: Mutex<Vec<Span>>,
}

impl All {
    fn next(&self) -> NonZeroU64 {
        NonZeroU64::new(self.last.fetch_add(1, Ordering::Relaxed) + 1).unwrap()
    }
}

impl Sink for All {
    fn serve(&self, parent: Option<TraceParent>) -> Option<SpanIds> {
        let span = self.next();
        Some(SpanIds {
            trace: parent.map_or(NonZeroU128::MAX, |parent| parent.trace),
            span,
            parent: parent.map(|parent| parent.span),
            from_caller: parent.is_some(),
        })
    }

    fn child(&self, _: &SpanIds) -> Option<NonZeroU64> {
        Some(self.next())
    }

    fn ended(&self, span: Span) {
        self.ended.lock().push(span);
    }

    fn forgotten(&self, _: &SpanIds) {}
}

fn all() -> (Arc<All>, Spans) {
    let sink = Arc::new(All::default());
    (Arc::clone(&sink), Spans::to(sink))
}

#[test]
fn without_a_sink_nothing_is_asked_and_nothing_is_current() {
    let spans = Spans::default();
    let serving = spans.serve("call", || panic!("the caller's trace is not read"));
    assert!(serving.is_none());
    note("key", || -> u64 { panic!("the value is not asked for") });
    assert!(current::current().is_none());
}

#[test]
fn the_current_span_is_that_of_the_innermost_call_of_this_thread() {
    let (_, spans) = all();
    let (outer, inner) = (
        spans.serve("outer", || None).unwrap(),
        spans.serve("inner", || None).unwrap(),
    );
    let is_current = |serving: &Serving| {
        current::current().is_some_and(|current| Arc::ptr_eq(&current, serving.span()))
    };
    let of_outer = outer.enter();
    let of_inner = inner.enter();
    assert!(is_current(&inner));
    let elsewhere = std::thread::spawn(|| current::current().is_none());
    assert!(elsewhere.join().unwrap());
    drop(of_inner);
    assert!(is_current(&outer));
    drop(of_outer);
    assert!(current::current().is_none());
}

#[test]
fn a_span_ends_once_and_one_that_is_dropped_was_cancelled() {
    let (sink, spans) = all();
    spans.serve("done", || None).unwrap().end();
    spans.serve("failed", || None).unwrap().fail("UNAVAILABLE");
    drop(spans.serve("dropped", || None));
    let ended = sink.ended.lock();
    let failed: Vec<_> = ended
        .iter()
        .map(|span| (&*span.name, span.failed, span.attributes.clone()))
        .collect();
    let error = |word: &'static str| vec![("error.type", SpanValue::from(word))];
    assert_eq!(
        failed,
        [
            ("done", false, Vec::new()),
            ("failed", true, error("UNAVAILABLE")),
            ("dropped", true, error("cancelled")),
        ]
    );
    assert!(ended.iter().all(|span| span.begun <= span.ended));
}

#[test]
fn a_proposal_is_recorded_in_two_parts_that_meet_where_it_was_committed() {
    let (sink, spans) = all();
    let serving = spans.serve("call", || None).unwrap();
    assert_eq!(
        proposal::applying(),
        None,
        "nothing that is recorded is under way"
    );
    let proposed = proposal::Proposed::now(serving.span());
    let begun = proposal::applying();
    assert!(begun.is_some());
    let applied = Some(clock::since_boot());
    proposal::answering(begun, applied, || proposed.applied(7));
    assert_eq!(proposal::applying(), None);
    let ended = sink.ended.lock();
    let [commit, apply] = &ended[..] else {
        panic!("{ended:?}");
    };
    assert_eq!(
        (&*commit.name, &*apply.name),
        ("ringfence.commit", "ringfence.apply")
    );
    assert_eq!(Some(commit.ended), begun);
    assert_eq!((Some(apply.begun), Some(apply.ended)), (begun, applied));
    let of = Some(serving.span().ids.span);
    assert!(ended.iter().all(|span| span.ids.parent == of));
}

#[tokio::test]
async fn work_on_another_task_is_of_the_call_that_gave_it() {
    let (sink, spans) = all();
    let serving = spans.serve("call", || None).unwrap();
    let entered = serving.enter();
    let work = super::carried(async {
        tokio::task::yield_now().await;
        note("key", || 7);
    });
    drop(entered);
    tokio::spawn(work).await.unwrap();
    assert!(current::current().is_none());
    serving.end();
    let ended = sink.ended.lock();
    assert_eq!(ended[0].attributes, [("key", SpanValue::Number(7))]);
}

#[test]
fn a_span_that_is_taken_back_is_not_recorded() {
    let (sink, spans) = all();
    spans.serve("call", || None).unwrap().forget();
    assert!(sink.ended.lock().is_empty());
}
