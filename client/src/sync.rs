//! Locks of this crate, and its `select!`.
#![allow(
    unexpected_cfgs,
    reason = "users may build tokio with its flag `tokio_unstable`, or without"
)]

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what no panic can leave half-changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// tokio's `select!`, whose branches are looked at in random order. Its random numbers are the
/// runtime's, and only with tokio's flag `tokio_unstable` can a simulation give them a seed. Without the
/// flag a simulated client looks at them in their order.
#[cfg(any(not(feature = "sim"), tokio_unstable))]
macro_rules! select {
    ($($branches:tt)*) => { tokio::select! { $($branches)* } };
}
#[cfg(all(feature = "sim", not(tokio_unstable)))]
macro_rules! select {
    ($($branches:tt)*) => { tokio::select! { biased; $($branches)* } };
}
pub(crate) use select;
