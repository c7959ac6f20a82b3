//! What the work of a leader gets into its hands.

use std::time::Duration;

use ringfence_core::{FencingToken, LeaseName, SessionId};
use tokio::sync::watch;

use crate::clock::Moment;
use crate::heartbeat::Heartbeat;
use crate::loss::Loss;
use crate::range::Range;
use crate::view::View;

/// One term of a leader, from its grant to its end. Cheap to clone; it keeps nothing open, and
/// once it was lost it stays lost: a later term has a `Leading` and a token of its own.
#[derive(Clone)]
pub struct Leading {
    pub(super) view: View,
    pub(super) shard: Option<u32>,
    pub(super) leaving: watch::Receiver<bool>,
}

impl Leading {
    /// The lease's name.
    #[must_use]
    pub fn name(&self) -> &LeaseName {
        self.view.name()
    }

    /// The term's fencing token: greater than those of all terms before it.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.view.token()
    }

    /// What a guard wants to see: `name#token`.
    #[must_use]
    pub fn fence(&self) -> String {
        format!("{}#{}", self.name(), self.token())
    }

    /// The session that leads.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.view.session()
    }

    /// Which shard this is a term of, if the campaign came from
    /// [`Elector::candidates`](super::Elector::candidates).
    #[must_use]
    pub fn shard(&self) -> Option<u32> {
        self.shard
    }

    /// Whether this term goes on at this instant; asks the clock each time.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.loss().is_none()
    }

    /// Why the term is over, if it is.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.view.loss()
    }

    /// Completes when the term is over, also for tasks that the work has spawned elsewhere.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        self.view.lost()
    }

    /// When the term ends, unless it is renewed before.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.view.valid_until()
    }

    /// What is left until then; zero once it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.view.remaining()
    }

    /// The wall-clock range of this term; see [`Range`].
    #[must_use]
    pub fn range(&self) -> Option<Range> {
        self.view.range()
    }

    /// Runs `work` until it is done or the term is over, and then drops it: for tasks that the
    /// term's own work spawns.
    ///
    /// # Errors
    /// The [`Loss`], if it came first.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Loss> {
        self.view.run(work).await
    }

    /// Completes when the campaign was asked to give the lease up: time to come to a good end,
    /// within the campaign's [grace](super::Campaign::grace).
    pub fn leaving(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut leaving = self.leaving.clone();
        async move {
            // A sender that is gone means that the term is over, and nobody asked.
            if leaving.wait_for(|leaving| *leaving).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Says that a guard refused this term's token: the term is over.
    pub fn report_stale(&self) {
        self.view.report_stale();
    }

    /// Promises a sign of life at least every `limit`: a leader that is stuck is not renewed. The
    /// promise binds the elector's session, so all its campaigns.
    pub fn heartbeat(&self, limit: Duration) -> Heartbeat {
        Heartbeat::promise(self.view.liveness.clone(), limit)
    }
}

impl std::fmt::Debug for Leading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Leading({}#{})", self.name(), self.token())
    }
}
