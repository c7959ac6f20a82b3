//! What can go wrong between the mirror and an API server, by what is to be done about it.

use kube::Error;
use kube::core::Status;

use crate::limits::REQUEST_TIME_MAX;

/// Why something was not done, or whether it was is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SyncError {
    /// The object is not what it was taken for: read it, and judge again.
    #[error("the object has changed meanwhile")]
    Outdated,
    /// The API server answered no to this object, or whom it has to ask about it did not answer. It
    /// may say yes later, to another one now.
    #[error("refused with {code}: {message}")]
    Denied {
        /// HTTP status code.
        code: u16,
        /// The API server's message, cut to 300 characters.
        message: String,
    },
    /// There was no answer in time: because of this object, if others have one meanwhile.
    #[error("no answer within {} s", REQUEST_TIME_MAX.as_secs())]
    Late,
    /// It does not answer, or to no caller now: everything waits.
    #[error("{0}")]
    Away(String),
}

/// The longest text of a refusal that is reported.
const MESSAGE_CHARS_MAX: usize = 300;

impl SyncError {
    /// What an error means. `writes`: the request was to write one object, on condition that it is
    /// what it was, or that there is none.
    pub(crate) fn of(error: &Error, writes: bool) -> Self {
        let Error::Api(status) = error else {
            return Self::Away(in_full(error));
        };
        let message: String = status.message.chars().take(MESSAGE_CHARS_MAX).collect();
        match status.code {
            code if writes && is_about_object(status) => Self::Denied { code, message },
            409 if writes => Self::Outdated,
            // Who we are, or whether the server can, is not about one object.
            0..=399 | 401 | 408 | 410 | 429 | 500.. => {
                Self::Away(format!("answered with {}: {message}", status.code))
            }
            code => Self::Denied { code, message },
        }
    }
}

/// Whether a failed write says nothing about the next object: a webhook that does not answer for one
/// namespace, or answers whatever it likes, must not keep the others from being written. What the API
/// server cannot do for anybody (its etcd is silent, it is overloaded) has other reasons.
fn is_about_object(status: &Status) -> bool {
    (status.code == 500 && status.reason == "InternalError")
        || status.message.starts_with("admission webhook ")
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
    use super::*;

    fn answered(code: u16) -> Error {
        said(code, "", "no")
    }

    fn said(code: u16, reason: &str, message: &str) -> Error {
        Error::Api(Box::new(Status {
            code,
            reason: reason.to_owned(),
            message: message.to_owned(),
            ..Status::default()
        }))
    }

    #[test]
    fn a_conflict_means_that_the_object_is_read_again() {
        assert_eq!(SyncError::of(&answered(409), true), SyncError::Outdated);
        assert!(matches!(
            SyncError::of(&answered(409), false),
            SyncError::Denied { code: 409, .. }
        ));
    }

    #[test]
    fn a_refused_object_holds_up_no_other() {
        for code in [400, 403, 404, 422] {
            assert!(matches!(
                SyncError::of(&answered(code), true),
                SyncError::Denied { .. }
            ));
        }
    }

    /// As an API server words it.
    #[test]
    fn a_webhook_that_fails_for_an_object_holds_up_no_other() {
        for error in [
            said(
                500,
                "InternalError",
                "Internal error occurred: failed calling webhook \"a.b.c\": failed to call webhook: \
                 Post \"https://127.0.0.1:1/?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection \
                 refused",
            ),
            said(
                503,
                "",
                "admission webhook \"a.b.c\" denied the request: later",
            ),
        ] {
            assert!(matches!(
                SyncError::of(&error, true),
                SyncError::Denied { .. }
            ));
            // No webhook is asked for those.
            let listed = said(500, "InternalError", "Internal error occurred: no");
            assert!(matches!(SyncError::of(&listed, false), SyncError::Away(_)));
        }
    }

    #[test]
    fn a_server_that_cannot_answer_is_left_in_peace() {
        for error in [
            answered(401),
            answered(429),
            answered(503),
            answered(504),
            said(500, "", "etcdserver: request timed out"),
            said(
                500,
                "ServerTimeout",
                "The patch operation could not be completed",
            ),
        ] {
            assert!(matches!(SyncError::of(&error, true), SyncError::Away(_)));
        }
    }
}
