//! What a write failed with.

use std::error::Error as StdError;

use http::StatusCode;
use kube::Error;
use ringfence_client::{FencingToken, LeaseName, Loss};

use crate::policy::STALE;

/// What the message of the API server has in it when one of our policies refuses: any other 403 says
/// that somebody lacks a right, as valid users do for a moment after a start of the API server.
pub const REFUSED: &str = "denied request: ringfence: ";

/// Why a write was not sent. It had no effect, and never will.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsent {
    /// The lease is lost: stop working under it.
    #[error("not sent: lease {name} with token {token} is lost: {loss}; stop working under it")]
    Lost {
        /// The lease.
        name: LeaseName,
        /// The token of the grant that was lost.
        token: FencingToken,
        /// Why it was lost.
        loss: Loss,
    },
    /// Server-side apply with a carrier that has no place in it.
    #[error(
        "not sent: the field manager of a server-side apply owns fields and cannot carry a token; \
         patch, or carry the token by impersonation"
    )]
    Apply,
    /// What cannot be the name of a user.
    #[error(
        "not sent: {0:?} is no user; allowed: visible characters, as in `system:serviceaccount:NAMESPACE:NAME`"
    )]
    User(String),
    /// A body that has no place for the token.
    #[error(
        "not sent: the body has no annotations that could carry a token ({0}); send an object as JSON"
    )]
    Body(&'static str),
}

impl Unsent {
    pub(super) fn user(offered: &str) -> Self {
        Self::User(offered.to_owned())
    }
}

/// What a failed call to Kubernetes means for the lease.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// A policy of ours refused it, with these words: it had no effect. If they say that the token is
    /// stale, somebody else leads, and the layer has ended the lease here.
    Fenced(String),
    /// It was not sent.
    Unsent(Unsent),
    /// Anything else, refusals for want of a right among it: it says nothing about the lease.
    Other,
}

impl Verdict {
    /// What this error means.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        if let Error::Api(status) = error {
            return match fenced(status.code, &status.message) {
                Some(words) => Self::Fenced(words.to_owned()),
                None => Self::Other,
            };
        }
        let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
        while let Some(looked_at) = cause {
            if let Some(unsent) = unsent(looked_at) {
                return Self::Unsent(unsent.clone());
            }
            cause = looked_at.source();
        }
        Self::Other
    }

    /// Whether the lease is lost, as the API server or this process says.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Fenced(_) | Self::Unsent(Unsent::Lost { .. }))
    }
}

fn unsent<'a>(cause: &'a (dyn StdError + 'static)) -> Option<&'a Unsent> {
    if let Some(Error::Service(boxed)) = cause.downcast_ref() {
        return boxed.downcast_ref();
    }
    cause.downcast_ref()
}

/// Our own words in an answer of the API server's, if one of our policies gave it.
pub(super) fn fenced(code: u16, message: &str) -> Option<&str> {
    if code != StatusCode::FORBIDDEN.as_u16() {
        return None;
    }
    let (_, words) = message.split_once(REFUSED)?;
    Some(words)
}

/// Whether these words say that this very fence is stale, with the number of a write or without.
pub(super) fn says_stale(words: &str, fence: &str) -> bool {
    let offered = words.strip_prefix(STALE);
    let offered = offered.and_then(|rest| rest.split_once(": "));
    let offered = offered.and_then(|(offered, _)| offered.strip_prefix(fence));
    offered.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answered(code: u16, message: &str) -> Error {
        Error::Api(Box::new(Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        }))
    }

    const MESSAGE: &str = "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'mark' with binding \
                           'mark' denied request: ringfence: stale fence k8s/a/b#7: it is 8";

    #[test]
    fn a_refusal_of_ours_is_known_by_its_words_alone() {
        let fenced = Verdict::of(&answered(403, MESSAGE));
        let words = "stale fence k8s/a/b#7: it is 8".to_owned();
        assert_eq!(fenced, Verdict::Fenced(words));
        assert!(fenced.is_fenced());

        let right = "configmaps \"a\" is forbidden: User \"b\" cannot patch resource";
        assert_eq!(Verdict::of(&answered(403, right)), Verdict::Other);
        let other = "denied request: somebody else's policy says ringfence";
        assert_eq!(Verdict::of(&answered(403, other)), Verdict::Other);
        assert_eq!(Verdict::of(&answered(409, MESSAGE)), Verdict::Other);
    }

    #[test]
    fn what_was_not_sent_is_found_in_the_error_of_the_client() {
        let error = Error::Service(Box::new(Unsent::Apply));
        assert_eq!(Verdict::of(&error), Verdict::Unsent(Unsent::Apply));
        assert!(!Verdict::of(&error).is_fenced());
        let io = std::io::Error::other("reset");
        assert_eq!(Verdict::of(&Error::Service(Box::new(io))), Verdict::Other);
    }

    #[test]
    fn only_the_own_fence_is_believed_to_be_stale() {
        let words = "stale fence a/b#17: the Lease a/b is at token 18";
        assert!(says_stale(words, "a/b#17"));
        assert!(!says_stale(words, "a/b#1"));
        assert!(!says_stale(words, "a/b#18"));
        assert!(!says_stale("CREATE carries no fence", "a/b#17"));
        let numbered = "stale fence a/b#17.4: the object was already written with token 18";
        assert!(says_stale(numbered, "a/b#17"));
    }
}
