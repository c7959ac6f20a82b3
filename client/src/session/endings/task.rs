//! The work on an ending: one task at a time, and others take over if it stops.

use std::sync::Arc;

use ringfence_core::{FencingToken, LeaseName};

use super::request;
use super::{EndTarget, Ending, Endings};
use crate::session::inner::SessionInner;
use crate::transport::error::CallError;

/// The work on an ending that was claimed. Dropping it leaves the ending to others.
pub(crate) struct EndingTask {
    endings: Arc<Endings>,
    ending: Arc<Ending>,
    settled: bool,
}

impl EndingTask {
    pub(super) fn on(endings: Arc<Endings>, ending: Arc<Ending>) -> Self {
        Self {
            endings,
            ending,
            settled: false,
        }
    }

    pub(super) fn over(mut self, settled: bool) {
        self.settled = settled;
    }

    /// Works on it in the background, as long as the session lives. What is passed to `keep` is
    /// dropped behind it: a session that is to stay open meanwhile.
    pub(crate) fn in_background(self, keep: impl Send + 'static) {
        let thread = self.ending.session.transport.thread.clone();
        drop(thread.spawn(async move {
            let settled = request::end(&self.ending, None).await;
            self.over(settled);
            drop(keep);
        }));
    }
}

impl Drop for EndingTask {
    fn drop(&mut self) {
        self.endings.finish(&self.ending, self.settled);
    }
}

impl Endings {
    /// Releases by name and token. The caller may believe in the grant: belief ends before
    /// the request leaves. It goes on in the background if it is not answered in time, or if the
    /// caller does not wait; `keep` is dropped behind it.
    pub(crate) async fn release(
        self: &Arc<Self>,
        session: &Arc<SessionInner>,
        name: &LeaseName,
        token: FencingToken,
        keep: impl Send + 'static,
    ) -> Result<(), CallError> {
        let work = self.begin(session, name, EndTarget::Grant(token));
        let ending = Arc::clone(&work.ending);
        // Set up before the first await: a caller that drops this future at any point hands the
        // release over to the background, under the claim that it already has.
        let releasing = ReleaseOnDrop(Some((work, keep)));
        let deadline = session.transport.deadline();
        let answer = request::release(&ending, token, Some(deadline)).await;
        if answer.as_ref().map_or_else(request::settles, |()| true) {
            releasing.over();
        }
        answer
    }
}

/// A release that goes on in the background when its caller stops waiting before it is answered.
struct ReleaseOnDrop<K: Send + 'static>(Option<(EndingTask, K)>);

impl<K: Send + 'static> ReleaseOnDrop<K> {
    fn over(mut self) {
        if let Some((work, keep)) = self.0.take() {
            work.over(true);
            drop(keep);
        }
    }
}

impl<K: Send + 'static> Drop for ReleaseOnDrop<K> {
    fn drop(&mut self) {
        if let Some((work, keep)) = self.0.take() {
            work.in_background(keep);
        }
    }
}
