//! The span that the code of a thread works for.
//!
//! It is set while a call's code is polled, so that no function on the way to the log has to hand it
//! on. A task that goes on elsewhere has none.

use std::cell::RefCell;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;

use super::{OpenSpan, SpanValue};

thread_local! {
    static CURRENT: RefCell<Option<Arc<OpenSpan>>> = const { RefCell::new(None) };
}

/// Until it is dropped, its span is the current one. It stays on its thread.
#[must_use = "the span is current only while this lives"]
pub struct Entered {
    before: Option<Arc<OpenSpan>>,
    _of_this_thread: PhantomData<*const ()>,
}

pub(super) fn enter(span: Arc<OpenSpan>) -> Entered {
    Entered {
        before: CURRENT.with(|current| current.replace(Some(span))),
        _of_this_thread: PhantomData,
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.before.take();
        CURRENT.with(|current| current.replace(before));
    }
}

/// The span that this code works for, if its call is recorded.
pub(crate) fn current() -> Option<Arc<OpenSpan>> {
    CURRENT.with(|current| current.borrow().clone())
}

/// Adds to the current span what is known of its call, if that is recorded; `value` is asked only then.
pub fn note<V: Into<SpanValue>>(key: &'static str, value: impl FnOnce() -> V) {
    if let Some(span) = current() {
        span.note(key, value());
    }
}

/// The same work for the span that is current now, on whichever task it goes on.
pub fn carried<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let span = current();
    async move {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let _of_this = span.clone().map(enter);
            work.as_mut().poll(cx)
        })
        .await
    }
}
