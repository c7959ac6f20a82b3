//! The proof: which credential counts, in which order.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::buckets::{Buckets, Rate};
use crate::cache::{Cache, Proof};
use crate::certificate::CertificateKind;
use crate::cluster_token::{self, Tokens, sha256};
use crate::credentials::{Credentials, InvalidCredentials};
use crate::failures::Failures;
use crate::jwt::{self, Verifier};
use crate::limits::{
    FAILED_PROOFS_PER_CONNECTION, FAILED_PROOFS_PER_NODE, FAILED_PROOFS_PER_SOURCE,
    SOURCES_COUNTED_MAX, TOKEN_BYTES_MAX,
};
use crate::not_proven::{Credential, NotProven, Reached};
use crate::peer::Peer;
use crate::proven::Proven;

/// Proves who calls. One is shared by all connections of a node.
pub struct Prover {
    certificate: Option<CertificateKind>,
    issuers: Vec<Verifier>,
    tokens: Arc<dyn Tokens>,
    cache: Mutex<Cache>,
    failures: Failures,
    sources: Buckets,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    proven: AtomicU64,
    cached: AtomicU64,
    limited: AtomicU64,
    /// By kind, in the order of [`Credential`].
    failed: [AtomicU64; 4],
}

/// What a [`Prover`] has done since the node started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Requests whose caller was proven, `anonymous` among them.
    pub proven: u64,
    /// How many of these brought a JWT that had been verified before.
    pub cached: u64,
    /// Requests that were refused without a look, after too many failed proofs.
    pub limited: u64,
    /// Failed proofs by header, cluster token, JWT and certificate.
    pub failed: [(Credential, u64); 4],
    /// How often files with keys of issuers were read.
    pub key_file_reads: u64,
    /// Of how many issuers the former keys are in use, because their file cannot be.
    pub key_files_unusable: usize,
    /// How many verified JWTs are remembered.
    pub cached_proofs: usize,
}

/// What a proof has to meet.
#[derive(Clone, Copy)]
pub struct Demand<'a> {
    /// Whether a caller that is not proven is refused. Where it is served as `anonymous`, other callers of
    /// its source, which may be a gateway, do not make it one.
    pub binds: bool,
    /// For what a JWT counts that has expired; for nothing if this is left out.
    pub grace: Option<Grace<'a>>,
}

/// A JWT beyond its end.
#[derive(Clone, Copy)]
pub struct Grace<'a> {
    /// For how long it may count, in seconds.
    pub seconds: u64,
    /// Whether it counts for what is asked. What is proven by it does
    /// [not hold](Proven::holds_at) any more.
    pub counts: &'a dyn Fn(&Proven) -> Result<(), NotProven>,
}

impl Demand<'_> {
    /// A caller is refused that is not proven by what holds now.
    pub const FULL: Self = Self {
        binds: true,
        grace: None,
    };

    /// For how many seconds a JWT is verified beyond its end. Where some of these count, all are: what is
    /// verified is remembered, so that a refusal costs little and none is charged for it.
    fn verified_for(&self) -> u64 {
        self.grace.map_or(0, |_| u64::MAX)
    }

    /// Takes what is verified, if it holds or counts all the same.
    fn check(&self, proven: &Proven, now: u64) -> Result<(), NotProven> {
        match &self.grace {
            _ if proven.holds_at(now) => Ok(()),
            Some(grace) if proven.holds_at(now.saturating_sub(grace.seconds)) => {
                (grace.counts)(proven)
            }
            _ => Err(NotProven::EXPIRED),
        }
    }
}

const KINDS: [Credential; 4] = [
    Credential::Header,
    Credential::ClusterToken,
    Credential::Jwt,
    Credential::Certificate,
];

impl Prover {
    /// A prover by these credentials and the cluster tokens of `tokens`. `now` is the wall clock, in
    /// seconds since 1970. Files with keys are read once, so that what is wrong with them is reported
    /// at once.
    ///
    /// # Errors
    /// [`InvalidCredentials`] says what is wrong, and what is expected.
    pub fn new(
        credentials: Credentials,
        tokens: Arc<dyn Tokens>,
        now: u64,
    ) -> Result<Self, InvalidCredentials> {
        credentials.check()?;
        let issuers = credentials.issuers.into_iter();
        let issuers: Result<Vec<_>, _> =
            issuers.map(|issuer| Verifier::open(issuer, now)).collect();
        Ok(Self {
            certificate: credentials.certificate,
            issuers: issuers?,
            tokens,
            cache: Mutex::default(),
            failures: Failures::at_most(FAILED_PROOFS_PER_NODE),
            sources: Buckets::new(FAILED_PROOFS_PER_SOURCE, SOURCES_COUNTED_MAX),
            counts: Counts::default(),
        })
    }

