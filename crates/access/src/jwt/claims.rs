//! The claims of a JWT. Only `iss`, `sub`, `aud`, `exp`, `nbf` and `iat` are read, and of a service
//! account the Pod that its token is bound to.

use serde::Deserialize;
use serde_json::Number;

use super::object::Object;
use crate::limits::LEEWAY;
use crate::not_proven::{Credential, NotProven};

/// The claims of every JWT.
#[derive(Deserialize)]
pub(super) struct Claims {
    pub(super) iss: Option<String>,
    sub: Option<String>,
    aud: Option<Audience>,
    exp: Option<Number>,
    nbf: Option<Number>,
    iat: Option<Number>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn contains(&self, audience: &str) -> bool {
        match self {
            Self::One(one) => one == audience,
            Self::Many(many) => many.iter().any(|one| one == audience),
        }
    }
}

const fn not(why: &'static str) -> NotProven {
    NotProven::new(Credential::Jwt, why)
}

impl Claims {
    pub(super) fn parse(json: &[u8]) -> Result<Self, NotProven> {
        let read = serde_json::from_slice(json).map(|Object(claims)| claims);
        read.map_err(|_| {
            not(
                "malformed JWT; its claims are no JSON object with texts in `iss`, `sub` and `aud` \
                 and numbers in `exp`, `nbf` and `iat`",
            )
        })
    }

    /// Checks the times and the audience. A token is taken for `grace` seconds beyond its end.
    ///
    /// Returns the subject, and from when on the token would be refused without that, in seconds since
    /// 1970.
    pub(super) fn check(
        &self,
        audience: &str,
        now: u64,
        grace: u64,
    ) -> Result<(&str, u64), NotProven> {
        let aud = self.aud.as_ref().ok_or(not(
            "the JWT has no `aud`; it must be made for this cluster",
        ))?;
        if !aud.contains(audience) {
            return Err(not(
                "the JWT's `aud` is not the audience that this node was given for its issuer",
            ));
        }
        let exp = self.exp.as_ref().ok_or(not(
            "the JWT has no `exp`; tokens without an end are refused",
        ))?;
        let ends = seconds(exp)?.saturating_add(LEEWAY);
        if now >= ends.saturating_add(grace) {
            return Err(NotProven::EXPIRED);
        }
        for begins in [&self.nbf, &self.iat].into_iter().flatten() {
            if now.saturating_add(LEEWAY) < seconds(begins)? {
                return Err(not(
                    "the JWT is not valid yet (`nbf` or `iat`); compare the clocks",
                ));
            }
        }
        let sub = self.sub.as_deref().unwrap_or_default();
        match sub.is_empty() {
            false => Ok((sub, ends)),
            true => Err(not("the JWT has no `sub`, which names the caller")),
        }
    }
}

/// A date of a claim, in whole seconds since 1970.
fn seconds(number: &Number) -> Result<u64, NotProven> {
    /// Up to here a double has every whole number.
    const MAX: f64 = 9_007_199_254_740_992.0;
    match (number.as_u64(), number.as_f64()) {
        (Some(seconds), _) => Ok(seconds),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "within the range; the fraction is not wanted"
        )]
        (None, Some(seconds)) if (0.0..=MAX).contains(&seconds) => Ok(seconds as u64),
        _ => Err(not(
            "a date of the JWT is out of range; expected seconds since 1970",
        )),
    }
}

/// What Kubernetes adds to the tokens of service accounts.
#[derive(Deserialize)]
struct OfKubernetes {
    #[serde(rename = "kubernetes.io")]
    kubernetes: Option<Object<Bound>>,
}

#[derive(Deserialize)]
struct Bound {
    namespace: Option<String>,
    pod: Option<Object<PodClaim>>,
}

#[derive(Deserialize)]
struct PodClaim {
    name: String,
    uid: String,
}

/// Namespace, name and UID of the Pod that a token of Kubernetes is bound to.
pub(super) fn bound_pod(json: &[u8]) -> Result<Option<(String, String, String)>, NotProven> {
    const MALFORMED: NotProven =
        not("the JWT's claim `kubernetes.io` is not what Kubernetes writes");
    let Object::<OfKubernetes>(of) = serde_json::from_slice(json).map_err(|_| MALFORMED)?;
    let Some((namespace, Object(pod))) = of
        .kubernetes
        .and_then(|Object(bound)| Some((bound.namespace, bound.pod?)))
    else {
        return Ok(None);
    };
    let namespace = namespace.ok_or(MALFORMED)?;
    Ok(Some((namespace, pod.name, pod.uid)))
}
