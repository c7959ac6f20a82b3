//! The text of a JWT: three parts in base64url, of which the first two are JSON.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::key::Algorithm;
use super::object::Object;
use crate::not_proven::{Credential, NotProven};

/// A JWT that was taken apart; nothing in it is verified.
pub(super) struct Compact<'a> {
    pub(super) algorithm: Algorithm,
    /// Which key is said to have signed it.
    pub(super) key_id: Option<String>,
    /// The claims, as JSON text.
    pub(super) claims: Vec<u8>,
    /// What the signature is about.
    pub(super) signed: &'a str,
    pub(super) signature: Vec<u8>,
}

/// What is read of the header. `jku`, `x5u`, `jwk` and `x5c`, by which a token would bring its own
/// key, are not.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Names what must be understood; nothing of it is.
    #[serde(default, deserialize_with = "present")]
    crit: bool,
}

/// Whether a field is there, whatever stands in it; `null` is not the same as nothing.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(from).map(|_| true)
}

const MALFORMED: NotProven = not("malformed JWT; expected HEADER.CLAIMS.SIGNATURE in base64url");

const fn not(why: &'static str) -> NotProven {
    NotProven::new(Credential::Jwt, why)
}

impl<'a> Compact<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, NotProven> {
        let (signed, signature) = text.rsplit_once('.').ok_or(MALFORMED)?;
        let (header, claims) = signed.split_once('.').ok_or(MALFORMED)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| MALFORMED);
        let Object::<Header>(header) = serde_json::from_slice(&decode(header)?)
            .map_err(|_| not("malformed JWT; its header is no JSON object with `alg`"))?;
        let algorithm = Algorithm::named(&header.alg).ok_or(not(
            "the JWT's `alg` is not allowed; expected RS256, ES256 or EdDSA",
        ))?;
        if header.crit {
            return Err(not(
                "the JWT's header has `crit`; no extension of JWTs is supported",
            ));
        }
        Ok(Self {
            algorithm,
            key_id: header.kid,
            claims: decode(claims)?,
            signed,
            signature: decode(signature)?,
        })
    }
}
