//! Keys that sign JWTs. The tokens are put together by hand, so that a wrong one can be made.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};

/// A key of an issuer, with its id.
pub(crate) struct SigningKey {
    kid: Option<&'static str>,
    pair: Pair,
}

enum Pair {
    Rsa(Box<RsaKeyPair>),
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

pub(crate) fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The text of a JWT with this header and these claims, and what `sign` makes of both.
pub(crate) fn compact(
    header: impl AsRef<[u8]>,
    claims: impl AsRef<[u8]>,
    sign: impl FnOnce(&[u8]) -> Vec<u8>,
) -> String {
    let signed = format!("{}.{}", base64url(header), base64url(claims));
    let signature = base64url(sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

impl SigningKey {
    /// One of two RSA keys. They are files, since ring makes none.
    pub(crate) fn rsa(kid: &'static str) -> Self {
        let pem = match kid {
            "rsa-b" => include_str!("../keys/rsa_b.pem"),
            _ => include_str!("../keys/rsa_a.pem"),
        };
        let lines = pem.lines().filter(|line| !line.starts_with('-'));
        let der = STANDARD.decode(lines.collect::<String>()).unwrap();
        Self {
            kid: Some(kid),
            pair: Pair::Rsa(Box::new(RsaKeyPair::from_pkcs8(&der).unwrap())),
        }
    }

    /// A new key on P-256.
    pub(crate) fn p256(kid: &'static str) -> Self {
        let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let der = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        Self {
            kid: Some(kid),
            pair: Pair::P256(EcdsaKeyPair::from_pkcs8(kind, der.as_ref(), &random).unwrap()),
        }
    }

    /// A new key for Ed25519.
    pub(crate) fn ed25519(kid: &'static str) -> Self {
        let der = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self {
            kid: Some(kid),
            pair: Pair::Ed25519(Ed25519KeyPair::from_pkcs8(der.as_ref()).unwrap()),
        }
    }

    /// The same key without an id.
    pub(crate) fn unnamed(self) -> Self {
        Self { kid: None, ..self }
    }

    pub(crate) fn alg(&self) -> &'static str {
        match self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::P256(_) => "ES256",
            Pair::Ed25519(_) => "EdDSA",
        }
    }

    /// The public key as ring has it: PKCS#1, a point, or 32 bytes.
    pub(crate) fn public(&self) -> Vec<u8> {
        match &self.pair {
            Pair::Rsa(pair) => pair.public_key().as_ref().to_vec(),
            Pair::P256(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    /// The public key as an entry of a JWKS.
    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Rsa(pair) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({ "kty": "RSA", "n": base64url(public.n), "e": base64url(public.e) })
            }
            Pair::P256(_) => json!({
                "kty": "EC",
                "crv": "P-256",
                "x": base64url(&self.public()[1..33]),
                "y": base64url(&self.public()[33..]),
            }),
            Pair::Ed25519(_) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": base64url(self.public()) })
            }
        };
        if let Some(kid) = self.kid {
            jwk["kid"] = json!(kid);
        }
        jwk
    }

    pub(crate) fn sign(&self, signed: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, signed, &mut signature)
                    .unwrap();
                signature
            }
            Pair::P256(pair) => pair.sign(&random, signed).unwrap().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.sign(signed).as_ref().to_vec(),
        }
    }

    /// The header that an honest issuer writes.
    pub(crate) fn header(&self) -> Value {
        let mut header = json!({ "alg": self.alg(), "typ": "JWT" });
        if let Some(kid) = self.kid {
            header["kid"] = json!(kid);
        }
        header
    }

    /// An honest token with these claims.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_of(&self.header().to_string(), &claims.to_string())
    }

    /// A token with this header and these claims as JSON text, well signed.
    pub(crate) fn token_of(&self, header: &str, claims: &str) -> String {
        compact(header, claims, |signed| self.sign(signed))
    }
}
