//! Guards refuse the writes of holders that lost their lease, inside the store they protect.

mod fence;
mod memory;
mod refused;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use fence::{Fence, InvalidFence};
pub use memory::Guard;
pub use refused::{Admitted, Refused};
pub use ringfence_core::{FencingToken, LeaseName};
