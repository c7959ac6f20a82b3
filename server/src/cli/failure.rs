//! How a command fails: an exit code, a reason for programs, a message and a next step for people.

use std::process::ExitCode;

use serde_json::json;

use super::{Global, exit};

/// A command that was not done.
#[derive(Debug)]
pub(crate) struct Failure {
    /// How the process ends; see [`exit`].
    pub(crate) exit: u8,
    /// One word for programs, in capitals.
    pub(crate) reason: String,
    /// What happened: what was offered, what was expected.
    pub(crate) message: String,
    /// What to do next; may be empty.
    pub(crate) hint: String,
}

impl Failure {
    /// A failure without a next step.
    pub(crate) fn new(exit: u8, reason: &str, message: impl Into<String>) -> Self {
        Self { exit, reason: reason.to_owned(), message: message.into(), hint: String::new() }
    }

    /// A value on the command line that cannot be used.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(exit::USAGE, "INVALID_ARGUMENT", message)
    }

    /// The same with a next step.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Prints the failure to stderr and gives the exit code.
    pub(crate) fn report(&self, global: &Global) -> ExitCode {
        if global.json {
            let error = json!({ "reason": self.reason, "message": self.message });
            eprintln!("{}", json!({ "error": error }));
        } else {
            eprintln!("error: {}", self.message);
            if !self.hint.is_empty() {
                eprintln!("  try: {}", self.hint);
            }
        }
        ExitCode::from(self.exit)
    }
}
