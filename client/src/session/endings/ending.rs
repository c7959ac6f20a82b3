//! One ending: what is to be ended at the cluster, and how far that is.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use ringfence_core::{FencingToken, LeaseName};
use tokio::sync::Notify;

use crate::session::inner::SessionInner;
use crate::sync::lock;

/// What is to be ended at the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EndTarget {
    /// A grant with this token, released by name and token.
    Grant(FencingToken),
    /// An acquire with this request number, whatever became of it.
    Request(u64),
}

/// How far an ending is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No task works on it.
    Idle,
    Running,
    /// The cluster has answered.
    Done,
}

/// Something to be ended.
pub(crate) struct Ending {
    pub(super) session: Arc<SessionInner>,
    pub(super) name: LeaseName,
    pub(super) target: EndTarget,
    stage: Mutex<Stage>,
    moved: Notify,
}

impl Ending {
    pub(super) fn new(
        session: &Arc<SessionInner>,
        name: &LeaseName,
        target: EndTarget,
        stage: Stage,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            name: name.clone(),
            target,
            stage: Mutex::new(stage),
            moved: Notify::new(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        *lock(&self.stage) == Stage::Done
    }

    /// Takes over the work, unless a task has.
    pub(super) fn claim(&self) -> bool {
        let mut stage = lock(&self.stage);
        // Check and set under one lock, or two tasks would release the same grant under two request
        // numbers.
        let idle = *stage == Stage::Idle;
        if idle {
            *stage = Stage::Running;
        }
        idle
    }

    /// No task works on it from now on.
    pub(super) fn stop(&self, stage: Stage) {
        *lock(&self.stage) = stage;
        self.moved.notify_waiters();
    }

    /// Waits until no task works on it.
    pub(super) async fn stopped(&self) {
        loop {
            let mut moved = pin!(self.moved.notified());
            // From here on no move is missed.
            moved.as_mut().enable();
            if *lock(&self.stage) != Stage::Running {
                return;
            }
            moved.await;
        }
    }
}
