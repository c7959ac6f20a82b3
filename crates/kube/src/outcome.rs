//! What comes of a look at an object.

use std::sync::Arc;

use crate::decision::{Refusal, Why};
use crate::face::Found;
use crate::trouble::Trouble;

#[derive(Debug)]
pub(crate) enum Outcome {
    /// There is no object, and none is needed.
    Nothing,
    /// It says what it should.
    Kept(Arc<Found>),
    /// The write succeeded.
    Wrote {
        found: Arc<Found>,
        written: Arc<Found>,
        why: Why,
    },
    /// It is left alone.
    Refused(Refusal),
    /// It was not written, or that is unknown.
    Failed(Trouble),
}
