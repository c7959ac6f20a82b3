//! A write-ahead log for a consensus driver: entries, the vote, the committed mark, truncations
//! and purges in one ordered sequence of records, in segment files.
//!
//! It never interprets what it stores, reads no clock that decides anything, and knows no
//! consensus library. A call returns at once; one writer thread gathers whatever has queued,
//! writes it as one *batch*, makes it durable with one `fdatasync`, and only then reports
//! success, newest call first.
//!
//! ```text
//!  append, save_vote, ...        queue              writer thread             segment files
//!  ──────────────────────▶ ┌───┬───┬───┐ ──────▶ one batch, one write ──────▶ 0001.wal  full
//!  ◀────────────────────── └───┴───┴───┘         one fdatasync                0002.wal  active
//!     done(Ok), newest first                                                  0003.wal  spare
//!                                                                                 ▲
//!                              spare thread: fills and recycles segments ─────────┘
//! ```
//!
//! # What is promised
//!
//! 1. What was reported done is there after any crash, in the order of the calls.
//! 2. Records become durable in order: if a record survived, so did every record before it.
//! 3. A failed write or `fdatasync` is final. Nothing succeeds after it, and nothing is retried:
//!    the kernel may have dropped the data and forgotten the error.
//! 4. A page that holds anything acknowledged is not written again until its segment is recycled.
//! 5. A file system without room is no failure: calls that need the next segment wait, in their
//!    order, until there is room. [`WalStats::no_room`] says so before it comes to that.
//!
//! # A torn tail or damage?
//!
//! A batch is written only after the batch before it was synced. So a batch that cannot be read
//! is a *torn tail*, and is cut, only if nothing was begun after it: no batch that can be read, no
//! byte behind the end that its head names, none in a later segment. Otherwise it was durable
//! once, and the log refuses to open. Both a clean close and every open write a batch of their
//! own, so whatever came before them is covered.
//!
//! The limit: if the very last batch before a crash was acknowledged and is then damaged on the
//! medium, before the next start, it looks exactly like a torn write and is cut. One log alone
//! cannot tell the two apart; the other members hold the entry. Likewise a log whose newest
//! segment files were all deleted looks like a shorter log. One of which nothing is left is refused
//! if [`Options::existing`] says that there must be one.

mod bytes;
mod call;
mod clock;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod decoders;
mod entry;
mod error;
mod format;
mod fs;
mod index;
mod inspect;
mod marks;
mod open;
mod options;
mod prepare;
mod read;
mod real_fs;
mod recover;
mod replay;
mod segment;
#[cfg(any(test, fuzzing, feature = "sim"))]
pub mod sim;
mod spares;
mod stats;
mod system;
mod wal;
mod writer;

pub use entry::{Done, EntryId, LogEntry, Recovered};
pub use error::{Damage, OpenError, WalError, lacks_descriptors};
pub use fs::{Fs, FsFile, FsLock};
pub use inspect::read_back;
pub use options::{
    MAX_ENTRY_BYTES, MAX_HEADER_BYTES, MAX_MARK_BYTES, MAX_SEGMENT_BYTES, MAX_SPARE_SEGMENTS,
    MIN_SEGMENT_BYTES, OnFatal, OnSpare, Options,
};
pub use real_fs::RealFs;
pub use segment::names_log_file;
pub use stats::{RESERVE_SEGMENTS, WalStats};
pub use wal::{StepDriver, Wal};
pub use writer::Writer;
