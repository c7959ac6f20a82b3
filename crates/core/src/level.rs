//! What `apply` does from which level on.
//!
//! Every node must make the same state of the same log, also while one runs this release and
//! another an older one, and also when a node that applied an entry with an older release applies
//! it again with this one. What this release does differently therefore begins with a level, which
//! is raised by an entry of the log once every member knows it.

/// The level of a state that no [`Command::RaiseLevel`](crate::Command::RaiseLevel) has raised.
pub const LEVEL_FIRST: u32 = 1;

/// From this level on a full table makes room for a new name; the repeat of a revoke, and of a
/// release that closed its session, is answered as the first one was; and evicting a session that
/// was never opened is refused. Idle names are forgotten after all else that is due, so many an
/// entry and no more, and by the retention in force, not by the one under which they became idle.
pub const LEVEL_REPEATS: u32 = 3;

/// From this level on there are principals and rights: [`Command::Called`](crate::Command::Called)
/// and [`Command::ChangeAccess`](crate::Command::ChangeAccess).
pub const LEVEL_ACCESS: u32 = 4;

/// From this level on there are Lease objects:
/// [`Command::WriteObject`](crate::Command::WriteObject).
pub const LEVEL_OBJECTS: u32 = 5;

/// From this level on a cluster can be restored, or formed with a quiet time:
/// [`Command::Seed`](crate::Command::Seed), and the fields of [`Form`](crate::Form) for it.
/// Keep-alives of sessions change no Lease objects, and the object of a lease that a session held
/// goes when the lease is free. A shorter duration of an elector counts from the end that it was
/// promised. A name that no session uses any more counts for the principal that used it last. An act that changes nothing is
/// not kept among the acts of operators, and one too many displaces an act of whom has the most; so
/// does a note of a lost term. What has no principal counts for `anonymous`, written Lease objects
/// count for who wrote them first, and losses of a session that ends count among an entry's ends.
pub const LEVEL_RESTORE: u32 = 6;
