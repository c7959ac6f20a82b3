//! Cluster tokens: `rft_<id>_<secret>`, with 256 random bits that the cluster keeps only a digest of.
//!
//! The digest is SHA-256, a fast hash. Slow hashes protect secrets that can be guessed; 256 random
//! bits cannot, and a slow hash would let each bad token take milliseconds of a processor.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;

use crate::limits::LEEWAY;
use crate::not_proven::{Credential, NotProven};
use crate::proven::Proven;
use ringfence_core::ClusterToken;

/// What a cluster token begins with.
pub(crate) const PREFIX: &str = "rft_";
/// The secret of a token, in bytes.
const SECRET_BYTES: usize = 32;
/// The same as text.
const SECRET_TEXT_BYTES: usize = 43;
/// The longest id as text: that of the greatest number.
const ID_TEXT_BYTES_MAX: usize = 20;

/// The cluster tokens, as the state of the cluster has them.
pub trait Tokens: Send + Sync {
    /// The token with this id, unless there is none, or it was revoked.
    fn token(&self, id: u64) -> Option<ClusterToken>;

    /// Whether this state has held all tokens of the cluster at some time since the node started. Before
    /// that it may be from long ago, and a token that it has not proves nothing.
    fn has_caught_up(&self) -> bool;
}

/// The 256 random bits of a token.
#[derive(Clone)]
pub struct TokenSecret([u8; SECRET_BYTES]);

/// A token as its owner has it.
#[derive(Clone, Debug)]
pub struct BearerToken {
    /// The id, which is never given to another token.
    pub id: u64,
    /// The secret.
    pub secret: TokenSecret,
}

impl TokenSecret {
    /// A new one, of the system's randomness.
    ///
    /// # Panics
    /// If the system gives no randomness.
    #[must_use]
    pub fn generate() -> Self {
        let mut secret = [0; SECRET_BYTES];
        SystemRandom::new()
            .fill(&mut secret)
            .expect("the system has randomness");
        Self(secret)
    }

    /// What the cluster keeps of it.
    #[must_use]
    pub fn sha256(&self) -> [u8; 32] {
        sha256(&self.0)
    }

    /// Whether it is the secret with this digest. The time that it takes does not depend on how much
    /// of the digest fits.
    #[must_use]
    pub fn matches(&self, sha256: &[u8; 32]) -> bool {
        self.sha256().ct_eq(sha256).into()
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSecret(…)")
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = digest(&SHA256, bytes);
    let mut out = [0; 32];
    out.copy_from_slice(digest.as_ref());
    out
}

impl BearerToken {
    /// Parses `rft_<id>_<43 characters>`. There is one text for each token.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let digits = id.bytes().all(|byte| byte.is_ascii_digit());
        if !digits || id.len() > ID_TEXT_BYTES_MAX || (id.starts_with('0') && id != "0") {
            return None;
        }
        let id = id.parse().ok()?;
        if secret.len() != SECRET_TEXT_BYTES {
            return None;
        }
        let secret = URL_SAFE_NO_PAD.decode(secret).ok()?;
        Some(Self {
            id,
            secret: TokenSecret(secret.try_into().ok()?),
        })
    }

    /// The text that its owner keeps. It is a secret: it stands in no log, error or metric.
    #[must_use]
    pub fn to_text(&self) -> String {
        let secret = URL_SAFE_NO_PAD.encode(self.secret.0);
        format!("{PREFIX}{}_{secret}", self.id)
    }
}

/// The caller that brings this token.
pub(crate) fn prove(text: &str, tokens: &dyn Tokens, now: u64) -> Result<Proven, NotProven> {
    const fn not(why: &'static str) -> NotProven {
        NotProven::new(Credential::ClusterToken, why)
    }
    /// The same for an unknown id and for a wrong secret.
    const UNKNOWN: NotProven =
        not("no cluster token of this cluster; it may be revoked, or another cluster's");
    /// The same for both while it is not sure.
    const BEHIND: &str = "this node has not caught up yet, so it may not know this cluster token";

    let offered = BearerToken::parse(text)
        .ok_or(const { not("malformed cluster token; expected rft_ID_ and 43 characters") })?;
    let look = || {
        let stored = tokens.token(offered.id);
        stored.filter(|stored| offered.secret.matches(&stored.digest))
    };
    let stored = match look() {
        Some(stored) => stored,
        // It may have come since.
        None if tokens.has_caught_up() => look().ok_or(UNKNOWN)?,
        None => {
            return Err(NotProven {
                behind: true,
                ..not(BEHIND)
            });
        }
    };
    let mut proven = Proven::of(stored.principal);
    proven.token = Some(offered.id);
    proven.expires_unix = stored.expires.map(|ends| ends.saturating_add(LEEWAY));
    match proven.holds_at(now) {
        true => Ok(proven),
        false => Err(not("the cluster token has expired; ask for a new one")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_token_has_one_text() {
        let token = BearerToken {
            id: 17,
            secret: TokenSecret::generate(),
        };
        let text = token.to_text();
        assert_eq!(text.len(), "rft_17_".len() + SECRET_TEXT_BYTES);
        let again = BearerToken::parse(&text).unwrap();
        assert_eq!((again.id, again.to_text()), (17, text.clone()));
        assert!(again.secret.matches(&token.secret.sha256()));

        let secret = text.strip_prefix("rft_17_").unwrap();
        for other in [
            format!("rft_017_{secret}"),
            format!("rft_+17_{secret}"),
            format!("rft__{secret}"),
            format!("rft_17_{secret}A"),
            format!("rft_17_{secret}="),
            format!("rft_17_{}", &secret[1..]),
            format!("RFT_17_{secret}"),
            format!("rft_99999999999999999999_{secret}"),
            "rft_17".to_owned(),
            // The last character carries four bits; the two below them must be zero.
            format!("rft_17_{}B", &secret[..42]),
        ] {
            assert!(BearerToken::parse(&other).is_none(), "{other}");
        }
    }

    #[test]
    fn secrets_differ_and_are_not_shown() {
        let (one, two) = (TokenSecret::generate(), TokenSecret::generate());
        assert_ne!(one.0, two.0);
        assert!(!one.matches(&two.sha256()));
        assert_eq!(format!("{one:?}"), "TokenSecret(…)");
    }
}
