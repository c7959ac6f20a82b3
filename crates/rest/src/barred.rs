//! What a call is answered whose caller's credential ended while it waited.

use ringfence_proto::Refusal;
use ringfence_proto::refusal::reason_of_name;
use ringfence_services::problem::{NOT_DONE, UNKNOWN};
use serde_json::{Map, Value};
use tonic::Status;

use crate::call::{Refused, refusal};

/// The services follow a wait no longer, since its caller is looked at no more.
pub(crate) struct Barred(Refusal);

impl Barred {
    /// `None` if this says anything else.
    pub(crate) fn of(status: &Status) -> Option<Self> {
        let unknown = refusal(status);
        let reason = reason_of_name(unknown.metadata.get("barred")?)?;
        let why = unknown.message.split(';').next().unwrap_or_default();
        Some(Self(Refusal::new(reason, why)))
    }

    /// The answer, in which the request is not done only if it was undone. A caller with a key of its
    /// own keeps its place: it repeats the request with another credential.
    pub(crate) fn refused(self, undone: bool) -> Refused {
        let Self(mut refusal) = self;
        let (outcome, next) = match undone {
            true => (
                NOT_DONE,
                "it was taken back: ask again with another credential",
            ),
            false => (
                UNKNOWN,
                "it may still be granted: repeat it under its Idempotency-Key with another \
                 credential, or cancel it; without a key ask for the lease",
            ),
        };
        refusal.message = format!("{}; {next}", refusal.message);
        let more = Map::from_iter([("outcome".to_owned(), Value::from(outcome))]);
        Refused { refusal, more }
    }
}
