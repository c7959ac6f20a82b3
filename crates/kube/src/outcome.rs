//! What comes of a look at an object.

use std::sync::Arc;

use crate::decision::{Refusal, Why};
use crate::lease_object::Observed;
use crate::sync_error::SyncError;

#[derive(Debug)]
pub(crate) enum Outcome {
    /// There is no object, and none is needed.
    Nothing,
    /// It says what it should.
    Kept(Arc<Observed>),
    /// The write succeeded.
    Wrote {
        found: Arc<Observed>,
        written: Arc<Observed>,
        why: Why,
    },
    /// It is left alone.
    Refused(Refusal),
    /// It was not written, or that is unknown.
    Failed(SyncError),
}
