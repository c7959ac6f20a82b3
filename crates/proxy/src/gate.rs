//! The heart: what one lease lets in. It reads no clock, does no I/O and waits for nothing; time is an
//! argument.
//!
//! ```text
//!  8 ── in ─────────────────── its end is seen ─┐
//!  8 ─────────── stale                          │  the mark is 9 from here on, in the file, too
//!  9 ────── raises the mark ── waits ───────────┴─ in ──
//! ```
//!
//! # When a request is over
//! * **Its end was seen**: its body was handed over as a whole, and the service's answer has ended.
//! * **Its time is over**, [`Options::request_max`](crate::Options::request_max) behind the moment at which its
//!   connection was severed. Until then one whose end was not seen counts as inside: the service may be at
//!   work on what it has received last.
//! * **It was cut** for a newer holder, behind the drain limit, where the operator has asked for that.
//!
//! # What holds
//! No request is let in while one under an older token of its lease is not over. What the process before has
//! let in is over when [`Gate::read`] says so.

use ringfence_core::FencingToken;
use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// What becomes of a request at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The file has to be asked first.
    File(Ask),
    /// It is inside. [`Gate::leave`] has to follow.
    In,
    /// It waits until this time, or, if there is none, until something changes.
    Wait(Option<Instant>),
    /// This newer token has come.
    Stale(FencingToken),
}

/// What the file is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The mark has to be read: [`Gate::read`].
    Read,
    /// The mark has to be raised to the token: [`Gate::raised`].
    Raise,
}

/// The state of one lease.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_read: bool,
    /// The greatest token that has come. It is in the file, too.
    mark: Option<FencingToken>,
    /// How many requests under the mark are inside.
    inside: usize,
    /// And how many under older tokens.
    older: usize,
    /// Until then requests under the mark may count whose end was not seen.
    unseen: Option<Instant>,
    /// The same of older tokens.
    older_unseen: Option<Instant>,
    /// Until then requests of the process before may be inside, under whatever token.
    inherited: Option<Instant>,
    /// What is inside under an older token than this is cut.
    cut_below: Option<FencingToken>,
}

impl Gate {
    /// What the file is needed for before a request under this token; `None` if for nothing.
    pub(crate) fn needs(&self, token: FencingToken) -> Option<Ask> {
        match self.is_read {
            false => Some(Ask::Read),
            true if self.mark < Some(token) => Some(Ask::Raise),
            true => None,
        }
    }

    /// A request under this token has come. [`Verdict::In`] counts it.
    pub(crate) fn arrive(&mut self, token: FencingToken, now: Instant) -> Verdict {
        if let Some(ask) = self.needs(token) {
            return Verdict::File(ask);
        }
        if let Some(mark) = self.mark.filter(|mark| token < *mark) {
            return Verdict::Stale(mark);
        }
        if self.older > 0 {
            return Verdict::Wait(None);
        }
        let quiet = self.older_unseen.max(self.inherited);
        if quiet.is_some_and(|end| now < end) {
            return Verdict::Wait(quiet);
        }
        self.inside += 1;
        Verdict::In
    }

    /// What the file says. If it has a mark, requests of the process before may be inside until then.
    pub(crate) fn read(&mut self, mark: Option<FencingToken>, inherited: Option<Instant>) {
        self.is_read = true;
        if mark.is_some() {
            self.inherited = self.inherited.max(inherited);
        }
        if let Some(mark) = mark {
            self.raised(mark);
        }
    }

    /// Whether the file was written is not known: it is read again first.
    pub(crate) fn unread(&mut self) {
        self.is_read = false;
    }

    /// The mark is in the file.
    pub(crate) fn raised(&mut self, token: FencingToken) {
        if self.mark >= Some(token) {
            return;
        }
        self.mark = Some(token);
        self.older += self.inside;
        self.inside = 0;
        self.older_unseen = self.older_unseen.max(self.unseen.take());
    }

    /// A request is inside no more. If its end was not seen it counts until `unseen`. Returns whether those
    /// who wait have to look again.
    pub(crate) fn leave(&mut self, token: FencingToken, unseen: Option<Instant>) -> bool {
        let is_of_mark = self.mark == Some(token);
        let count = match is_of_mark {
            true => &mut self.inside,
            false => &mut self.older,
        };
        assert!(*count > 0, "a request under {token} leaves that is not in");
        *count -= 1;
        if is_of_mark {
            self.unseen = self.unseen.max(unseen);
        } else if !self.is_cut(token) {
            self.older_unseen = self.older_unseen.max(unseen);
        }
        !is_of_mark
    }

    /// The drain limit of a request under the mark is over: what is older ends now. What the process
    /// before has let in cannot be ended from here.
    pub(crate) fn cut_older(&mut self) {
        self.cut_below = self.mark;
        self.older_unseen = None;
    }

    /// Whether requests under this token are cut.
    pub(crate) fn is_cut(&self, token: FencingToken) -> bool {
        self.cut_below.is_some_and(|below| token < below)
    }

    /// Whether nothing is inside, nor may be: all that is known here is in the file.
    pub(crate) fn is_quiet(&self, now: Instant) -> bool {
        let last = self.unseen.max(self.older_unseen).max(self.inherited);
        self.inside == 0 && self.older == 0 && last.is_none_or(|end| end <= now)
    }
}
