//! How a session stands, as its owner sees it.

use crate::clock::Moment;
use crate::session::loss::Loss;

/// How a session stands.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionState {
    /// Its keep-alives are acknowledged.
    Live,
    /// Half of its window has passed without an acknowledgement: time to prepare for the loss.
    Jeopardy {
        /// When it will be lost, unless a keep-alive is acknowledged before.
        valid_until: Moment,
    },
    /// It is over, for ever.
    Lost {
        /// The first cause; later ones do not replace it.
        why: Loss,
    },
}
