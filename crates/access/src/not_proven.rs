//! Why a caller is not proven.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use ringfence_core::{InvalidPrincipal, PRINCIPAL_BYTES_MAX};

/// A caller that offered a credential and is not proven by it. It must be refused: what was offered
/// and does not hold is no reason to take the caller for `anonymous`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotProven {
    /// What was offered.
    pub credential: Credential,
    /// What is wrong with it, and what is expected. It repeats no part of the credential.
    pub why: Cow<'static, str>,
    /// Whether nothing can be said of it, since the node that was asked may not know yet what the cluster
    /// knows: the same credential may be good at another node, and here in a moment.
    pub behind: bool,
    /// Whether it was not looked at because too many proofs have failed: the same credential may be
    /// good in the next second.
    pub limited: bool,
    /// The limit that was reached, if it is that.
    pub reached: Option<Reached>,
}

/// A limit of failed proofs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Its name, as `failed_proofs_per_source`.
    pub limit: &'static str,
    /// How many may fail in a second.
    pub max: u64,
    /// When a credential is looked at again.
    pub retry_after: Duration,
}

/// The kinds of credentials, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Credential {
    /// An `authorization` header that is none of those below.
    Header,
    /// A cluster token.
    ClusterToken,
    /// A JWT, of a service account or another.
    Jwt,
    /// A client certificate.
    Certificate,
}

impl Credential {
    /// A word for labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::ClusterToken => "cluster_token",
            Self::Jwt => "jwt",
            Self::Certificate => "certificate",
        }
    }
}

impl NotProven {
    /// A request with several `authorization` headers: which of them names the caller is open.
    pub const SEVERAL_HEADERS: Self = Self::new(
        Credential::Header,
        "the request has several authorization headers; send one",
    );

    /// A JWT whose time is over; everything else about it is right.
    pub const EXPIRED: Self = Self::new(Credential::Jwt, "the JWT has expired; get a new one");

    /// Whether it is [that](Self::EXPIRED).
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.why == Self::EXPIRED.why
    }

    pub(crate) const fn new(credential: Credential, why: &'static str) -> Self {
        Self {
            credential,
            why: Cow::Borrowed(why),
            behind: false,
            limited: false,
            reached: None,
        }
    }

    pub(crate) fn because(credential: Credential, why: String) -> Self {
        Self {
            credential,
            why: Cow::Owned(why),
            behind: false,
            limited: false,
            reached: None,
        }
    }

    /// A name in a credential that makes no principal.
    pub(crate) fn unfit(credential: Credential, name: &str, invalid: &InvalidPrincipal) -> Self {
        let found = match invalid {
            InvalidPrincipal::UnknownKind => "is empty".to_owned(),
            InvalidPrincipal::TooLong { bytes } => format!("makes a principal of {bytes} bytes"),
            InvalidPrincipal::Forbidden { .. } => {
                "contains a byte that is not printable ASCII, a space, or a `*`".to_owned()
            }
        };
        let why = format!(
            "{name} {found}; a principal is at most {PRINCIPAL_BYTES_MAX} bytes of printable ASCII \
             without spaces and `*`, and is never cut"
        );
        Self::because(credential, why)
    }
}

impl fmt::Display for NotProven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for NotProven {}