    /// The same with another limit of failed proofs from one source.
    #[must_use]
    pub fn with_source_limit(mut self, rate: Rate) -> Self {
        self.sources = Buckets::new(rate, SOURCES_COUNTED_MAX);
        self
    }

    /// A connection whose other side showed these certificates (DER, its own first) in the handshake,
    /// where they were verified. None: it showed none.
    #[must_use]
    pub fn peer(&self, certificates: &[impl AsRef<[u8]>]) -> Peer {
        Peer::with(certificates, self.certificate)
    }

    /// Who makes a request with this `authorization` header on this connection, at `now` in seconds
    /// since 1970.
    ///
    /// # Errors
    /// [`NotProven`]: the request must be refused, and not be served as `anonymous`.
    pub fn prove(
        &self,
        peer: &Peer,
        authorization: Option<&[u8]>,
        now: u64,
    ) -> Result<Proven, NotProven> {
        self.prove_as(peer, authorization, now, Demand::FULL)
    }

    /// The same with another demand.
    ///
    /// # Errors
    /// [`NotProven`] as above.
    pub fn prove_as(
        &self,
        peer: &Peer,
        authorization: Option<&[u8]>,
        now: u64,
        demand: Demand<'_>,
    ) -> Result<Proven, NotProven> {
        self.counted(match authorization {
            Some(header) => self.by_header(peer, header, now, demand),
            None => peer.proven(now),
        })
    }

    fn counted(&self, proven: Result<Proven, NotProven>) -> Result<Proven, NotProven> {
        match &proven {
            Err(not) if not.behind => return proven,
            Ok(_) => &self.counts.proven,
            Err(not) if not.limited => &self.counts.limited,
            Err(not) => &self.counts.failed[not.credential as usize],
        }
        .fetch_add(1, Ordering::Relaxed);
        proven
    }

