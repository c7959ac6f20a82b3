//! Public keys of issuers, and the signatures that they verify.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde::Deserialize;

use crate::limits::{KEYS_PER_FILE_MAX, RSA_BITS};

/// The algorithms of signatures. There is one for each type of key, and none with a shared secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Es256,
    EdDsa,
}

impl Algorithm {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            "EdDSA" => Some(Self::EdDsa),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }
}

/// A public key. Its type decides the algorithm, never the token.
enum Key {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// On P-256: 4, x, y.
    P256([u8; 65]),
    Ed25519([u8; 32]),
}

impl Key {
    const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Rsa { .. } => Algorithm::Rs256,
            Self::P256(_) => Algorithm::Es256,
            Self::Ed25519(_) => Algorithm::EdDsa,
        }
    }

    fn verify(&self, signed: &[u8], signature: &[u8]) -> bool {
        let verified = match self {
            Self::Rsa { n, e } => {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature)
            }
            Self::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
            }
            Self::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(signed, signature),
        };
        verified.is_ok()
    }
}

/// The keys of an issuer that can verify signatures.
pub(super) struct Keys {
    keys: Vec<(Option<String>, Key)>,
}

/// Why no key was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoKey {
    /// None has this id for this algorithm.
    Unknown,
    /// The token names none, and there is more than one, or none.
    Unnamed,
}

/// A JWKS. Fields that are not named here are skipped, certificates and URLs among them.
#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(rename = "use")]
    used_for: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    kid: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Keys {
    /// The keys of a JWKS that can verify signatures by one of the algorithms; others are skipped.
    ///
    /// # Errors
    /// What is wrong, and what is expected.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let jwks: Jwks = serde_json::from_slice(text).map_err(|error| {
            format!(
                "it is no JWKS (line {}, column {}); expected {{\"keys\": […]}}",
                error.line(),
                error.column()
            )
        })?;
        if jwks.keys.len() > KEYS_PER_FILE_MAX {
            return Err(format!(
                "it has {} keys; at most {KEYS_PER_FILE_MAX} are allowed",
                jwks.keys.len()
            ));
        }
        let mut keys: Vec<(Option<String>, Key)> = Vec::new();
        for (at, jwk) in jwks.keys.into_iter().enumerate() {
            let key = match jwk.key() {
                Ok(Some(key)) => key,
                Ok(None) => continue,
                Err(why) => return Err(format!("key {} of the JWKS: {why}", at + 1)),
            };
            let twice = keys
                .iter()
                .any(|(kid, other)| *kid == jwk.kid && other.algorithm() == key.algorithm());
            if twice && jwk.kid.is_some() {
                return Err(format!(
                    "key {} of the JWKS: another one has the same `kid`",
                    at + 1
                ));
            }
            keys.push((jwk.kid, key));
        }
        match keys.is_empty() {
            false => Ok(Self { keys }),
            true => Err(
                "it has no key for signatures by RS256, ES256 or EdDSA; expected at least one"
                    .to_owned(),
            ),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the key with this id made the signature by this algorithm. A token that names no key
    /// is verified if there is only one for its algorithm.
    pub(super) fn verify(
        &self,
        key_id: Option<&str>,
        algorithm: Algorithm,
        signed: &[u8],
        signature: &[u8],
    ) -> Result<bool, NoKey> {
        let mut keys = self.keys.iter().filter(|(kid, key)| {
            key.algorithm() == algorithm && (key_id.is_none() || kid.as_deref() == key_id)
        });
        let key = match (keys.next(), keys.next(), key_id) {
            (Some((_, key)), None, _) => key,
            (_, _, Some(_)) => return Err(NoKey::Unknown),
            (_, _, None) => return Err(NoKey::Unnamed),
        };
        Ok(key.verify(signed, signature))
    }
}

impl Jwk {
    /// The key, unless it is of another type, or for another purpose.
    fn key(&self) -> Result<Option<Key>, String> {
        let signs = self.used_for.as_deref().is_none_or(|used| used == "sig");
        let verifies = self
            .key_ops
            .as_ref()
            .is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        let algorithm = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => Algorithm::Rs256,
            ("EC", Some("P-256")) => Algorithm::Es256,
            ("OKP", Some("Ed25519")) => Algorithm::EdDsa,
            _ => return Ok(None),
        };
        let of_algorithm = self
            .alg
            .as_deref()
            .is_none_or(|alg| alg == algorithm.name());
        if !signs || !verifies || !of_algorithm {
            return Ok(None);
        }
        let key = match algorithm {
            Algorithm::Rs256 => rsa(&self.n, &self.e)?,
            Algorithm::Es256 => {
                let mut point = [4; 65];
                point[1..33].copy_from_slice(&fixed(&self.x, "x")?);
                point[33..].copy_from_slice(&fixed(&self.y, "y")?);
                Key::P256(point)
            }
            Algorithm::EdDsa => Key::Ed25519(fixed(&self.x, "x")?),
        };
        Ok(Some(key))
    }
}

fn rsa(n: &Option<String>, e: &Option<String>) -> Result<Key, String> {
    let number = |given: &Option<String>, name: &str| {
        let bytes = decode(given, name)?;
        // Some issuers write a sign byte; ring takes none.
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        Ok::<_, String>(bytes[zeros..].to_vec())
    };
    let (n, e) = (number(n, "n")?, number(e, "e")?);
    let unused = n.first().map_or(0, |first| first.leading_zeros() as usize);
    let bits = n.len() * 8 - unused;
    if !RSA_BITS.contains(&bits) {
        return Err(format!(
            "an RSA key of {bits} bits; {} to {} are allowed",
            RSA_BITS.start(),
            RSA_BITS.end()
        ));
    }
    Ok(Key::Rsa { n, e })
}

fn fixed(given: &Option<String>, name: &str) -> Result<[u8; 32], String> {
    let bytes = decode(given, name)?;
    let found = bytes.len();
    bytes
        .try_into()
        .map_err(|_| format!("`{name}` has {found} bytes; expected 32"))
}

fn decode(given: &Option<String>, name: &str) -> Result<Vec<u8>, String> {
    let given = given
        .as_ref()
        .ok_or_else(|| format!("`{name}` is missing"))?;
    URL_SAFE_NO_PAD
        .decode(given)
        .map_err(|_| format!("`{name}` is no base64url without padding"))
}
