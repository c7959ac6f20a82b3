//! What decides at the door.

use std::fmt;
use std::sync::Arc;

use super::TurnedAway;
use crate::{Fence, Guard};

/// What a [`FenceLayer`](super::FenceLayer) asks whether a request may pass.
///
/// A [`Guard`] in memory is one, and with the feature `follow` a `FloorFollower`, and the pair of a
/// follower and another door, asked in this order. For a store or for several leases, make one of a
/// function: [`door_fn`].
pub trait Door: Send + Sync + 'static {
    /// Says whether a request under this fence may pass.
    ///
    /// # Errors
    /// Why it may not. What fails in the door itself is [`TurnedAway::Later`].
    fn admit(&self, fence: &Fence) -> impl Future<Output = Result<(), TurnedAway>> + Send;
}

impl Door for Guard {
    async fn admit(&self, fence: &Fence) -> Result<(), TurnedAway> {
        // Its effects are not run under this call, so what it may wait for is short.
        Self::admit(self, fence)?;
        Ok(())
    }
}

impl<D: Door> Door for Arc<D> {
    fn admit(&self, fence: &Fence) -> impl Future<Output = Result<(), TurnedAway>> + Send {
        D::admit(self, fence)
    }
}

#[cfg(feature = "follow")]
impl Door for crate::follow::FloorFollower {
    async fn admit(&self, fence: &Fence) -> Result<(), TurnedAway> {
        Ok(self.check(fence).await?)
    }
}

#[cfg(feature = "follow")]
impl<D: Door> Door for (crate::follow::FloorFollower, D) {
    async fn admit(&self, fence: &Fence) -> Result<(), TurnedAway> {
        self.0.check(fence).await?;
        self.1.admit(fence).await
    }
}

/// A door made of a function: see [`door_fn`].
#[derive(Clone)]
pub struct DoorFn<F>(F);

/// A door made of a function.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::Arc;
///
/// use ringfence_guard::tower::{FenceLayer, TurnedAway, door_fn};
/// use ringfence_guard::{Guard, LeaseName};
///
/// // One guard for each lease that this service knows.
/// let names = ["shard/0", "shard/1"].map(|name| LeaseName::parse(name).expect("a lease name"));
/// let guards = Arc::new(BTreeMap::from(names.map(|name| (name.clone(), Guard::new(name)))));
/// let layer = FenceLayer::new(door_fn(move |fence| {
///     let guards = Arc::clone(&guards);
///     async move {
///         let Some(guard) = guards.get(&fence.name) else {
///             let what = format!("this service knows no lease `{}`", fence.name);
///             return Err(TurnedAway::Malformed { expected: None, what });
///         };
///         guard.admit(&fence)?;
///         Ok(())
///     }
/// }));
/// # drop(layer);
/// ```
pub fn door_fn<F, Fut>(ask: F) -> DoorFn<F>
where
    F: Fn(Fence) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), TurnedAway>> + Send,
{
    DoorFn(ask)
}

impl<F, Fut> Door for DoorFn<F>
where
    F: Fn(Fence) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), TurnedAway>> + Send,
{
    fn admit(&self, fence: &Fence) -> impl Future<Output = Result<(), TurnedAway>> + Send {
        (self.0)(fence.clone())
    }
}

impl<F> fmt::Debug for DoorFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DoorFn").finish_non_exhaustive()
    }
}
