//! What the work of a term may return.

use std::fmt::Display;

/// What a leader's work can return: nothing, a result whose error says why it failed, or never.
///
/// When it returns the term is over and the lease is given up; the campaign goes on.
pub trait Outcome: sealed::Sealed {}

impl Outcome for () {}
impl<E: Display> Outcome for Result<(), E> {}
impl Outcome for sealed::Never {}

pub(super) mod sealed {
    use std::fmt::Display;

    pub trait Sealed {
        /// Why it failed, if it did.
        fn failure(self) -> Option<String>;
    }

    impl Sealed for () {
        fn failure(self) -> Option<String> {
            None
        }
    }

    impl<E: Display> Sealed for Result<(), E> {
        fn failure(self) -> Option<String> {
            self.err().map(|error| error.to_string())
        }
    }

    impl Sealed for Never {
        fn failure(self) -> Option<String> {
            self
        }
    }

    /// The type of a loop without an end, which cannot be named otherwise yet.
    pub(crate) type Never = <fn() -> ! as Returns>::Type;

    pub trait Returns {
        type Type;
    }

    impl<R> Returns for fn() -> R {
        type Type = R;
    }
}
