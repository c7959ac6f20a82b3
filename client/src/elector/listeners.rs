//! Which listeners a campaign notifies, and what they receive of a term that is over.

use std::fmt;

use ringfence_core::FencingToken;

use super::leading::Leading;
use super::shared::Leader;
use crate::lease::identity::DuplicateIdentity;
use crate::session::loss::Loss;

/// A term that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Stopped {
    /// The fencing token under which the term's work ran.
    pub token: FencingToken,
    /// Why it is over.
    pub cause: StopCause,
}

/// Why a term is over.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StopCause {
    /// The lease was lost; the work was dropped.
    Lost(Loss),
    /// The work is done.
    Done,
    /// The work failed, and says why.
    Failed(String),
    /// The work panicked, and said this.
    Panicked(String),
    /// The campaign was asked to give it up.
    Asked,
}

impl fmt::Display for StopCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(loss) => write!(f, "the lease was lost: {loss}"),
            Self::Done => f.write_str("the work is done"),
            Self::Failed(why) => write!(f, "the work failed: {why}"),
            Self::Panicked(why) => write!(f, "the work panicked: {why}"),
            Self::Asked => f.write_str("it was asked to give the lease up"),
        }
    }
}

pub(super) type Listener<T> = Option<Box<dyn FnMut(&T) + Send>>;

/// The listeners to notify.
#[derive(Default)]
pub(super) struct Listeners {
    pub(super) started: Listener<Leading>,
    pub(super) stopped: Listener<Stopped>,
    pub(super) new_leader: Listener<Leader>,
    pub(super) duplicate: Listener<DuplicateIdentity>,
}
