//! JWTs of the configured issuers.
//!
//! ```text
//!   text ─> compact: parts, alg ─> claims: iss ─> key file of that issuer: kid, signature
//!                                                    └─> claims: aud, exp, nbf ─> principal
//! ```

mod claims;
mod compact;
#[cfg(any(test, fuzzing))]
pub(crate) mod decoders;
mod key;
mod key_file;
mod object;
mod seen;

use std::sync::Arc;

use ringfence_core::{Pod, PodText};

use crate::credentials::{InvalidCredentials, Issuer, IssuerKind};
use crate::not_proven::{Credential, NotProven};
use crate::proven::{BoundPod, Proven};
use claims::Claims;
use compact::Compact;
use key::{Keys, NoKey};
use key_file::KeyFile;
use ringfence_core::Principal;

pub use seen::JwksSeen;

/// An issuer with its keys.
pub(crate) struct Verifier {
    issuer: Issuer,
    file: KeyFile,
}

/// Which keys verified a token: the place of the issuer, and how often its keys were replaced. A
/// proof is forgotten when they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VerifiedBy {
    issuer: usize,
    generation: u64,
}

const fn not(why: &'static str) -> NotProven {
    NotProven::new(Credential::Jwt, why)
}

impl Verifier {
    /// Reads the keys of an issuer.
    pub(crate) fn open(issuer: Issuer, now: u64) -> Result<Self, InvalidCredentials> {
        match KeyFile::open(&issuer.alias, &issuer.keys, now) {
            Ok(file) => Ok(Self { issuer, file }),
            Err(why) => Err(InvalidCredentials::Keys {
                alias: issuer.alias,
                path: issuer.keys,
                why,
            }),
        }
    }

    /// How often the file with the keys was read.
    pub(crate) fn reads(&self) -> u64 {
        self.file.reads()
    }

    /// Whether the former keys are in use because the file cannot be.
    pub(crate) fn is_stale(&self) -> bool {
        self.file.is_unusable()
    }
}

/// Whether the keys by which a token was verified are still in use.
pub(crate) fn is_current(verifiers: &[Verifier], by: VerifiedBy, now: u64) -> bool {
    verifiers
        .get(by.issuer)
        .is_some_and(|verifier| verifier.file.current(now).1 == by.generation)
}

/// The caller that brings this JWT, also for `grace` seconds beyond its end.
pub(crate) fn prove(
    text: &str,
    verifiers: &[Verifier],
    now: u64,
    grace: u64,
) -> Result<(Proven, VerifiedBy), NotProven> {
    let token = Compact::parse(text)?;
    let claims = Claims::parse(&token.claims)?;
    let iss = claims.iss.as_deref();
    let by_issuer = |verifier: &Verifier| Some(verifier.issuer.issuer.as_str()) == iss;
    let place = verifiers.iter().position(by_issuer).ok_or(not(
        "the JWT's `iss` is no issuer that this node was given (--jwt-issuer)",
    ))?;
    let Verifier { issuer, file } = &verifiers[place];
    let (keys, generation) = file.current(now);
    check_signature(&token, &keys)?;
    let proven = caller(issuer, &claims, &token.claims, now, grace)?;
    let verified = VerifiedBy {
        issuer: place,
        generation,
    };
    Ok((proven, verified))
}

/// The caller that verified claims of this issuer name; `json` is their text.
fn caller(
    issuer: &Issuer,
    claims: &Claims,
    json: &[u8],
    now: u64,
    grace: u64,
) -> Result<Proven, NotProven> {
    let (sub, ends) = claims.check(&issuer.audience, now, grace)?;
    let mut proven = match issuer.kind {
        IssuerKind::Jwt => {
            let principal = Principal::parse(&format!("jwt:{}:{sub}", issuer.alias));
            let unfit = |invalid| NotProven::unfit(Credential::Jwt, "the JWT's `sub`", &invalid);
            Proven::of(principal.map_err(unfit)?)
        }
        IssuerKind::Kubernetes => service_account(&issuer.alias, sub, json)?,
    };
    proven.expires_unix = Some(ends);
    Ok(proven)
}

fn check_signature(token: &Compact<'_>, keys: &Keys) -> Result<(), NotProven> {
    let verified = keys.verify(
        token.key_id.as_deref(),
        token.algorithm,
        token.signed.as_bytes(),
        &token.signature,
    );
    match verified {
        Ok(true) => Ok(()),
        Ok(false) => Err(not("the JWT's signature is not that of its issuer's key")),
        Err(NoKey::Unknown) => Err(not(
            "the JWT's `kid` is no key of its issuer for this `alg`; after a rotation, update the \
             JWKS file of this node",
        )),
        Err(NoKey::Unnamed) => Err(not(
            "the JWT names no key (`kid`), and its issuer has not exactly one for this `alg`",
        )),
    }
}

/// `system:serviceaccount:NAMESPACE:NAME` of the Kubernetes with this alias.
fn service_account(alias: &str, sub: &str, claims: &[u8]) -> Result<Proven, NotProven> {
    const NO_ACCOUNT: NotProven =
        not("the JWT's `sub` is no service account; expected system:serviceaccount:NAMESPACE:NAME");
    let (namespace, name) = sub
        .strip_prefix("system:serviceaccount:")
        .and_then(|account| account.split_once(':'))
        .ok_or(NO_ACCOUNT)?;
    // The same bytes and lengths as in the names of Pods: no `/`, no `:`.
    let texts = |namespace, name, uid| PodText {
        namespace,
        name,
        uid,
        container: "",
    };
    Pod::parse(texts(namespace, name, "0")).map_err(|_| NO_ACCOUNT)?;
    let principal = Principal::parse(&format!("sa:{alias}:{namespace}/{name}"));
    let unfit = |invalid| NotProven::unfit(Credential::Jwt, "the JWT's `sub`", &invalid);
    let mut proven = Proven::of(principal.map_err(unfit)?);
    if let Some((of, name, uid)) = claims::bound_pod(claims)? {
        if of != namespace || Pod::parse(texts(&of, &name, &uid)).is_err() {
            return Err(not(
                "the JWT is bound to what cannot be a Pod of its service account",
            ));
        }
        proven.pod = Some(Arc::new(BoundPod {
            issuer: alias.to_owned(),
            namespace: of,
            name,
            uid,
        }));
    }
    Ok(proven)
}
