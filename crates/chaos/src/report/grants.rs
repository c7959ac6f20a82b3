//! Who held what, put together from what clients received and what watches saw.
//!
//! No observer outside of the cluster sees the instant of a grant. Shown is the earliest instant at
//! which anybody knew of it, and the earliest at which anybody knew of its end; where the next
//! grant was known sooner, that one's begin is the end, since the log gives no lease to two at
//! once.

use std::collections::BTreeMap;

use ringfence_check::history::WatchCause;

/// A grant as far as anybody saw it. Times are nanoseconds of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) lease: usize,
    pub(super) token: u64,
    pub(super) client: Option<u32>,
    pub(super) from: u64,
    pub(super) to: Option<u64>,
    pub(super) cause: &'static str,
}

/// All grants of a run, by lease and token.
#[derive(Debug, Default)]
pub(super) struct Grants {
    seen: BTreeMap<(usize, u64), Seen>,
    /// Which client opened which session.
    clients: BTreeMap<u64, u32>,
}

#[derive(Debug)]
struct Seen {
    client: Option<u32>,
    session: Option<u64>,
    from: u64,
    to: Option<u64>,
    cause: &'static str,
}

impl Grants {
    /// `client` opened `session`.
    pub(super) fn opened(&mut self, session: u64, client: u32) {
        self.clients.insert(session, client);
    }

    /// A client knew at `t` that the grant was made, to this client or to this session.
    pub(super) fn made(&mut self, (lease, token): (usize, u64), t: u64, holder: Holder) {
        let seen = self.at((lease, token), t);
        seen.from = seen.from.min(t);
        match holder {
            Holder::Client(client) => seen.client = Some(client),
            Holder::Session(session) => seen.session = Some(session),
            Holder::Unknown => {}
        }
    }

    /// A client knew at `t` that the grant has ended.
    pub(super) fn ended(&mut self, (lease, token): (usize, u64), t: u64, cause: &'static str) {
        let seen = self.at((lease, token), t);
        seen.from = seen.from.min(t);
        seen.to = Some(seen.to.map_or(t, |to| to.min(t)));
        if seen.cause.is_empty() {
            seen.cause = cause;
        }
    }

    fn at(&mut self, key: (usize, u64), t: u64) -> &mut Seen {
        self.seen.entry(key).or_insert(Seen {
            client: None,
            session: None,
            from: t,
            to: None,
            cause: "",
        })
    }

    /// All grants in the order of lease and token, each over before the next of its lease.
    pub(super) fn settled(&self) -> Vec<Grant> {
        let mut grants: Vec<Grant> = Vec::with_capacity(self.seen.len());
        for (&(lease, token), seen) in &self.seen {
            if let Some(before) = grants.last_mut().filter(|before| before.lease == lease) {
                let end = before.to.map_or(seen.from, |to| to.min(seen.from));
                before.to = Some(end.max(before.from));
            }
            let opener = || seen.session.and_then(|it| self.clients.get(&it).copied());
            grants.push(Grant {
                lease,
                token,
                client: seen.client.or_else(opener),
                from: seen.from,
                to: seen.to,
                cause: seen.cause,
            });
        }
        grants
    }
}

/// Whom a grant was made to, as far as the one who saw it knew.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holder {
    Client(u32),
    Session(u64),
    Unknown,
}

/// The page's word for the cause of an end.
pub(super) fn cause_word(cause: WatchCause) -> &'static str {
    match cause {
        WatchCause::Released => "released",
        WatchCause::Expired => "expired",
        WatchCause::Closed => "closed",
        WatchCause::Revoked => "revoked",
        WatchCause::Evicted => "evicted",
        WatchCause::Transferred => "transferred",
        WatchCause::PodEnded => "pod ended",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_sight_of_a_grant_and_of_its_end_count() {
        let mut grants = Grants::default();
        grants.opened(70, 3);
        grants.made((0, 7), 900, Holder::Session(70));
        grants.made((0, 7), 400, Holder::Unknown);
        grants.ended((0, 7), 5_000, "expired");
        grants.ended((0, 7), 4_000, "");

        let settled = grants.settled();
        assert_eq!(settled.len(), 1);
        assert_eq!(settled[0].client, Some(3));
        assert_eq!((settled[0].from, settled[0].to), (400, Some(4_000)));
        assert_eq!(settled[0].cause, "expired");
    }

    #[test]
    fn a_grant_is_over_when_the_next_of_its_lease_begins() {
        let mut grants = Grants::default();
        grants.made((0, 7), 100, Holder::Client(1));
        grants.ended((0, 7), 9_000, "expired");
        grants.made((0, 8), 5_000, Holder::Client(2));
        grants.made((1, 9), 200, Holder::Client(1));

        let ends: Vec<Option<u64>> = grants.settled().iter().map(|grant| grant.to).collect();
        assert_eq!(ends, [Some(5_000), None, None]);
    }
}
