//! What is left to do for a caller that has gone before it was answered.

use std::pin::Pin;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Work that begins when this is dropped, unless the caller was answered.
pub(crate) struct Abandoned(Option<Work>);

impl Abandoned {
    pub(crate) fn new(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Some(Box::pin(work)))
    }

    /// The caller has its answer, so nothing is left to do.
    pub(crate) fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            ringfence_raft::spawn(work);
        }
    }
}
