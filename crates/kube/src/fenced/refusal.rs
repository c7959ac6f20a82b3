//! What a write failed with.

use std::error::Error as StdError;

use kube::Error;
use ringfence_client::{FencingToken, LeaseName, Loss};

use crate::policy::Refusal;

/// Why a write was not sent. It had no effect, and never will.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsent {
    /// The lease is lost: stop working under it.
    #[error("not sent: lease {name} with token {token} is lost: {loss}; stop working under it")]
    Lost {
        /// Name of the lease that was lost.
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
    /// Refused with these words, since its token is stale: another process leads, or this grant has
    /// ended. It had no effect, and the layer has ended the lease here.
    Stale(String),
    /// Refused by a policy of ours or by the webhook for another reason, which these words say: the
    /// write carries no fence, names no version, is not stamped. It had no effect, and it says nothing
    /// about the lease.
    Refused(String),
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
            return match Refusal::of(status.code, &status.message) {
                Some(refusal) if refusal.is_stale() => Self::Stale(refusal.words.to_owned()),
                Some(refusal) => Self::Refused(refusal.words.to_owned()),
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
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Stale(_) | Self::Unsent(Unsent::Lost { .. }))
    }
}

fn unsent<'a>(cause: &'a (dyn StdError + 'static)) -> Option<&'a Unsent> {
    if let Some(Error::Service(boxed)) = cause.downcast_ref() {
        return boxed.downcast_ref();
    }
    cause.downcast_ref()
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

    #[test]
    fn only_a_stale_fence_says_that_the_lease_is_lost() {
        for denied in [
            "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'mark' denied request",
            "admission webhook \"fence.ringfence.io\" denied the request",
        ] {
            let said = |words: &str| {
                let message = format!("{denied}: ringfence: {words}");
                Verdict::of(&answered(403, &message))
            };
            let words = "stale fence k8s/a/b#7: it is 8";
            assert_eq!(said(words), Verdict::Stale(words.to_owned()));
            assert!(said(words).is_lost());
            for words in [
                "UPDATE carries no fence (annotation ringfence.io/stamp)",
                "DELETE of a guarded object names no version",
                "the object is not stamped with token 7",
                "the number of the stamp a/b#7.1 has not grown",
                "forged fence k8s/a/b#7: this cluster never granted it",
            ] {
                assert_eq!(said(words), Verdict::Refused(words.to_owned()));
                assert!(!said(words).is_lost(), "{words}");
            }
        }
        let right = "configmaps \"a\" is forbidden: User \"b\" cannot patch resource";
        assert_eq!(Verdict::of(&answered(403, right)), Verdict::Other);
    }

    #[test]
    fn what_was_not_sent_is_found_in_the_error_of_the_client() {
        let error = Error::Service(Box::new(Unsent::Apply));
        assert_eq!(Verdict::of(&error), Verdict::Unsent(Unsent::Apply));
        assert!(!Verdict::of(&error).is_lost());
        let io = std::io::Error::other("reset");
        assert_eq!(Verdict::of(&Error::Service(Box::new(io))), Verdict::Other);
    }
}
