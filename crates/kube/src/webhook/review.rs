//! A review: what is read of it, what is asked because of it, what is answered.

use ringfence_core::{FencingToken, LeaseName};
use serde_json::{Value, json};

use super::LEASE;
use crate::policy::{Carrier, FENCE_EXTRA, REFUSAL, STALE, STAMP, STAMP_NUMBER_MAX};

/// The version of reviews that is understood.
const API_VERSION: &str = "admission.k8s.io/v1";

/// The group of Leases, which are never judged: no election may depend on this.
const ELECTIONS: &str = "coordination.k8s.io";

/// What is refused with.
const FORBIDDEN: u16 = 403;

/// A question of the API server's.
#[derive(Clone, Debug, PartialEq)]
pub struct Review {
    uid: String,
    request: Value,
}

/// A text that is no review.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no AdmissionReview of {API_VERSION}: {0}")]
pub struct InvalidReview(String);

/// What a write offers, as far as it can be known without the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Nothing is to be asked.
    Settled(Answer),
    /// The cluster has to say how the grant stands.
    Fence {
        /// Name of the lease that the fence is of.
        lease: LeaseName,
        /// The token of the grant.
        token: FencingToken,
    },
}

/// How a grant stands, as the cluster says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is in force.
    Current,
    /// There is a later one with this token.
    Superseded(u64),
    /// It has ended, and there is no later one.
    Ended,
    /// There never was such a grant.
    Unknown,
}

/// The webhook's verdict on a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The write may go on.
    Admitted,
    /// It may not, for this reason.
    Refused(String),
}

impl Answer {
    fn refused(words: String) -> Self {
        Self::Refused(format!("{REFUSAL}{words}"))
    }
}

impl Review {
    /// Reads what an API server sends.
    ///
    /// # Errors
    /// [`InvalidReview`] says what is missing.
    pub fn parse(text: &[u8]) -> Result<Self, InvalidReview> {
        let refused = |why: &str| InvalidReview(why.to_owned());
        let mut review: Value =
            serde_json::from_slice(text).map_err(|error| InvalidReview(error.to_string()))?;
        if review["apiVersion"] != API_VERSION || review["kind"] != "AdmissionReview" {
            return Err(refused("it is of another kind or version"));
        }
        let request = review["request"].take();
        let uid = request["uid"].as_str().filter(|uid| !uid.is_empty());
        let uid = uid
            .ok_or_else(|| refused("request.uid is missing"))?
            .to_owned();
        Ok(Self { uid, request })
    }

    /// The review that goes back.
    #[must_use]
    pub fn answer(&self, answer: &Answer) -> Value {
        let mut response = json!({"uid": self.uid, "allowed": *answer == Answer::Admitted});
        if let Answer::Refused(words) = answer {
            response["status"] =
                json!({"code": FORBIDDEN, "reason": "Forbidden", "message": words});
        }
        json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
    }

    /// What the write offers, with this carrier. `prefix` begins the names of mirrored leases.
    #[must_use]
    pub fn offer(&self, carrier: Carrier, prefix: &str) -> Offer {
        if self.request["resource"]["group"] == ELECTIONS {
            return Offer::Settled(Answer::Admitted);
        }
        if self.request["operation"] == "DELETE" && !carrier.deletes() {
            // It has no place for a fence: the policies demand the version that it deletes.
            return Offer::Settled(Answer::Admitted);
        }
        let settled = |words| Offer::Settled(Answer::refused(words));
        let named = match self.named(prefix) {
            Ok(named) => named,
            Err(words) => return settled(words),
        };
        let carried = match self.carried(carrier) {
            Ok(carried) => carried,
            Err(words) => return settled(words),
        };
        let Some((lease, token)) = parse(&carried) else {
            return settled(format!(
                "malformed fence {carried}; expected LEASE#TOKEN, decimal, from 1 to {}",
                FencingToken::MAX
            ));
        };
        match named.iter().find(|named| *named != lease.as_str()) {
            None => Offer::Fence { lease, token },
            Some(other) => settled(format!(
                "fence {carried} is of another lease; {other} guards this object"
            )),
        }
    }

