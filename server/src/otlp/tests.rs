//! What the tests of this module share.

use std::num::{NonZeroU64, NonZeroU128};
use std::time::Duration;

use ringfence_raft::{Span, SpanIds, SpanKind};

/// A span of a call that another process asked for, in a trace that began here.
pub(super) fn span(name: &'static str) -> Span {
    Span {
        ids: SpanIds {
            trace: NonZeroU128::MAX,
            span: NonZeroU64::MIN,
            parent: NonZeroU64::new(2),
            from_caller: false,
        },
        kind: SpanKind::Server,
        name: name.into(),
        begun: Duration::from_secs(3),
        ended: Duration::from_secs(4),
        attributes: Vec::new(),
        failed: false,
    }
}
