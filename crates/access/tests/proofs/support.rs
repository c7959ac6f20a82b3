//! Keys, tokens and a prover of a test.

mod keys;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ringfence_access::{
    CertificateKind, Credentials, Issuer, IssuerKind, NotProven, Peer, Proven, Prover, Tokens,
};
use ringfence_core::ClusterToken;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) use keys::{SigningKey, base64url, compact};

/// The wall clock of most tests, in seconds since 1970.
pub(crate) const NOW: u64 = 1_800_000_000;
pub(crate) const ISSUER: &str = "https://idp.example";
pub(crate) const AUDIENCE: &str = "ringfence";

/// The cluster tokens of a test, and whether their node is behind.
#[derive(Default)]
pub(crate) struct Stored(
    pub(crate) Mutex<BTreeMap<u64, ClusterToken>>,
    pub(crate) AtomicBool,
);

impl Tokens for Stored {
    fn token(&self, id: u64) -> Option<ClusterToken> {
        self.0.lock().unwrap().get(&id).cloned()
    }

    fn has_caught_up(&self) -> bool {
        !self.1.load(Ordering::Relaxed)
    }
}

/// A node's prover with its key files.
pub(crate) struct Site {
    pub(crate) prover: Prover,
    pub(crate) tokens: Arc<Stored>,
    files: TempDir,
}

/// A JWKS with the public halves of these keys.
pub(crate) fn jwks(keys: &[&SigningKey]) -> String {
    let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
    json!({ "keys": keys }).to_string()
}

/// Claims that are good at [`NOW`].
pub(crate) fn claims(sub: &str) -> Value {
    json!({ "iss": ISSUER, "sub": sub, "aud": AUDIENCE, "exp": NOW + 600 })
}

/// [`claims`] with one of them changed, or removed if the value is null.
pub(crate) fn claims_but(name: &str, value: Value) -> Value {
    let mut claims = claims("alice");
    let fields = claims.as_object_mut().unwrap();
    match value {
        Value::Null => fields.remove(name),
        value => fields.insert(name.to_owned(), value),
    };
    claims
}

impl Site {
    /// One issuer, `corp`, with these keys.
    pub(crate) fn of(keys: &[&SigningKey]) -> Self {
        Self::with(&[("corp", ISSUER, IssuerKind::Jwt, jwks(keys))], None)
    }

    /// One Kubernetes, `prod`, with this key.
    pub(crate) fn of_kubernetes(key: &SigningKey) -> Self {
        Self::with(
            &[("prod", ISSUER, IssuerKind::Kubernetes, jwks(&[key]))],
            None,
        )
    }

    /// No issuer; this name of certificates counts.
    pub(crate) fn of_certificates(kind: CertificateKind) -> Self {
        Self::with(&[], Some(kind))
    }

    /// These issuers: alias, `iss`, kind and JWKS.
    pub(crate) fn with(
        issuers: &[(&str, &str, IssuerKind, String)],
        certificate: Option<CertificateKind>,
    ) -> Self {
        let files = tempfile::tempdir().unwrap();
        let issuers = issuers.iter().map(|(alias, issuer, kind, jwks)| {
            let keys = files.path().join(alias);
            fs::write(&keys, jwks).unwrap();
            Issuer {
                alias: (*alias).to_owned(),
                issuer: (*issuer).to_owned(),
                audience: AUDIENCE.to_owned(),
                keys,
                kind: *kind,
            }
        });
        let credentials = Credentials {
            certificate,
            issuers: issuers.collect(),
        };
        let tokens = Arc::new(Stored::default());
        let prover = Prover::new(credentials, tokens.clone(), NOW).unwrap();
        Self {
            prover,
            tokens,
            files,
        }
    }

    /// The key file of the issuer `corp`.
    pub(crate) fn key_file(&self) -> PathBuf {
        self.files.path().join("corp")
    }

    /// Replaces the key file of `corp` as an operator does: by a rename.
    pub(crate) fn replace_keys(&self, jwks: impl AsRef<[u8]>) {
        let new = self.files.path().join("new");
        fs::write(&new, jwks).unwrap();
        fs::rename(&new, self.key_file()).unwrap();
    }

    /// A bearer token on a connection of its own.
    pub(crate) fn prove_at(&self, token: &str, now: u64) -> Result<Proven, NotProven> {
        self.prove_on(&Peer::bare(), token, now)
    }

    /// The same at [`NOW`].
    pub(crate) fn prove(&self, token: &str) -> Result<Proven, NotProven> {
        self.prove_at(token, NOW)
    }

    pub(crate) fn prove_on(&self, peer: &Peer, token: &str, now: u64) -> Result<Proven, NotProven> {
        let header = format!("Bearer {token}");
        self.prover.prove(peer, Some(header.as_bytes()), now)
    }

    /// The principal that a token proves at [`NOW`].
    #[track_caller]
    pub(crate) fn principal(&self, token: &str) -> String {
        self.prove(token).unwrap().principal.to_string()
    }

    /// Why a token is refused at [`NOW`].
    #[track_caller]
    pub(crate) fn refusal(&self, token: &str) -> String {
        self.prove(token).unwrap_err().to_string()
    }

    /// Asserts that a token is refused at [`NOW`], and that the refusal says this.
    #[track_caller]
    pub(crate) fn assert_refused(&self, token: &str, why: &str) {
        let refusal = self.refusal(token);
        assert!(refusal.contains(why), "{refusal}");
    }
}
