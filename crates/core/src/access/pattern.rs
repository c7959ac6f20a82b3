//! Patterns of principals and of lease names: a whole text, or all that begins with one. The latter
//! ends in `*` behind a separator, so that `team-a/*` never covers `team-admin/x`.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use super::principal::{InvalidPrincipal, KINDS, Principal, check_bytes, namespace_of};
use crate::name::{InvalidName, LeaseName};

/// The name pattern that stands for the names of a service account's own namespace.
const OWN_NAMESPACE: &str = "k8s/{namespace}/*";

/// Which principals a rule is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PrincipalPattern {
    /// One principal.
    Exact(Principal),
    /// All that begin with this text, which ends in `:` or `/`; all there are if it is empty.
    Prefix(Arc<str>),
}

/// Which leases a rule is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NamePattern {
    /// One lease.
    Exact(LeaseName),
    /// All that begin with this text, which ends in `/`; all there are if it is empty.
    Prefix(Arc<str>),
    /// `k8s/{namespace}/*`: those under the namespace of the service account that asks. For rules
    /// whose principals are `sa:ALIAS:*` only.
    OwnNamespace,
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidPattern {
    /// It has a `*` that is not its end behind a separator.
    Star,
    /// Without its `*` it could not begin a principal.
    Principal(InvalidPrincipal),
    /// Without its `*` it could not begin a lease name.
    Name(InvalidName),
}

impl fmt::Display for InvalidPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Star => f.write_str(
                "`*` stands alone or at the end behind a separator: `/` in names, `:` or `/` in \
                 principals",
            ),
            Self::Principal(invalid) => fmt::Display::fmt(invalid, f),
            Self::Name(invalid) => fmt::Display::fmt(invalid, f),
        }
    }
}

impl core::error::Error for InvalidPattern {}

/// What stands before the final `*`, if there is one.
fn prefix_of<'a>(raw: &'a str, separators: &[u8]) -> Result<Option<&'a str>, InvalidPattern> {
    let Some(prefix) = raw.strip_suffix('*') else {
        return Ok(None);
    };
    let separated = prefix.is_empty()
        || prefix
            .bytes()
            .last()
            .is_some_and(|end| separators.contains(&end));
    match separated && !prefix.contains('*') {
        true => Ok(Some(prefix)),
        false => Err(InvalidPattern::Star),
    }
}

const IN_PRINCIPALS: &[u8] = b":/";
const IN_NAMES: &[u8] = b"/";

impl PrincipalPattern {
    /// Parses a principal, or what all that it stands for begin with and a `*`.
    ///
    /// # Errors
    /// [`InvalidPattern`] says what is wrong with it and what is allowed.
    pub fn parse(raw: &str) -> Result<Self, InvalidPattern> {
        let Some(prefix) = prefix_of(raw, IN_PRINCIPALS)? else {
            let exact = Principal::parse(raw).map_err(InvalidPattern::Principal)?;
            return Ok(Self::Exact(exact));
        };
        check_bytes(prefix).map_err(InvalidPattern::Principal)?;
        let begins = |kind: &&'static str| {
            kind.starts_with(prefix) || (kind.ends_with(':') && prefix.starts_with(*kind))
        };
        if !KINDS.iter().any(begins) {
            return Err(InvalidPattern::Principal(InvalidPrincipal::UnknownKind));
        }
        Ok(Self::Prefix(Arc::from(prefix)))
    }

    /// Whether it stands for this principal.
    #[must_use]
    pub fn covers(&self, principal: &Principal) -> bool {
        match self {
            Self::Exact(exact) => exact == principal,
            Self::Prefix(prefix) => principal.as_str().starts_with(&**prefix),
        }
    }

    /// Whether it stands for service accounts of one cluster of Kubernetes, and nothing else.
    pub(crate) fn is_service_accounts(&self) -> bool {
        match self {
            Self::Exact(principal) => namespace_of(principal.as_str()).is_some(),
            Self::Prefix(prefix) => prefix
                .strip_prefix("sa:")
                .is_some_and(|rest| rest.contains(':')),
        }
    }
}

