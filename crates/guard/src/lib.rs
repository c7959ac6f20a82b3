//! Guards refuse the writes of holders that lost their lease, inside the store they protect.

pub mod conformance;
mod fence;
mod memory;
mod refused;
#[cfg(feature = "sled")]
pub mod sled;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use fence::{Fence, InvalidFence};
pub use memory::Guard;
pub use refused::{Admitted, Refused};
pub use ringfence_core::{FencingToken, LeaseName};
