//! The canary: writes that must be refused, tried as dry runs again and again.
//!
//! A policy that was unbound, a mirrored Lease that an API server compares with a frozen copy of, a
//! right that was taken away: nothing else would tell before a stale write gets in.
//!
//! The policies alone are tried. The API server asks webhooks once its policies have admitted a write:
//! one that only our webhook refuses has got past the rule, and the webhook is no guard.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Client, Error};
use ringfence_core::FencingToken;
use serde_json::{Value, json};

use crate::TOKEN;
use crate::policy::{Carrier, Fencing, Refusal, Refuser, STAMP};
use crate::sync_error::in_full;

/// How long one request may take.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);

/// For how long a write has to pass until it counts: the API server's copy of a Lease may be a
/// moment late.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Between two tries meanwhile.
const PACE: Duration = Duration::from_millis(100);

/// What an API server is tried on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// A fence below the mirrored Lease's, on an object without a mark.
    Floor,
    /// The newest fence, on an object whose mark is higher.
    Mark,
}

impl Trial {
    /// Both trials, in the order in which the canary runs them.
    pub const ALL: [Self; 2] = [Self::Floor, Self::Mark];

    /// Its name in figures.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Mark => "mark",
        }
    }
}

/// What became of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The write was refused, by our policy and as stale.
    Refused,
    /// The policies admitted it: a stale write would get past them, too. It would have been done, or
    /// the webhook refused it.
    Passed,
    /// Neither: why nothing is known.
    Unknown(String),
}

impl Outcome {
    /// Its name in figures.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Passed => "passed",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// Tries what a lease guards.
pub struct Canary {
    client: Client,
    leases: Api<Lease>,
    fencing: Fencing,
}

impl Canary {
    /// A canary with this client: of the fenced account itself, or of an account that may
    /// impersonate it.
    #[must_use]
    pub fn new(client: Client, fencing: Fencing) -> Self {
        Self {
            leases: Api::namespaced(client.clone(), fencing.object_namespace()),
            client,
            fencing,
        }
    }

