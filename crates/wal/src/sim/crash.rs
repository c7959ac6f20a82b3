//! What a crash loses.

/// What of the unsynced content and names survives a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The process died and the machine did not: everything is still seen, nothing more is
    /// durable than before.
    ProcessOnly,
    /// Power was lost: nothing survives.
    LoseAll,
    /// Power was lost: a subset of the sectors and names, drawn from the seed.
    Subset(u64),
    /// As `Subset`, and some of the pages of 4 KiB that were written to and not synced hold
    /// garbage, together with what was synced in them before.
    Garble(u64),
}