impl NamePattern {
    /// All names.
    #[must_use]
    pub fn all() -> Self {
        Self::Prefix(Arc::from(""))
    }

    /// All names that begin with this text, or with what of it ends at a separator.
    pub(crate) fn covering(prefix: &str) -> Self {
        let end = prefix.rfind('/').map_or(0, |at| at + 1);
        Self::Prefix(Arc::from(prefix.get(..end).unwrap_or_default()))
    }

    /// Parses a lease name, what all that it stands for begin with and a `*`, or the template
    /// `k8s/{namespace}/*`.
    ///
    /// # Errors
    /// [`InvalidPattern`] says what is wrong with it and what is allowed.
    pub fn parse(raw: &str) -> Result<Self, InvalidPattern> {
        if raw == OWN_NAMESPACE {
            return Ok(Self::OwnNamespace);
        }
        let Some(prefix) = prefix_of(raw, IN_NAMES)? else {
            let exact = LeaseName::parse(raw).map_err(InvalidPattern::Name)?;
            return Ok(Self::Exact(exact));
        };
        if let Some(segments) = prefix.strip_suffix('/') {
            LeaseName::parse(segments).map_err(InvalidPattern::Name)?;
        }
        Ok(Self::Prefix(Arc::from(prefix)))
    }
}

impl fmt::Display for PrincipalPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(principal) => fmt::Display::fmt(principal, f),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => fmt::Display::fmt(name, f),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
            Self::OwnNamespace => f.write_str(OWN_NAMESPACE),
        }
    }
}

/// Values by pattern. What covers a text is found by a few searches, one per separator in the text,
/// however many patterns there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ByPattern<V> {
    exact: BTreeMap<String, V>,
    prefixes: BTreeMap<String, V>,
}

impl<V> Default for ByPattern<V> {
    fn default() -> Self {
        let (exact, prefixes) = (BTreeMap::new(), BTreeMap::new());
        Self { exact, prefixes }
    }
}

impl<V: Default> ByPattern<V> {
    /// The value of the pattern that covers `text` alone, made if it is not there.
    pub(crate) fn exact_mut(&mut self, text: &str) -> &mut V {
        self.exact.entry(text.into()).or_default()
    }

    /// The value of the pattern that covers what begins with `prefix`, made if it is not there.
    pub(crate) fn prefix_mut(&mut self, prefix: &str) -> &mut V {
        self.prefixes.entry(prefix.into()).or_default()
    }

    /// The values of all patterns that cover `text`. `separators` are those behind which a prefix
    /// may end.
    fn covering<'v>(&'v self, text: &str, separators: &[u8]) -> impl Iterator<Item = &'v V> {
        let ends = text.bytes().enumerate();
        let ends = ends
            .filter(|(_, byte)| separators.contains(byte))
            .map(|(at, _)| at + 1);
        let ends = core::iter::once(0).chain(ends);
        let prefixes = ends.filter_map(|end| self.prefixes.get(text.get(..end)?));
        self.exact.get(text).into_iter().chain(prefixes)
    }

    /// The values of all patterns that cover this principal.
    pub(crate) fn covering_principal<'v>(&'v self, principal: &str) -> impl Iterator<Item = &'v V> {
        self.covering(principal, IN_PRINCIPALS)
    }

    /// The values of all patterns that cover this name.
    pub(crate) fn covering_name<'v>(&'v self, name: &str) -> impl Iterator<Item = &'v V> {
        self.covering(name, IN_NAMES)
    }

    /// The values of all patterns that cover whatever begins with `prefix`.
    pub(crate) fn covering_all_under<'v>(&'v self, prefix: &str) -> impl Iterator<Item = &'v V> {
        let ends = prefix.bytes().enumerate();
        let ends = ends
            .filter(|(_, byte)| IN_NAMES.contains(byte))
            .map(|(at, _)| at + 1);
        let ends = core::iter::once(0).chain(ends);
        ends.filter_map(|end| self.prefixes.get(prefix.get(..end)?))
    }
}
