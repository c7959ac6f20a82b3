//! What a guard answers to a fence that it admits.

use ringfence_core::FencingToken;

/// The proof that a guard admitted a token.
///
/// It says that at the moment of the check no greater token had been admitted. How long that
/// stays true depends on the backend: to the end of the transaction in SQLite, to the end of the
/// effect in [`Guard::with`](crate::Guard::with), no longer than the call in
/// [`Guard::admit`](crate::Guard::admit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    token: FencingToken,
}

impl Admitted {
    pub(crate) const fn new(token: FencingToken) -> Self {
        Self { token }
    }

    /// The token that was admitted; it is now the mark.
    #[must_use]
    pub const fn token(self) -> FencingToken {
        self.token
    }
}
