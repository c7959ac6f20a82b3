//! The caller's place in a trace, and how calls beside the stream carry it.

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};
use std::sync::Arc;

use tonic::metadata::{Ascii, MetadataValue};

/// A place in a trace, as the header `traceparent` of W3C's Trace Context names it; see
/// [`ClientBuilder::trace_context`](crate::ClientBuilder::trace_context).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent(ringfence_proto::TraceParent);

impl TraceParent {
    /// The trace, the span of it that asks, and whether the trace is recorded, as the context of a
    /// span of OpenTelemetry has them; `None` if an id is all zeros, which is none.
    #[must_use]
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], sampled: bool) -> Option<Self> {
        Some(Self(ringfence_proto::TraceParent {
            trace: NonZeroU128::new(u128::from_be_bytes(trace_id))?,
            span: NonZeroU64::new(u64::from_be_bytes(span_id))?,
            sampled,
        }))
    }

    /// What the text of a header `traceparent` says; `None` if it is of another format.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        ringfence_proto::TraceParent::parse(text).map(Self)
    }
}

/// The text of the header.
impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

tokio::task_local! {
    /// The place of the caller of the call that this task makes.
    static CALLER: Option<TraceParent>;
}

/// Asked for the caller's place whenever a request is sent for it.
pub(crate) type TraceContext = Arc<dyn Fn() -> Option<TraceParent> + Send + Sync>;

/// Makes a call for a caller in this place.
pub(crate) async fn within<T>(caller: Option<TraceParent>, call: impl Future<Output = T>) -> T {
    CALLER.scope(caller, call).await
}

/// What the header `traceparent` of the present call says; `None` for no header.
pub(crate) fn header() -> Option<MetadataValue<Ascii>> {
    let caller = CALLER.try_with(|caller| *caller).ok().flatten()?;
    caller.to_string().parse().ok()
}
