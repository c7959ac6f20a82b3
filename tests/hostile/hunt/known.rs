//! What hostile clients know: what they own, what they have overheard, and what they guess.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use rand::Rng;
use rand::rngs::StdRng;
use ringfence_proto::v1::SessionHandle;

use super::bandit::OWN;

/// Stands in every name that is hidden from hostile clients, and in the names of those who use them.
pub(super) const HIDDEN: &str = "kestrel";
/// Stands in the identity of every honest holder of a hidden name, and in no request of hostile clients.
pub(super) const UNSEEN: &str = "osprey";
/// What honest sessions call themselves that are never kept alive, so that they end in time.
pub(super) const SILENT_IDENTITY: &str = "silent";
/// The most tokens that are remembered.
const TOKENS_MAX: usize = 256;
/// The most own sessions that are named again.
const OWN_MAX: usize = 512;

/// A session that was overheard.
#[derive(Clone, Debug)]
pub(super) struct Stolen {
    /// Its number and its true secret.
    pub(super) handle: SessionHandle,
    /// The name under which it was opened.
    pub(super) open_id: Bytes,
}

/// Shared by all hostile clients.
#[derive(Default)]
pub(super) struct Known {
    /// Sessions of the honest, all of which live as long as the hunt.
    pub(super) stolen: Vec<Stolen>,
    /// The cluster's id.
    pub(super) cluster: Bytes,
    /// Sessions that hostile clients have opened: whose they are, and their secrets.
    own: Mutex<BTreeMap<u64, (&'static str, Bytes)>>,
    tokens: Mutex<Vec<u64>>,
    number: AtomicU64,
}

impl Known {
    /// What is known at the beginning.
    pub(super) fn new(stolen: Vec<Stolen>, cluster: Bytes) -> Self {
        Self {
            stolen,
            cluster,
            ..Self::default()
        }
    }

    /// Remembers a session that a hostile client has opened.
    pub(super) fn opened(&self, by: &'static str, session: u64, secret: Bytes) {
        self.own.lock().unwrap().insert(session, (by, secret));
    }

    /// Whose session it is, if it is a hostile client's.
    pub(super) fn owner(&self, session: u64) -> Option<&'static str> {
        let own = self.own.lock().unwrap();
        own.get(&session).map(|(by, _)| *by)
    }

    /// Whether it is a session of the honest.
    pub(super) fn is_honest(&self, session: u64) -> bool {
        let mut stolen = self.stolen.iter();
        stolen.any(|stolen| stolen.handle.session == session)
    }

    /// Remembers a token.
    pub(super) fn token(&self, token: u64) {
        let mut tokens = self.tokens.lock().unwrap();
        if tokens.len() == TOKENS_MAX {
            tokens.remove(0);
        }
        tokens.push(token);
    }

    /// A number that no request had.
    pub(super) fn number(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The last of these numbers.
    pub(super) fn last_number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// A token that was granted, or is near one, or is anything.
    pub(super) fn any_token(&self, random: &mut StdRng) -> u64 {
        let tokens = self.tokens.lock().unwrap();
        match random.random_range(0..10) {
            0 => random.random(),
            1 => [0, 1, u64::MAX, 1 << 63, 1 << 53][random.random_range(0..5)],
            _ if tokens.is_empty() => 1,
            n => {
                let at = tokens.len() - 1 - random.random_range(0..tokens.len().min(40));
                tokens[at] + u64::from(n == 2)
            }
        }
    }

    /// A session of its own, of the honest with the true secret or a guessed one, or of no client.
    pub(super) fn any_session(&self, random: &mut StdRng, of: &str) -> SessionHandle {
        let guess = |random: &mut StdRng| Bytes::from(random.random::<[u8; 16]>().to_vec());
        let stolen = |random: &mut StdRng| {
            let at = random.random_range(0..self.stolen.len().max(1));
            self.stolen.get(at).map(|stolen| stolen.handle.clone())
        };
        let drawn = match random.random_range(0..20) {
            0..=11 => self.own_session(random, of),
            12..=15 => stolen(random),
            16..=17 => stolen(random).map(|handle| SessionHandle {
                secret: guess(random),
                ..handle
            }),
            // Its own number with a secret of another's, or the other way round.
            18 => stolen(random)
                .zip(self.own_session(random, of))
                .map(|(stolen, own)| SessionHandle {
                    session: stolen.session,
                    secret: own.secret,
                }),
            _ => None,
        };
        drawn.unwrap_or_else(|| {
            let session = match random.random_range(0..3) {
                0 => random.random(),
                1 => random.random_range(0..200),
                _ => 0,
            };
            let length = random.random_range(0..40);
            let secret: Vec<u8> = (0..length).map(|_| random.random()).collect();
            let secret = secret.into();
            SessionHandle { session, secret }
        })
    }

    fn own_session(&self, random: &mut StdRng, of: &str) -> Option<SessionHandle> {
        let own = self.own.lock().unwrap();
        // The newest ones live.
        let newest = own.iter().rev().filter(|(_, (by, _))| *by == of);
        let newest: Vec<_> = newest.take(8).collect();
        let (session, (_, secret)) = newest.get(random.random_range(0..newest.len().max(1)))?;
        Some(SessionHandle {
            session: **session,
            secret: secret.clone(),
        })
    }

    /// Forgets the oldest of its own sessions, which have ended long ago.
    pub(super) fn tidy(&self) {
        let mut own = self.own.lock().unwrap();
        while own.len() > 8 * OWN_MAX {
            own.pop_first();
        }
    }

    /// A lease name: its own, a hidden one, or none.
    pub(super) fn any_name(random: &mut StdRng) -> String {
        match random.random_range(0..32) {
            24.. | 0..=9 => format!("{OWN}{}", random.random_range(0..12)),
            10 => format!("{OWN}mate"),
            11..=15 => format!("{HIDDEN}/held-{}", random.random_range(0..4)),
            16 => format!("{HIDDEN}/shared"),
            17 => format!("{HIDDEN}/absent-{}", random.random_range(0..9)),
            18 => "team-ab/x".to_owned(),
            19 => format!("{OWN}../{HIDDEN}/shared"),
            20 => format!("{OWN}{}", "x".repeat(random.random_range(200..300))),
            21 => {
                ["", "/", "*", "team-a", "team-a//x", "team-a/*"][random.random_range(0..6)].into()
            }
            22 => "\u{1f98a}\0\r\nteam-a/".to_owned(),
            _ => "y".repeat(random.random_range(0..70_000)),
        }
    }

    /// A prefix of names.
    pub(super) fn any_prefix(random: &mut StdRng) -> String {
        match random.random_range(0..10) {
            0..=3 => OWN.to_owned(),
            4 => String::new(),
            5 => format!("{HIDDEN}/"),
            6 => "team-a".to_owned(),
            7 => "t".to_owned(),
            _ => Self::any_name(random),
        }
    }

    /// A principal: itself, another, or none.
    pub(super) fn any_principal(random: &mut StdRng) -> String {
        let some = [
            "token:raider",
            "local",
            "anonymous",
            "node:n1",
            "token:raider*",
            "",
            "token:mate",
            "cert:uri:spiffe://x/y",
        ];
        match random.random_range(0..10) {
            8 => format!("token:{HIDDEN}-bank"),
            9 => "p".repeat(random.random_range(0..600)),
            at => some[at].to_owned(),
        }
    }
}
