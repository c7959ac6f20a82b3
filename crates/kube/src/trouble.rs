//! What can go wrong between the mirror and an API server, by what is to be done about it.

use kube::Error;

/// Why something was not done, or nobody knows whether it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trouble {
    /// The object is not what it was taken for: read it, and judge again.
    #[error("the object has changed meanwhile")]
    Outdated,
    /// The API server answered no to this object. It may say yes later, to another one now.
    #[error("refused with {code}: {message}")]
    Denied {
        /// The HTTP status.
        code: u16,
        /// Its words.
        message: String,
    },
    /// It does not answer, or to nobody now: everything waits.
    #[error("{0}")]
    Away(String),
}

/// The longest text of a refusal that is told.
const MESSAGE_CHARS_MAX: usize = 300;

impl Trouble {
    /// What an error means. `names_version`: the request was conditional on what it replaces, or
    /// that there is nothing.
    pub(crate) fn of(error: &Error, names_version: bool) -> Self {
        let Error::Api(status) = error else {
            return Self::Away(in_full(error));
        };
        let message: String = status.message.chars().take(MESSAGE_CHARS_MAX).collect();
        match status.code {
            409 if names_version => Self::Outdated,
            // Who we are, or whether the server can, is not about one object.
            0..=399 | 401 | 408 | 410 | 429 | 500.. => {
                Self::Away(format!("answered with {}: {message}", status.code))
            }
            code => Self::Denied { code, message },
        }
    }
}

/// An error with everything that led to it.
pub(crate) fn in_full(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.ends_with(&cause) {
            text
        } else {
            format!("{text}: {cause}")
        }
    })
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answered(code: u16) -> Error {
        Error::Api(Box::new(Status {
            code,
            message: "no".to_owned(),
            ..Status::default()
        }))
    }

    #[test]
    fn a_conflict_means_that_the_object_is_read_again() {
        assert_eq!(Trouble::of(&answered(409), true), Trouble::Outdated);
        assert!(matches!(
            Trouble::of(&answered(409), false),
            Trouble::Denied { code: 409, .. }
        ));
    }

    #[test]
    fn a_refused_object_holds_up_no_other() {
        for code in [400, 403, 404, 422] {
            assert!(matches!(
                Trouble::of(&answered(code), true),
                Trouble::Denied { .. }
            ));
        }
    }

    #[test]
    fn a_server_that_cannot_answer_is_left_in_peace() {
        for code in [401, 429, 500, 503, 504] {
            assert!(matches!(
                Trouble::of(&answered(code), true),
                Trouble::Away(_)
            ));
        }
    }
}
