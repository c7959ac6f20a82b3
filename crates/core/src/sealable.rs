//! Guards that a new holder seals before its lease is reported held.

use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use core::error::Error;
use core::fmt;
use core::pin::Pin;

use crate::{EndsBelief, Fence, Refused};

/// A guard whose mark a new holder raises before it believes in its lease.
///
/// The client crate calls [`seal`](Self::seal) on every guard that an acquire names, on all of
/// them at once, and reports the lease held when all have answered. The modules of the guards have
/// one each for their store; [`sealable_fn`] makes one of a closure, for a pool of connections or
/// a store without a module.
pub trait Sealable: Send + Sync {
    /// What errors and logs call the guard: the store, and what is guarded there.
    fn label(&self) -> &str;

    /// Raises the mark to the fence's token, in a transaction of its own, and answers when that is
    /// as safe as it gets.
    ///
    /// It must not block its thread. It may be dropped before it is done, and its effect may still
    /// come then: a mark raised late is at most the lease's newest token, so that harms no holder.
    fn seal<'a>(&'a self, fence: &'a Fence) -> Sealing<'a>;
}

/// The future of [`Sealable::seal`].
pub type Sealing<'a> = Pin<Box<dyn Future<Output = SealAnswer> + Send + 'a>>;

/// What came of raising the mark of a guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealAnswer {
    /// The mark is at least the fence's token, and a failover of the store does not lower it.
    Durable,
    /// The mark may be raised, but the store can lose it: to an asynchronous replica, or with its
    /// power. It counts as unsealed.
    NotDurable {
        /// How the store can lose it, and what to change.
        why: String,
    },
    /// The guard refused the fence. [`Refused::StaleToken`] ends the grant.
    Refused(Refused),
    /// The store did not answer, or with an error; the mark may be raised or not.
    Failed {
        /// The error.
        why: String,
    },
}

impl<T, E: EndsBelief + Error> From<Result<T, E>> for SealAnswer {
    /// The answer of a store that loses nothing it has acknowledged.
    fn from(advanced: Result<T, E>) -> Self {
        let Err(error) = advanced else {
            return Self::Durable;
        };
        match error.refused() {
            Some(refused) => Self::Refused(refused.clone()),
            None => Self::Failed { why: chain(&error) },
        }
    }
}

/// An error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        // Some errors show their cause themselves.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// A [`Sealable`] of a closure; see [`sealable_fn`].
#[derive(Clone)]
pub struct SealableFn<F> {
    label: String,
    advance: F,
}

/// Makes a [`Sealable`] of a closure that raises the mark, for stores that are reached through a
/// pool of connections, or that the guards have no module for.
///
/// The closure answers with a [`SealAnswer`], or with the result of the guard's `advance` where
/// the store loses nothing that it has acknowledged.
///
/// ```
/// use ringfence_core::{Fence, Refused, sealable_fn};
///
/// # struct Pool;
/// # impl Pool { async fn advance(&self, _: &Fence) -> Result<(), Refused> { Ok(()) } }
/// # let pool = std::sync::Arc::new(Pool);
/// let ledger = sealable_fn("the ledger", move |fence: Fence| {
///     let pool = std::sync::Arc::clone(&pool);
///     async move { pool.advance(&fence).await }
/// });
/// ```
pub fn sealable_fn<F, A>(label: impl Into<String>, advance: F) -> SealableFn<F>
where
    F: Fn(Fence) -> A + Send + Sync,
    A: Future<Output: Into<SealAnswer>> + Send,
{
    SealableFn {
        label: label.into(),
        advance,
    }
}

impl<F, A> Sealable for SealableFn<F>
where
    F: Fn(Fence) -> A + Send + Sync,
    A: Future<Output: Into<SealAnswer>> + Send,
{
    fn label(&self) -> &str {
        &self.label
    }

    fn seal<'a>(&'a self, fence: &'a Fence) -> Sealing<'a> {
        Box::pin(async move { (self.advance)(fence.clone()).await.into() })
    }
}

impl<F> fmt::Debug for SealableFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealableFn")
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

impl<S: Sealable + ?Sized> Sealable for Arc<S> {
    fn label(&self) -> &str {
        (**self).label()
    }

    fn seal<'a>(&'a self, fence: &'a Fence) -> Sealing<'a> {
        (**self).seal(fence)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use core::task::{Context, Poll, Waker};

    use super::*;
    use crate::FencingToken;

    #[derive(Debug)]
    struct Broken(Option<Refused>);

    impl fmt::Display for Broken {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the store is broken")
        }
    }

    impl Error for Broken {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.0.as_ref().map(|refused| refused as _)
        }
    }

    struct Hidden(Broken);

    impl fmt::Debug for Hidden {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    impl fmt::Display for Hidden {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("no mark")
        }
    }

    impl Error for Hidden {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    impl EndsBelief for Hidden {
        fn refused(&self) -> Option<&Refused> {
            self.0.0.as_ref()
        }
    }

    #[test]
    fn a_guards_result_is_an_answer_and_an_error_keeps_its_causes() {
        let fence: Fence = "db#8".parse().unwrap();
        let stale = fence.overtaken_by(FencingToken::new(9).unwrap());
        let answer = |result: Result<(), Hidden>| SealAnswer::from(result);
        assert_eq!(answer(Ok(())), SealAnswer::Durable);
        assert_eq!(
            answer(Err(Hidden(Broken(Some(stale.clone()))))),
            SealAnswer::Refused(stale)
        );
        let why = "no mark: the store is broken".into();
        assert_eq!(
            answer(Err(Hidden(Broken(None)))),
            SealAnswer::Failed { why }
        );
    }

    #[test]
    fn a_closure_is_asked_with_the_fence() {
        let guard = Arc::new(sealable_fn("ledger", |fence: Fence| async move {
            SealAnswer::NotDurable {
                why: fence.to_string(),
            }
        }));
        assert_eq!(guard.label(), "ledger");
        let fence: Fence = "db#8".parse().unwrap();
        let mut sealing = guard.seal(&fence);
        let polled = sealing
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        let why = "db#8".into();
        assert_eq!(polled, Poll::Ready(SealAnswer::NotDurable { why }));
    }
}
