//! A guard of a store that can hang, fail and be restored.

use std::sync::{Arc, Mutex};

use ringfence_client::{
    AcquireError, Fence, FencingToken, HeldLease, Refused, Seal, SealAnswer, Sealable, Sealing,
    Unsealed,
};
use tokio::sync::watch;

/// See the module. Clones are the same guard.
#[derive(Clone)]
pub(crate) struct FakeGuard {
    label: &'static str,
    shared: Arc<Shared>,
}

struct Shared {
    mark: Mutex<u64>,
    /// The tokens of the advances that came, in order.
    asked: Mutex<Vec<u64>>,
    /// Whether advances hang before they reach the store.
    hangs: watch::Sender<bool>,
    /// What is answered in the place of the truth.
    answers: Mutex<Option<SealAnswer>>,
}

impl FakeGuard {
    pub(crate) fn new(label: &'static str) -> Self {
        Self {
            label,
            shared: Arc::new(Shared {
                mark: Mutex::default(),
                asked: Mutex::default(),
                hangs: watch::Sender::new(false),
                answers: Mutex::default(),
            }),
        }
    }

    /// One that hangs until [`let_go`](Self::let_go).
    pub(crate) fn hanging(label: &'static str) -> Self {
        let guard = Self::new(label);
        guard.shared.hangs.send_replace(true);
        guard
    }

    /// One that answers so, whatever it has done.
    pub(crate) fn answering(label: &'static str, answer: SealAnswer) -> Self {
        let guard = Self::new(label);
        guard.answer(Some(answer));
        guard
    }

    pub(crate) fn answer(&self, answer: Option<SealAnswer>) {
        *self.shared.answers.lock().unwrap() = answer;
    }

    /// What hangs arrives now, and nothing hangs any more.
    pub(crate) fn let_go(&self) {
        self.shared.hangs.send_replace(false);
    }

    pub(crate) fn mark(&self) -> u64 {
        *self.shared.mark.lock().unwrap()
    }

    /// The store is set back to an older copy.
    pub(crate) fn restore(&self, mark: u64) {
        *self.shared.mark.lock().unwrap() = mark;
    }

    /// The tokens of the advances that came, in order.
    pub(crate) fn asked(&self) -> Vec<u64> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// A guarded write, or an advance.
    pub(crate) fn admit(&self, fence: &Fence) -> Result<(), Refused> {
        let mut mark = self.shared.mark.lock().unwrap();
        match FencingToken::new(*mark).filter(|mark| *mark > fence.token) {
            Some(mark) => Err(fence.overtaken_by(mark)),
            None => {
                *mark = fence.token.get();
                Ok(())
            }
        }
    }
}

impl Sealable for FakeGuard {
    fn label(&self) -> &str {
        self.label
    }

    fn seal<'a>(&'a self, fence: &'a Fence) -> Sealing<'a> {
        let (guard, fence) = (self.clone(), fence.clone());
        guard.shared.asked.lock().unwrap().push(fence.token.get());
        // On its own: what was sent arrives, whatever becomes of the sender.
        let sent = tokio::spawn(async move {
            let mut hangs = guard.shared.hangs.subscribe();
            hangs.wait_for(|hangs| !hangs).await.unwrap();
            let admitted = SealAnswer::from(guard.admit(&fence));
            let answer = guard.shared.answers.lock().unwrap().clone();
            answer.unwrap_or(admitted)
        });
        Box::pin(async move { sent.await.unwrap() })
    }
}

/// A seal at these guards.
pub(crate) fn at<const N: usize>(guards: [&FakeGuard; N]) -> Seal {
    Seal::at_all(guards.map(|guard| Arc::new(guard.clone()) as Arc<dyn Sealable>))
}

/// The answer of a store that fails.
pub(crate) fn failing(why: &str) -> SealAnswer {
    SealAnswer::Failed { why: why.into() }
}

/// The guards for which a lease was given back.
pub(crate) fn unsealed(result: Result<HeldLease, AcquireError>) -> Vec<(String, Unsealed)> {
    match result {
        Err(AcquireError::Unsealed { guards }) => guards
            .into_iter()
            .map(|guard| (guard.label, guard.why))
            .collect(),
        other => panic!("{other:?}"),
    }
}
