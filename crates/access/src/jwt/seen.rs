//! What a file of keys shows to people, before a node uses it.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::key::Keys;
use super::key_file::bytes;
use crate::certificate::Validity;

/// The keys of a JWKS that a node would use, and for how long the issuer means to use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwksSeen {
    /// How many keys can verify signatures.
    pub keys: usize,
    /// The validity of each key that states one, by its first certificate (`x5c`) or its `exp`. A node
    /// does not look at it; an issuer that has ended its keys signs by others.
    pub validities: Vec<Validity>,
}

impl JwksSeen {
    /// Reads a file as a node would.
    ///
    /// # Errors
    /// Why a node could not use it, and what is expected.
    pub fn of(path: &Path) -> Result<Self, String> {
        let text = bytes(path)?;
        let keys = Keys::parse(&text)?.len();
        let jwks: Value = serde_json::from_slice(&text).unwrap_or_default();
        let listed = jwks["keys"].as_array().map_or(&[][..], Vec::as_slice);
        let validities = listed.iter().filter_map(validity).collect();
        Ok(Self { keys, validities })
    }
}

fn validity(key: &Value) -> Option<Validity> {
    let certificate = key["x5c"][0].as_str().and_then(|text| {
        let der = STANDARD.decode(text).ok()?;
        let (_, certificate) = X509Certificate::from_der(&der).ok()?;
        Some(Validity::of(&certificate))
    });
    let stated = key["exp"].as_u64();
    certificate.or(stated.map(|until| Validity { from: 0, until }))
}
