//! What a store holds, and which of the writes that it took are stale.

use std::collections::BTreeMap;
use std::fmt;

use ringfence_client::{FencingToken, LeaseName};

/// The most stale writes that a store notes; later ones are only in the story.
const STALE_WRITES_MAX: usize = 1_000;

/// A write that a store must not take: a guard would have refused it, or it takes another one back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleWrite {
    /// The process that wrote.
    pub writer: String,
    /// The token it wrote under; `None`: it was never granted the lease.
    pub token: Option<FencingToken>,
    /// What is wrong with it.
    pub why: Stale,
    /// What it wrote, as `Debug` shows it.
    pub value: String,
}

/// Why a write is stale.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stale {
    /// Its process was never granted the lease of the store.
    NoToken,
    /// It came under a fence of another lease.
    OtherLease(LeaseName),
    /// The store had seen this greater token.
    Seen(FencingToken),
    /// This process has written since the writer's connection read last: what it wrote is lost.
    Lost(String),
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoToken => write!(f, "it was never granted the lease of the store"),
            Self::OtherLease(name) => write!(f, "that token is of the lease {name}"),
            Self::Seen(token) => write!(f, "the store had seen token {token}"),
            Self::Lost(by) => write!(f, "{by} had written since it read last"),
        }
    }
}

impl fmt::Display for StaleWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            writer,
            token,
            why,
            value,
        } = self;
        match token {
            Some(token) => write!(f, "{writer} wrote {value} under token {token}: {why}"),
            None => write!(f, "{writer} wrote {value} under no token: {why}"),
        }
    }
}

/// How many writes there were before: what a reader knows of the others.
pub(crate) type Version = u64;

/// The data, and what its readers and writers showed.
pub(crate) struct Ledger<T> {
    pub(crate) value: T,
    pub(crate) seen: Option<FencingToken>,
    version: Version,
    /// The last write of each process.
    last: BTreeMap<String, Version>,
    pub(crate) stale: Vec<StaleWrite>,
}

impl<T: fmt::Debug> Ledger<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value,
            seen: None,
            version: 0,
            last: BTreeMap::new(),
            stale: Vec::new(),
        }
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// A token has shown itself.
    pub(crate) fn see(&mut self, token: Option<FencingToken>) {
        self.seen = self.seen.max(token);
    }

    /// What is wrong with a write of a connection that read last at `since`; `None` if it never read.
    pub(crate) fn judge(
        &self,
        writer: &str,
        token: Option<FencingToken>,
        since: Option<Version>,
    ) -> Option<Stale> {
        if token.is_none() {
            return Some(Stale::NoToken);
        }
        if let Some(seen) = self.seen.filter(|seen| token < Some(*seen)) {
            return Some(Stale::Seen(seen));
        }
        // Without a read nothing was built on anything: the last writer wins, as it means to.
        let since = since?;
        let others = self.last.iter().filter(|(name, _)| *name != writer);
        let later = others.filter(|(_, version)| **version > since);
        let (by, _) = later.max_by_key(|(_, version)| **version)?;
        Some(Stale::Lost(by.clone()))
    }

    /// Takes a write, and notes what is wrong with it.
    pub(crate) fn write(
        &mut self,
        writer: &str,
        token: Option<FencingToken>,
        why: Option<Stale>,
        value: T,
    ) {
        // Tokens of other leases have their place in no order of this one.
        if !matches!(why, Some(Stale::OtherLease(_))) {
            self.see(token);
        }
        if let Some(why) = why
            && self.stale.len() < STALE_WRITES_MAX
        {
            self.stale.push(StaleWrite {
                writer: writer.to_owned(),
                token,
                why,
                value: format!("{value:?}"),
            });
        }
        self.version += 1;
        self.last.insert(writer.to_owned(), self.version);
        self.value = value;
    }
}
