//! Guards refuse the writes of holders that lost their lease, inside the store they protect.
//!
//! # Why
//! A lease alone excludes nobody. Its holder can be paused between looking at its lease and
//! writing, by the scheduler, a garbage collector, a suspended machine or a slow network, and go
//! on when the lease has long been granted to somebody else. No clock and no further question to
//! the cluster closes that gap; only the store can, at the moment it takes the write.
//!
//! So each grant carries a token greater than every token before it. The holder shows lease name
//! and token, its [`Fence`], with each write. A guard in the store remembers the greatest token it
//! admitted, its *mark*, and refuses every smaller one.
//!
//! # Three rules
//! 1. **The mark is written first, in the same transaction as the data, also when it is equal.** A
//!    guard that only reads an equal mark holds no lock on it: the next grant raises the mark and
//!    reads, and then the older write commits after all.
//! 2. **A new holder advances the mark, and commits that, before its first read.** Until then the
//!    store knows nothing of the new grant:
//!
//!    ```text
//!    new holder   reads 100                                     writes 110
//!    old holder                writes 101 (admitted: mark is 8)
//!    ```
//!
//!    Both tokens are in order, and the old holder's write is lost all the same. With the advance
//!    in front the old holder is refused, or its write comes before the read.
//! 3. **A mark outlives what it guards.** Deleting data keeps it. After a restore of the store, and
//!    after any loss of its newest commits, every mark is raised to the lease's newest token
//!    (`advance_to`) before writes are served.
//!
//! ```
//! use ringfence_guard::{Fence, Guard, Refused};
//!
//! let old: Fence = "db/primary#8".parse()?;
//! let new: Fence = "db/primary#9".parse()?;
//! let guard = Guard::new(old.name.clone());
//!
//! let mut log = vec![];
//! guard.with(&old, || log.push("old"))?;
//! guard.advance(&new)?;
//! guard.with(&new, || log.push("new"))?;
//!
//! // Stopped in between and continued: it is told that its work is over.
//! let refused = guard.with(&old, || log.push("late"));
//! assert!(matches!(refused, Err(Refused::StaleToken { .. })));
//! assert_eq!(log, ["old", "new"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Stores
//! | store | where the mark is | how the rules are kept |
//! |---|---|---|
//! | this process | [`Guard`] | [`Guard::with`] runs the effect under the mark's lock |
//! | SQLite | a row beside the data | module `sqlite`, feature `sqlite` |
//! | sled 1.0 | a key beside the data | module `sled`, feature `sled` |
//! | PostgreSQL, MySQL, other SQL | a row beside the data, made in advance with mark 0 | first statement: `UPDATE marks SET mark = :t WHERE name = :n AND mark <= :t`; one row changed, or roll back. At any isolation level; a serialization failure repeats the whole transaction |
//! | Redis | a key in the same hash slot | one script compares, then sets mark and data. A failover that loses writes is a restore |
//! | DynamoDB and its like | a field of the item | condition `attribute_not_exists(mark) OR mark <= :t` on each write, which sets it; a deletion leaves an item with the mark |
//! | etcd, Consul | a key of its own | read the mark; a transaction that compares the mark key's revision, and puts mark and data |
//! | object stores | metadata of the object itself | read it with its ETag, check, write with `If-Match`; a deletion writes an empty object |
//! | anything without conditional writes | nowhere | cannot be guarded: put a service with a guard before it |
//!
//! [`conformance`] is the test that each of them must pass, ready for stores that are not here.
//!
//! # What a guard does not do
//! It needs no network and never asks the cluster, so it learns of a new grant only when that shows
//! its fence. It does not prove who shows a fence: tokens are public. And it keeps one mark, hence
//! one holder at a time: two leases that guard one datum exclude nobody.
//!
//! # Features
//! None is on by default. `sqlite`: SQLite, compiled in, through `rusqlite`. `sled`: sled 1.0.

pub mod conformance;
mod fence;
mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod refused;
#[cfg(feature = "sled")]
pub mod sled;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use fence::{Fence, InvalidFence};
pub use memory::Guard;
pub use refused::{Admitted, Refused};
pub use ringfence_core::{FencingToken, InvalidName, LeaseName};
