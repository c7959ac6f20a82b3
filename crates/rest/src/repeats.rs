//! Repeats of an opening: of this very request, or refused in words of its key.

use ringfence_proto::v1::Reason;
use ringfence_proto::{Refusal, v1};

/// That a session which a key has opened is one that this request would open.
pub(crate) fn same_ttl(asked: Option<u64>, opened: u64) -> Result<(), Refusal> {
    match asked.is_none_or(|asked| asked == opened) {
        true => Ok(()),
        false => Err(mismatch()),
    }
}

/// The same of its holder.
pub(crate) fn same_identity(asked: &str, grant: &v1::Grant) -> Result<(), Refusal> {
    match asked == grant.identity {
        true => Ok(()),
        false => Err(mismatch()),
    }
}

fn mismatch() -> Refusal {
    let message = "the Idempotency-Key was used for another request; repeat that one unchanged, or use \
                   another key";
    Refusal::new(Reason::RequestMismatch, message)
}

/// A refusal of a request that opens a session. Its caller knows a key, and neither the id of the opening
/// nor the number of the acquire.
pub(crate) fn in_words_of_key(refusal: Refusal) -> Refusal {
    let other = |message: &str| Refusal::new(refusal.reason, message);
    match refusal.reason {
        Reason::RequestMismatch => mismatch(),
        Reason::OpenIdUsed => other(
            "the session that was opened under this Idempotency-Key has ended, so that nothing is held \
             under it, or it has another secret; use another key",
        ),
        Reason::StaleRequest => other(
            "what was granted under this Idempotency-Key has been given up since; use another key",
        ),
        _ => refusal,
    }
}
