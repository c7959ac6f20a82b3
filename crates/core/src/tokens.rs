//! The token counter: the only source of fencing tokens.

use crate::id::FencingToken;

/// Where the tokens of a cluster have come to. Its fields are private to this file, and nothing here
/// lowers them once a token was taken: that tokens only grow is held by the compiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TokenCounter {
    /// The next token is one more.
    reached: u64,
    /// 0 before the first token.
    granted: u64,
}

impl TokenCounter {
    /// The counter of a snapshot: the value that it was raised to, and the greatest token granted, 0
    /// before the first.
    #[must_use]
    pub const fn restored(reached: u64, granted: u64) -> Self {
        Self { reached, granted }
    }

    /// No token up to here is granted from now on.
    #[must_use]
    pub const fn reached(self) -> u64 {
        self.reached
    }

    /// The greatest token really granted, 0 before the first.
    #[must_use]
    pub const fn granted(self) -> u64 {
        self.granted
    }

    /// Whether no token is left.
    pub(crate) const fn is_exhausted(self) -> bool {
        self.reached >= FencingToken::MAX
    }

    /// Grants nothing up to `value` from now on.
    pub(crate) fn raise(&mut self, value: u64) {
        self.reached = self.reached.max(value);
    }

    /// The first token will be the one after `floor`, whatever the clock said; only a counter that
    /// no token was taken from can be set.
    pub(crate) fn start_at(&mut self, floor: u64) {
        if self.granted == 0 {
            self.reached = floor;
        }
    }

    /// Counts all tokens up to here as granted: by clusters before this one.
    pub(crate) fn close(&mut self) {
        self.granted = self.granted.max(self.reached);
    }

    /// Takes the next token; `None` if none is left.
    pub(crate) fn take(&mut self) -> Option<FencingToken> {
        // Checked, not wrapped: a token that comes again would open every guard to a stale holder.
        let token = FencingToken::new(self.reached.checked_add(1)?)?;
        *self = Self::restored(token.get(), token.get());
        Some(token)
    }
}