    /// The leases that the object names, before the write and after it.
    fn named(&self, prefix: &str) -> Result<Vec<String>, String> {
        let mut named = Vec::new();
        for object in ["oldObject", "object"] {
            let metadata = &self.request[object]["metadata"];
            if let Some(lease) = metadata["annotations"][LEASE].as_str() {
                named.push(lease.to_owned());
            }
            if let Some(name) = metadata["labels"][LEASE].as_str() {
                let namespace = self.request["namespace"].as_str().unwrap_or_default();
                if namespace.is_empty() {
                    return Err(format!(
                        "the label {LEASE} names a lease of the object's namespace, and it has none; \
                         name the lease by the annotation {LEASE}"
                    ));
                }
                named.push(format!("{prefix}/{namespace}/{name}"));
            }
        }
        Ok(named)
    }

    /// The text of the fence.
    fn carried(&self, carrier: Carrier) -> Result<String, String> {
        let operation = self.request["operation"].as_str().unwrap_or("the request");
        let missing = |place: &str| format!("{operation} carries no fence ({place})");
        match carrier {
            Carrier::Impersonate => {
                let fences = &self.request["userInfo"]["extra"][FENCE_EXTRA];
                let fences = fences.as_array().map_or(&[][..], Vec::as_slice);
                let place = format!("userInfo.extra {FENCE_EXTRA}");
                match fences {
                    [] => Err(missing(&place)),
                    [fence] => Ok(fence.as_str().unwrap_or_default().to_owned())
                        .and_then(|fence| non_empty(fence, || missing(&place))),
                    more => Err(format!(
                        "{operation} carries {} fences, expected one ({place})",
                        more.len()
                    )),
                }
            }
            Carrier::FieldManager => {
                let manager = self.request["options"]["fieldManager"].as_str();
                let fence = manager.filter(|manager| manager.contains('#'));
                fence
                    .map(str::to_owned)
                    .ok_or_else(|| missing("the name of the field manager"))
            }
            Carrier::Sequence => {
                let stamp = &self.request["object"]["metadata"]["annotations"][STAMP];
                let stamp = stamp.as_str().unwrap_or_default();
                if stamp.is_empty() {
                    return Err(missing(&format!("annotation {STAMP}")));
                }
                let (fence, number) = stamp.rsplit_once('.').unwrap_or((stamp, ""));
                let number = number
                    .parse()
                    .ok()
                    .filter(|number| (1..=STAMP_NUMBER_MAX).contains(number));
                let malformed = || format!("malformed fence {stamp}; expected LEASE#TOKEN.NUMBER");
                number.map(|_: u64| fence.to_owned()).ok_or_else(malformed)
            }
        }
    }
}

fn non_empty(text: String, missing: impl Fn() -> String) -> Result<String, String> {
    match text.is_empty() {
        true => Err(missing()),
        false => Ok(text),
    }
}

/// A fence's parts; every fence has one text only.
fn parse(text: &str) -> Option<(LeaseName, FencingToken)> {
    let (lease, digits) = text.split_once('#')?;
    let token = FencingToken::new(digits.parse().ok()?)?;
    let lease = LeaseName::parse(lease).ok()?;
    (token.to_string() == digits).then_some((lease, token))
}

/// The answer to a write under this grant.
#[must_use]
pub fn judge(lease: &LeaseName, token: FencingToken, standing: Standing) -> Answer {
    let fence = format!("{lease}#{token}");
    match standing {
        Standing::Current => Answer::Admitted,
        Standing::Superseded(newest) => {
            Answer::refused(format!("{STALE}{fence}: the lease is at token {newest}"))
        }
        Standing::Ended => Answer::refused(format!("{STALE}{fence}: its grant has ended")),
        Standing::Unknown => Answer::refused(format!(
            "forged fence {fence}: this cluster never granted it"
        )),
    }
}

#[cfg(test)]
#[path = "review_tests.rs"]
mod tests;
