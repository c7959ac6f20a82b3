//! Guards refuse the writes of holders that lost their lease, inside the store they protect.
//!
//! # Why
//! A lease alone excludes no writer. Its holder can be paused between looking at its lease and
//! writing, by the scheduler, a garbage collector, a suspended machine or a slow network, and go
//! on when the lease has long been granted to another client. No clock and no further question to
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
//!    in front the old holder is refused, or its write comes before the read. The client crate does
//!    it for guards that an acquire names, before it reports the lease held: they are [`Sealable`].
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
//! // Stopped in between and continued: it learns that its work is over.
//! let refused = guard.with(&old, || log.push("late"));
//! assert!(matches!(refused, Err(Refused::StaleToken { .. })));
//! assert_eq!(log, ["old", "new"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Stores
//! | store | feature and module | where the mark is | what is guaranteed | what can be lost |
//! |---|---|---|---|---|
//! | this process | always there: [`Guard`] | beside the guard | [`Guard::with`]: no effect of an older grant begins or ends after a newer one was admitted; [`Guard::admit`] alone is the check of an instant | the mark, with the process |
//! | SQLite | `sqlite` | a row of the same file | mark and data change in one transaction, in any journal mode but `OFF` | with `synchronous` below `EXTRA`, or below `FULL` in WAL mode, a power failure takes back the newest commits |
//! | sled 1.0 | `sled` | a key of the same directory | mark and data change in one batch, flushed before it is acknowledged | nothing acknowledged, while the disk keeps what it has synced |
//! | PostgreSQL 12 and later | `postgres`; other languages call the SQL functions | a row of the same database | mark and data change in one transaction, at every isolation level | with `synchronous_commit = off`, or in a failover to an asynchronous standby or a logical subscriber, the newest commits |
//! | MariaDB 10.6 and later, MySQL 8.0.29 and later (tested: MariaDB) | `mysql`; other languages call the procedures | a row of the same database, in InnoDB | mark and data change in one transaction, at every isolation level, for tables of InnoDB | with `innodb_flush_log_at_trx_commit` other than 1, with a binary log and `sync_binlog` other than 1 (in MariaDB the default is 0), or in a failover to an asynchronous replica, the newest commits |
//! | Redis 6 and later | `redis`; other languages call the script | a key of the same slot | mark and data change in one script, exact to 2^63 - 1 | whatever Redis acknowledges and loses: about a second with `appendfsync everysec`, more in a failover; the mark alone if it may be evicted |
//! | S3 and its like, with conditional writes (tested: versitygw) | `s3` | in the object itself, in front of its body | mark and body change in one conditional write; one mark for each object | nothing acknowledged, in one bucket; a failover to a replica of the bucket loses the newest writes |
//! | etcd 3.4 and later (tested: 3.6) | `etcd` | a key of its own, `ringfence/marks/NAME` | mark and data change in one transaction, which carries the caller's own | nothing acknowledged, with fsync on, which is etcd's default |
//! | files in a directory of one machine | `files` | a file of the same directory | mark and data change by one rename, under a lock; never on NFS or SMB, which are refused | nothing acknowledged, while the disk keeps what it has synced |
//!
//! Each loss takes data and mark back together, and is a restore: raise the mark to the lease's newest
//! token (`advance_to`) before writes are served. The modules say how to avoid it.
//!
//! Where another driver than these modules' is in use, module [`sql`] has the statements and the
//! script as texts. Stores that have no module here can be guarded as well, with [`Fence::judge`]:
//!
//! | store | where the mark is | how the rules are kept |
//! |---|---|---|
//! | other SQL | a row beside the data, made in advance with mark 0 | first statement: `UPDATE marks SET mark = :t WHERE name = :n AND mark <= :t`; one row matched (some drivers count changed ones), or roll back. At any isolation level; a serialization failure repeats the whole transaction |
//! | DynamoDB and its like | a field of the item | condition `attribute_not_exists(mark) OR mark <= :t` on each write, which sets it; a deletion leaves an item with the mark |
//! | Consul | a key of its own | read the mark; a transaction that compares the mark key's index, and puts mark and data |
//! | other object stores | the content of the object itself, never its metadata: an ETag does not cover that | read it with its ETag, check, write with `If-Match`; a deletion writes an object with the mark alone |
//! | anything without conditional writes | nowhere | cannot be guarded: put a service with a guard before it |
//!
//! # Sealing
//! A [`Sealable`] is a guard together with a way to its store, as a client needs it to raise the mark
//! between a grant and the report that the lease is held. It also says whether the store can lose the
//! mark again: such a guard counts as unsealed.
//!
//! | store | `Sealable` | counts as unsealed |
//! |---|---|---|
//! | this process | [`Guard`] | never |
//! | SQLite | `sqlite::SqliteSeal` | with `synchronous` below `EXTRA`, or below `FULL` in WAL mode; with the journal in memory or off |
//! | PostgreSQL | `postgres::PostgresSeal` | with `fsync` or `synchronous_commit` off; with replicas of which none is a synchronous physical standby, or where the role cannot see that (`pg_monitor`); with `remote_write`; if the wait for a standby was cancelled |
//! | etcd | `etcd::EtcdSeal` | never; `--unsafe-no-fsync` cannot be seen from outside |
//! | files | `files::FilesGuard` | in a file system in memory, and in an overlay |
//! | others, and pools of connections | [`sealable_fn`] | as the program says; `RedisGuard::hazards` lists what it is for Redis |
//!
//! [`conformance`] is the test that all of the first table pass against their real store, published
//! for adapters of the second.
//!
//! # What a guard does not do
//! It needs no network and never asks the cluster, so it learns of a new grant only when that shows
//! its fence. It does not prove who shows a fence: tokens are public, and a token that was never
//! granted is admitted if it is greater than the mark, after which the true holder is refused. How
//! far such a token may be ahead is bounded by the [`Ceiling`]: more than a day ahead of the guard's
//! clock it is refused with `TOKEN_TOO_HIGH`, and raises no mark. And a guard keeps one mark, hence one
//! holder at a time: two leases that guard one datum exclude no writer.
//!
//! # Features
//! None is on by default.
//!
//! | feature | brings | through |
//! |---|---|---|
//! | `sqlite` | module `sqlite` | `rusqlite`, with SQLite compiled in |
//! | `sled` | module `sled` | `sled` 1.0 |
//! | `postgres` | module `postgres` | `tokio-postgres`; TLS and pools as that crate's users choose |
//! | `mysql` | module `mysql` | `mysql_async`; TLS and pools as that crate's users choose |
//! | `redis` | module `redis` | `redis`, on any of its asynchronous connections under tokio |
//! | `s3` | module `s3` | `object_store`, on `ring`; what sends requests, and TLS, as that crate's users choose |
//! | `etcd` | module `etcd` | `tonic`; TLS and members as the channel has them |
//! | `files` | module `files`, on Unix | `rustix` |
//! | `follow` | module `follow`: floors, so that a stale holder is refused before the new one comes, and a forged token waits and is refused | a stream of floors, for example the client crate's, under tokio |
//! | `tower` | module `tower`: the fence in the headers of HTTP and gRPC requests, refused at the door | `tower`'s traits, with any server |

mod admitted;
mod ceiling;
pub mod conformance;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod decoders;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(all(feature = "files", unix))]
pub mod files;
#[cfg(feature = "follow")]
pub mod follow;
#[cfg(any(feature = "etcd", all(feature = "files", unix)))]
mod mark_text;
mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(any(feature = "sqlite", all(feature = "files", unix)))]
mod on_thread;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(
    feature = "postgres",
    feature = "mysql",
    feature = "s3",
    feature = "etcd"
))]
mod retries;
#[cfg(feature = "s3")]
pub mod s3;
#[cfg(feature = "sled")]
pub mod sled;
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "tower")]
pub mod tower;

pub use admitted::Admitted;
pub use ceiling::Ceiling;
pub use memory::Guard;
pub use ringfence_core::{
    ClusterId, EndsBelief, Fence, FencingToken, InvalidFence, InvalidName, LeaseName, Refused,
    SealAnswer, Sealable, SealableFn, Sealing, sealable_fn,
};
