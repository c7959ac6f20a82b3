//! Electors, as the loop of client-go behaves.

use ringfence_core::{Candidate, ClusterTime, FencingToken, Millis, PodUid, Principal};

/// The duration of the lease, in seconds.
pub(crate) const SECONDS: u32 = 10;
/// For how long a holder tries to renew before it gives up; shorter than the duration.
const RENEW_DEADLINE: Millis = Millis(7_000);
/// How many electors there are.
pub(crate) const COUNT: usize = 5;
/// What electors call themselves.
pub(crate) const IDENTITIES: [&str; COUNT] = ["a", "b", "c", "d", "e"];
/// The elector whose Pod is unknown.
pub(crate) const WITHOUT_POD: usize = 2;
/// Of which nothing is proven before the mode is `off` no more.
pub(crate) const UNPROVEN: usize = 4;

/// A process that runs the loop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elector {
    /// What it believes to hold.
    pub(crate) term: Option<FencingToken>,
    /// Since when it tries to renew.
    trying: Option<ClusterTime>,
    /// The version it saw last.
    pub(crate) seen: Option<u64>,
    /// Whether its next write is the first of its process.
    pub(crate) fresh: bool,
    /// Whether another process has used its name where the two look alike.
    pub(crate) disturbed: bool,
}

impl Elector {
    /// Its loop goes on: whether it writes. One that could not renew in time ends its term first.
    pub(crate) fn wakes(&mut self, now: ClusterTime) -> bool {
        if self.term.is_none() {
            return true;
        }
        let since = *self.trying.get_or_insert(now);
        let goes_on = now.since(since) < RENEW_DEADLINE;
        if !goes_on {
            self.ends();
        }
        goes_on
    }

    /// Its write was done, and it holds the lease.
    pub(crate) fn holds(&mut self, who: usize, token: FencingToken) {
        if let Some(term) = self.term
            && !self.disturbed
        {
            assert_eq!(
                token, term,
                "E1: elector {who} is granted again inside its term"
            );
        }
        (self.term, self.trying) = (Some(token), None);
    }

    /// Its term is over for it.
    pub(crate) fn ends(&mut self) {
        (self.term, self.trying) = (None, None);
    }

    /// Its process starts again.
    pub(crate) fn restarts(&mut self) {
        self.ends();
        self.fresh = true;
    }
}

/// What is proven of an elector.
pub(crate) fn candidate(who: usize, proven: bool) -> Candidate {
    if who == UNPROVEN && !proven {
        return Candidate::default();
    }
    let principal = match who {
        WITHOUT_POD => "sa:prod:shop/api",
        _ => "sa:prod:shop/web",
    };
    let pod = format!("uid-{who}");
    Candidate {
        principal: Some(Principal::parse(principal).unwrap()),
        pod: (who != WITHOUT_POD).then(|| PodUid::parse(&pod).unwrap()),
    }
}

/// Another process: one of `principal` in the Pod with this number, if it is in one.
pub(crate) fn stranger(principal: usize, pod: usize) -> Candidate {
    let principals = [
        "sa:prod:shop/web",
        "sa:prod:shop/api",
        "sa:prod:other/web",
        "local",
    ];
    let pods = ["uid-8", "uid-9"];
    Candidate {
        principal: principals
            .get(principal)
            .map(|raw| Principal::parse(raw).unwrap()),
        pod: pods.get(pod).map(|raw| PodUid::parse(raw).unwrap()),
    }
}