    /// What was done so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Figures {
            proven: of(&self.counts.proven),
            cached: of(&self.counts.cached),
            limited: of(&self.counts.limited),
            failed: KINDS.map(|kind| (kind, of(&self.counts.failed[kind as usize]))),
            key_file_reads: self.issuers.iter().map(Verifier::reads).sum(),
            key_files_unusable: self.issuers.iter().filter(|of| of.is_stale()).count(),
            cached_proofs: self.cache().len(),
        }
    }

    fn by_header(
        &self,
        peer: &Peer,
        header: &[u8],
        now: u64,
        demand: Demand<'_>,
    ) -> Result<Proven, NotProven> {
        let bearer = bearer(header);
        // Before the limit: a caller that was proven does not suffer from others behind its gateway.
        if let Ok(token) = &bearer
            && let Some(answer) = self.remembered(token, now, demand)
        {
            return answer;
        }
        self.check_limits(peer, now)?;
        // A look at a cluster token costs one digest, less than a request of anybody: its bearer need
        // not suffer from others behind its address either.
        let costs_little = matches!(&bearer, Ok(token) if token.starts_with(cluster_token::PREFIX));
        if demand.binds && !costs_little {
            self.check_source(peer, now)?;
        }
        let proven = bearer.and_then(|token| self.by_token(token, now, demand));
        // An answer that says nothing of the credential is no failed proof: a guess gains nothing by it. Nor
        // is what was verified and remembered: many candidates with expired tokens may be behind one gateway.
        let remembered = |not: &NotProven| demand.grace.is_some() && not.is_expired();
        if matches!(&proven, Err(not) if !not.behind && !remembered(not)) {
            peer.failures().count(now);
            self.failures.count(now);
            if let Some(source) = peer.source() {
                self.sources.charge(&source, 1, Duration::from_secs(now));
            }
        }
        proven
    }

    fn check_source(&self, peer: &Peer, now: u64) -> Result<(), NotProven> {
        let Some(source) = peer.source() else {
            return Ok(());
        };
        let Err(exceeded) = self.sources.look(&source, Duration::from_secs(now)) else {
            return Ok(());
        };
        let max = self.sources.rate().per_second;
        let why = format!(
            "too many failed proofs from {source}: at most {max} a second; the credential was not \
             looked at, retry in a second"
        );
        Err(NotProven {
            limited: true,
            reached: Some(Reached {
                limit: "failed_proofs_per_source",
                max,
                // The wall clock of proofs counts whole seconds.
                retry_after: exceeded.retry_after.max(Duration::from_secs(1)),
            }),
            ..NotProven::because(Credential::Header, why)
        })
    }

    fn check_limits(&self, peer: &Peer, now: u64) -> Result<(), NotProven> {
        let of_connection = peer.failures().in_second(now);
        let (scope, limit, max) = if of_connection >= FAILED_PROOFS_PER_CONNECTION {
            let limit = "failed_proofs_per_connection";
            ("connection", limit, FAILED_PROOFS_PER_CONNECTION)
        } else if of_connection > 0 && self.failures.are_too_many(now) {
            ("node", "failed_proofs_per_node", FAILED_PROOFS_PER_NODE)
        } else {
            return Ok(());
        };
        let why = format!(
            "too many failed proofs on this {scope}: at most {max} in a second; the credential was \
             not looked at, retry in a second"
        );
        Err(NotProven {
            limited: true,
            reached: Some(Reached {
                limit,
                max: max.into(),
                retry_after: Duration::from_secs(1),
            }),
            ..NotProven::because(Credential::Header, why)
        })
    }

    /// What a JWT proves that was verified before.
    fn remembered(
        &self,
        token: &str,
        now: u64,
        demand: Demand<'_>,
    ) -> Option<Result<Proven, NotProven>> {
        if self.issuers.is_empty() || token.starts_with(cluster_token::PREFIX) {
            return None;
        }
        let digest = sha256(token.as_bytes());
        let proof = self.cache().get(&digest)?;
        // The keys may have been replaced since, and the cache is not held while a file is read.
        if !jwt::is_current(&self.issuers, proof.by, now) {
            self.cache().remove(&digest);
            return None;
        }
        // Another port may take what is too old for this one, so it stays.
        if let Err(not) = demand.check(&proof.proven, now) {
            return Some(Err(not));
        }
        self.counts.cached.fetch_add(1, Ordering::Relaxed);
        Some(Ok(proof.proven))
    }

    fn by_token(&self, token: &str, now: u64, demand: Demand<'_>) -> Result<Proven, NotProven> {
        if token.starts_with(cluster_token::PREFIX) {
            return cluster_token::prove(token, self.tokens.as_ref(), now);
        }
        if self.issuers.is_empty() {
            return Err(NotProven::new(
                Credential::Header,
                "the bearer token is no cluster token (rft_…), and this node takes no JWTs; start it \
                 with --jwt-issuer",
            ));
        }
        let (proven, by) = jwt::prove(token, &self.issuers, now, demand.verified_for())?;
        let proof = Proof {
            proven: proven.clone(),
            by,
        };
        self.cache().insert(sha256(token.as_bytes()), proof);
        demand.check(&proven, now)?;
        Ok(proven)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Prover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prover")
            .field("certificate", &self.certificate)
            .field("issuers", &self.issuers.len())
            .finish_non_exhaustive()
    }
}

/// The token of an `authorization` header.
fn bearer(header: &[u8]) -> Result<&str, NotProven> {
    const OTHER: NotProven = NotProven::new(
        Credential::Header,
        "the authorization header is not `Bearer TOKEN`, the only form that is supported",
    );
    let header = std::str::from_utf8(header).map_err(|_| OTHER)?;
    let (scheme, token) = header.split_once(' ').ok_or(OTHER)?;
    let token = token.trim_matches(' ');
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
        return Err(OTHER);
    }
    if token.len() > TOKEN_BYTES_MAX {
        let why = format!(
            "the bearer token has {} bytes; at most {TOKEN_BYTES_MAX} are allowed",
            token.len()
        );
        return Err(NotProven::because(Credential::Header, why));
    }
    Ok(token)
}
