//! What the work of a leader gets into its hands.

use std::ops::Deref;

use tokio::sync::watch;

use crate::lease::term::Term;

/// One term of a leader, from its grant to its end: a [`Term`] with what its campaign adds. Cheap to
/// clone; it keeps nothing open, and once it was lost it stays lost: a later term has a `Leading` and
/// a token of its own.
#[derive(Clone)]
pub struct Leading {
    pub(super) term: Term,
    pub(super) shard: Option<u32>,
    pub(super) leaving: watch::Receiver<bool>,
}

impl Leading {
    /// Which shard this is a term of, if the campaign came from
    /// [`Elector::candidates`](super::Elector::candidates).
    #[must_use]
    pub fn shard(&self) -> Option<u32> {
        self.shard
    }

    /// Completes when the campaign was asked to give the lease up: time to come to a good end,
    /// within the campaign's [grace](super::Campaign::grace).
    pub fn leaving(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut leaving = self.leaving.clone();
        async move {
            // A sender that is gone means that the term is over, and no caller asked.
            if leaving.wait_for(|leaving| *leaving).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Deref for Leading {
    type Target = Term;

    fn deref(&self) -> &Term {
        &self.term
    }
}

impl std::fmt::Debug for Leading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Leading({}#{})", self.name(), self.token())
    }
}
