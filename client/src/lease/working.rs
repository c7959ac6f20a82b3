//! Work under a lease that does not end at once when the lease is lost.

use std::fmt;

use crate::lease::term::Term;

/// Says that something works under a grant that takes time to end: another process, a request on its
/// way. See [`Term::working`].
///
/// Dropping it says that the work has ended.
#[must_use = "dropped at once it says that the work has ended"]
pub struct Working {
    term: Term,
}

impl Term {
    /// For work that takes time to end when the lease is lost, as another process does: as long as the
    /// returned value lives, the cluster does not learn that the loss of a revoked grant is known
    /// here. The next holder is granted the lease when the last of these values is dropped, and at
    /// the latest when this session's window has passed (`revoke --now` waits for nothing). Work
    /// must have stopped by [`valid_until`](Self::valid_until) all the same.
    pub fn working(&self) -> Working {
        Working::new(self.clone())
    }
}

impl Working {
    pub(crate) fn new(term: Term) -> Self {
        term.session.work_begins(term.grant.token);
        Self { term }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.term.session.work_ended(self.term.grant.token);
    }
}

impl fmt::Debug for Working {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Working")
            .field(&self.term.grant.token)
            .finish()
    }
}