    /// Tries one thing. A write that passes is tried again for [`PATIENCE`].
    pub async fn attempt(&self, trial: Trial) -> Outcome {
        let passed_for = tokio::time::sleep(PATIENCE);
        tokio::pin!(passed_for);
        loop {
            let outcome = match tokio::time::timeout(REQUEST_TIME_MAX, self.once(trial)).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(why)) => Outcome::Unknown(why),
                Err(_) => Outcome::Unknown(format!("no answer within {REQUEST_TIME_MAX:?}")),
            };
            if outcome != Outcome::Passed {
                return outcome;
            }
            tokio::select! {
                () = &mut passed_for => return Outcome::Passed,
                () = tokio::time::sleep(PACE) => {}
            }
        }
    }

    async fn once(&self, trial: Trial) -> Result<Outcome, String> {
        let newest = self.newest().await?;
        let (name, token) = match trial {
            Trial::Mark => (self.fencing.canary_mark(), newest),
            Trial::Floor => {
                let below = FencingToken::new(newest.get() - 1);
                let none = || "the Lease's token is 1, and no fence is below it".to_owned();
                (self.fencing.canary_floor(), below.ok_or_else(none)?)
            }
        };
        let as_somebody_else = self.is_somebody_else().await?;
        Ok(judge(&self.write(&name, token, as_somebody_else).await))
    }

    /// The token on the mirrored Lease.
    async fn newest(&self) -> Result<FencingToken, String> {
        let name = self.fencing.object_name();
        let lease = self.leases.get(name).await;
        let lease = lease.map_err(|error| format!("the Lease {name}: {}", in_full(&error)))?;
        let found = crate::Observed::of(&lease);
        let missing = || format!("the Lease {name} has no token in its annotation {TOKEN}");
        found.content.token.ok_or_else(missing)
    }

    /// Whether the account has to be impersonated by another account.
    async fn is_somebody_else(&self) -> Result<bool, String> {
        let reviews: Api<SelfSubjectReview> = Api::all(self.client.clone());
        let asked = SelfSubjectReview::default();
        let told = reviews.create(&PostParams::default(), &asked).await;
        let told = told.map_err(|error| format!("who this is: {}", in_full(&error)))?;
        let user = told.status.and_then(|status| status.user_info);
        let name = user.and_then(|user| user.username);
        Ok(name != Some(self.fencing.account().user()))
    }

    async fn write(&self, name: &str, token: FencingToken, disguised: bool) -> Result<(), Error> {
        let fence = self.fencing.fence(token);
        let carrier = self.fencing.carrier();
        let mut annotations = json!({"ringfence.io/canary": fence});
        if carrier == Carrier::Sequence {
            annotations[STAMP] = json!(format!("{fence}.1"));
            // Where no policy writes it, a write without it is refused, stale or not.
            annotations[TOKEN] = json!(token.to_string());
        }
        let patch = json!({"metadata": {"annotations": annotations}});
        let params = PatchParams {
            dry_run: true,
            field_manager: (carrier == Carrier::FieldManager).then(|| fence.clone()),
            ..PatchParams::default()
        };
        let place = self.fencing.canary_namespace();
        let path = format!("/api/v1/namespaces/{place}/configmaps");
        let request = Request::new(path).patch(name, &params, &Patch::Merge(patch));
        let mut request = request.map_err(Error::BuildRequest)?;
        let headers = request.headers_mut();
        if disguised || carrier == Carrier::Impersonate {
            let user = self.fencing.account().user();
            headers.insert("impersonate-user", user.parse().expect("letters and signs"));
        }
        if carrier == Carrier::Impersonate {
            let fence = fence.parse().expect("a fence is visible ASCII");
            headers.insert("impersonate-extra-ringfence.io%2ffence", fence);
        }
        self.client.request::<Value>(request).await.map(drop)
    }
}

/// What an answer says. A refusal that is not ours, or not for being stale, says nothing: the write
/// of a true stale holder may get past what stopped this one.
fn judge(answer: &Result<(), Error>) -> Outcome {
    let error = match answer {
        Ok(()) => return Outcome::Passed,
        Err(error) => error,
    };
    let Error::Api(status) = error else {
        return Outcome::Unknown(in_full(error));
    };
    match Refusal::of(status.code, &status.message) {
        Some(refusal) if refusal.by == Refuser::Webhook => Outcome::Passed,
        Some(refusal) if refusal.is_stale() => Outcome::Refused,
        Some(_) => Outcome::Unknown(status.message.clone()),
        None => Outcome::Unknown(in_full(error)),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answered(code: u16, message: &str) -> Result<(), Error> {
        Err(Error::Api(Box::new(Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        })))
    }

    #[test]
    fn only_our_policies_refusal_of_something_stale_counts() {
        let words = "policy 'a' denied request: ringfence: stale fence k8s/a/b#7: it is 8";
        assert_eq!(judge(&answered(403, words)), Outcome::Refused);
        assert_eq!(judge(&Ok(())), Outcome::Passed);
        for words in [
            "stale fence k8s/a/b#7: its grant has ended",
            "forged fence a",
        ] {
            let words = format!("admission webhook \"a\" denied the request: ringfence: {words}");
            // It was asked after the policies, which have let the write pass.
            assert_eq!(judge(&answered(403, &words)), Outcome::Passed);
        }
        for (code, message) in [
            (403, "User \"a\" cannot patch resource \"configmaps\""),
            (403, "denied request: ringfence: UPDATE carries no fence"),
            (403, "admission webhook \"b\" denied the request: no"),
            (404, "configmaps \"canary\" not found"),
            (500, words),
        ] {
            let outcome = judge(&answered(code, message));
            assert!(matches!(outcome, Outcome::Unknown(_)), "{message}");
        }
    }
}
