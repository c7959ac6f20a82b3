//! What traces show of the calls that a node serves: their spans, as OpenTelemetry has them.
//!
//! ```text
//!   server ── a call arrives ──> Spans::serve ─ Serving ─ ended with the answer
//!                                                  │ current::enter, while its code runs
//!   Node::submit ── takes the current span along ──┘
//!     follower: a client span to the leader; its place travels with the command
//!     leader:   a server span for it; from proposal to commit; the applying
//! ```
//!
//! A [`Sink`] decides what is recorded, and takes the spans; without one nothing is recorded, no clock is read
//! and nothing is allocated. Spans decide nothing, and no span is part of an entry.

pub(crate) mod current;
pub(crate) mod proposal;

use std::borrow::Cow;
use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ringfence_proto::TraceParent;

use crate::platform::clock;

/// What takes the spans of a node, and decides which there are.
pub trait Sink: Send + Sync {
    /// The span of a call that begins, within its caller's trace if it names one; `None` if it is not to
    /// be recorded.
    fn serve(&self, parent: Option<TraceParent>) -> Option<SpanIds>;

    /// The number of a further span of the same trace; `None` if no more may be recorded now.
    fn child(&self, of: &SpanIds) -> Option<NonZeroU64>;

    /// Takes a span that has ended. It must not block.
    fn ended(&self, span: Span);

    /// A span that [`Sink::serve`] began is not recorded after all.
    fn forgotten(&self, ids: &SpanIds);
}

/// Where in its trace a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanIds {
    /// The trace.
    pub trace: NonZeroU128,
    /// The span.
    pub span: NonZeroU64,
    /// The span that it is a part of.
    pub parent: Option<NonZeroU64>,
    /// Whether the trace began elsewhere.
    pub from_caller: bool,
}

/// Which side of a call a span shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// The side that serves.
    Server,
    /// The side that asks.
    Client,
    /// Neither.
    Internal,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanValue {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(u64),
}

impl From<&'static str> for SpanValue {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for SpanValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<u64> for SpanValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it is.
    pub ids: SpanIds,
    /// Which side of a call it shows.
    pub kind: SpanKind,
    /// What was done.
    pub name: Cow<'static, str>,
    /// When it began, on [`crate::since_boot`].
    pub begun: Duration,
    /// When it ended, on the same clock.
    pub ended: Duration,
    /// What is known of it.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// Whether it failed, as `error.type` among its attributes says in a word.
    pub failed: bool,
}

/// Where a node's spans go; nowhere by default.
#[derive(Clone, Default)]
pub struct Spans(Option<Arc<dyn Sink>>);

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Spans"
        } else {
            "no Spans"
        })
    }
}

impl Spans {
    /// To this sink.
    #[must_use]
    pub fn to(sink: Arc<dyn Sink>) -> Self {
        Self(Some(sink))
    }

    /// Whether any are recorded.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Begins the span of a call that is served, if it is to be recorded. `caller` looks for its place in
    /// the caller's trace, which it is asked for only if spans are recorded at all.
    pub fn serve(
        &self,
        name: impl Into<Cow<'static, str>>,
        caller: impl FnOnce() -> Option<TraceParent>,
    ) -> Option<Serving> {
        let sink = self.0.as_ref()?;
        let ids = sink.serve(caller())?;
        let sink = Arc::clone(sink);
        Some(Serving::begin(sink, ids, SpanKind::Server, name.into()))
    }
}

/// A span that has begun. Parts of the call hold it to begin spans of their own in it.
pub struct OpenSpan {
    sink: Arc<dyn Sink>,
    ids: SpanIds,
    kind: SpanKind,
    name: Cow<'static, str>,
    begun: Duration,
    attributes: Mutex<Vec<(&'static str, SpanValue)>>,
    ended: AtomicBool,
}

impl fmt::Debug for OpenSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenSpan").field("ids", &self.ids).finish()
    }
}

impl OpenSpan {
    /// Adds what is known of it by now. Never a secret: what is added leaves the node.
    pub fn note(&self, key: &'static str, value: impl Into<SpanValue>) {
        self.attributes.lock().push((key, value.into()));
    }

    /// Begins a span within this one, if it may be recorded.
    pub(crate) fn child(&self, kind: SpanKind, name: &'static str) -> Option<Serving> {
        let ids = self.ids_of_child()?;
        Some(Serving::begin(
            Arc::clone(&self.sink),
            ids,
            kind,
            name.into(),
        ))
    }

    fn ids_of_child(&self) -> Option<SpanIds> {
        Some(SpanIds {
            span: self.sink.child(&self.ids)?,
            parent: Some(self.ids.span),
            ..self.ids
        })
    }

    /// Its place, as it is recorded to who is asked next.
    pub(crate) fn traceparent(&self) -> TraceParent {
        TraceParent {
            trace: self.ids.trace,
            span: self.ids.span,
            sampled: true,
        }
    }

    fn end(&self, error: Option<Cow<'static, str>>) {
        if self.ended.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut attributes = std::mem::take(&mut *self.attributes.lock());
        let failed = error.is_some();
        if let Some(error) = error {
            attributes.push(("error.type", SpanValue::Text(error)));
        }
        self.sink.ended(Span {
            ids: self.ids,
            kind: self.kind,
            name: self.name.clone(),
            begun: self.begun,
            ended: clock::since_boot(),
            attributes,
            failed,
        });
    }
}

/// The duty to end a span. One that is dropped was given up by its caller.
pub struct Serving(Arc<OpenSpan>);

impl Serving {
    fn begin(sink: Arc<dyn Sink>, ids: SpanIds, kind: SpanKind, name: Cow<'static, str>) -> Self {
        Self(Arc::new(OpenSpan {
            sink,
            ids,
            kind,
            name,
            begun: clock::since_boot(),
            attributes: Mutex::default(),
            ended: AtomicBool::new(false),
        }))
    }

    /// The span itself.
    #[must_use]
    pub fn span(&self) -> &Arc<OpenSpan> {
        &self.0
    }

    /// Makes it the span that the code of this thread works for, until the returned value is dropped.
    pub fn enter(&self) -> Entered {
        current::enter(Arc::clone(&self.0))
    }

    /// Ends it.
    pub fn end(self) {
        self.0.end(None);
    }

    /// Takes it back: the call was refused to a caller that has no right to it, so it takes nothing of
    /// what is recorded of others.
    pub fn forget(self) {
        if !self.0.ended.swap(true, Ordering::Relaxed) {
            self.0.sink.forgotten(&self.0.ids);
        }
    }

    /// Ends it with what failed, in a word of few: it becomes `error.type`.
    pub fn fail(self, error: impl Into<Cow<'static, str>>) {
        self.0.end(Some(error.into()));
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.end(Some("cancelled".into()));
    }
}

pub use current::{Entered, carried, note};

#[cfg(test)]
mod tests;
