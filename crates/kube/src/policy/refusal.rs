//! A refusal of ours, as it stands in an answer of the API server's: who gave it, and why.

/// What every refusal begins with, a policy's and the webhook's.
pub const REFUSAL: &str = "ringfence: ";

/// What follows [`REFUSAL`] if the fence is older than what the API server or the cluster knows; then
/// the fence as it was offered, up to the next `: `.
pub const STALE: &str = "stale fence ";

/// The status of an answer that refuses.
const FORBIDDEN: u16 = 403;

/// The API server's words before ours, by who refused.
const DENIED: [(Refuser, &str); 2] = [
    (Refuser::Policy, "denied request: "),
    (Refuser::Webhook, "denied the request: "),
];

/// The component that refused a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refuser {
    /// A policy of the API server's.
    Policy,
    /// The webhook. The API server asks webhooks once its policies have admitted a write, so no
    /// policy has refused it.
    Webhook,
}

/// A refusal of ours. Any other 403 says that a user lacks a right, as valid users do for a moment
/// after a start of the API server, or that another party's rule refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The component that refused the write.
    pub by: Refuser,
    /// The words behind [`REFUSAL`].
    pub words: &'a str,
}

impl<'a> Refusal<'a> {
    /// The refusal in an answer with this status and this message; `None` if it is none of ours.
    #[must_use]
    pub fn of(code: u16, message: &'a str) -> Option<Self> {
        if code != FORBIDDEN {
            return None;
        }
        DENIED.into_iter().find_map(|(by, denied)| {
            let (_, ours) = message.split_once(&format!("{denied}{REFUSAL}"))?;
            Some(Self { by, words: ours })
        })
    }

    /// Whether the fence was refused as stale: another client holds the lease, or its grant has
    /// ended.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.words.starts_with(STALE)
    }

    /// Whether this very fence was, with the number of a write or without.
    #[must_use]
    pub fn is_stale_for(&self, fence: &str) -> bool {
        let offered = self.words.strip_prefix(STALE);
        let offered = offered.and_then(|rest| rest.split_once(": "));
        let offered = offered.and_then(|(offered, _)| offered.strip_prefix(fence));
        offered.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'mark' with binding \
                          'mark' denied request: ringfence: stale fence k8s/a/b#7: it is 8";
    const WEBHOOK: &str = "admission webhook \"fence.ringfence.io\" denied the request: ringfence: stale \
                           fence k8s/a/b#7: its grant has ended";

    #[test]
    fn a_refusal_of_ours_is_known_by_its_words_whoever_gave_it() {
        for (message, by) in [(POLICY, Refuser::Policy), (WEBHOOK, Refuser::Webhook)] {
            let refusal = Refusal::of(403, message).unwrap();
            assert_eq!(refusal.by, by);
            assert!(refusal.words.starts_with("stale fence k8s/a/b#7: "));
            assert!(refusal.is_stale());
            assert_eq!(Refusal::of(409, message), None);
        }
        for message in [
            "configmaps \"a\" is forbidden: User \"b\" cannot patch resource",
            "denied request: somebody else's policy says ringfence",
            "admission webhook \"other.example\" denied the request: no",
        ] {
            assert_eq!(Refusal::of(403, message), None, "{message}");
        }
    }

    #[test]
    fn only_the_own_fence_is_believed_to_be_stale() {
        let said = |words| Refusal {
            by: Refuser::Policy,
            words,
        };
        let words = "stale fence a/b#17: the Lease a/b is at token 18";
        assert!(said(words).is_stale_for("a/b#17"));
        assert!(!said(words).is_stale_for("a/b#1"));
        assert!(!said(words).is_stale_for("a/b#18"));
        let missing = said("CREATE carries no fence");
        assert!(!missing.is_stale() && !missing.is_stale_for("a/b#17"));
        let numbered = "stale fence a/b#17.4: the object was already written with token 18";
        assert!(said(numbered).is_stale_for("a/b#17"));
    }
}
