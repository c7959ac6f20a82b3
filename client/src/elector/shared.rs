//! What a campaign, its handles, its observer and its gauges share.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use ringfence_core::{FencingToken, SessionId};
use tokio::sync::watch;

use super::request::CampaignRequest;
use crate::clock;
use crate::lease::range::{Range, millis};
use crate::lease::term::Term;
use crate::session::loss::Loss;
use crate::sync::lock;
use crate::watch::info::GrantInfo;

/// The most sessions that an elector remembers as its own; each of them lives for two TTLs at most
/// after it was lost.
const OWN_MAX: usize = 64;

/// Who leads, as the cluster tells its watchers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Who it says it is.
    pub identity: String,
    /// The session that holds the lease.
    pub session: SessionId,
    /// The token of its term.
    pub token: FencingToken,
    /// What it published, an address for example.
    pub data: Bytes,
    /// When the cluster granted it the lease, for people: milliseconds since the Unix epoch.
    pub since_unix_ms: u64,
    /// Whether it is this very elector.
    pub mine: bool,
}

/// How a campaign stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CampaignState {
    /// It waits for the lease.
    Waiting,
    /// The lease is granted, and its guards are raising their marks; it is not held yet.
    Sealing {
        /// The token of the grant.
        token: FencingToken,
    },
    /// The lease is held and the work runs.
    Leading {
        /// The token of the term.
        token: FencingToken,
    },
    /// It pauses between terms.
    Pausing {
        /// Length of the pause, jitter included; at most a minute, or the retry period if that is
        /// longer.
        pause: Duration,
        /// Why the last term or attempt ended, for people.
        why: String,
    },
    /// The campaign has ended and does not start again.
    Over,
}

/// The sessions that an elector has opened.
#[derive(Debug, Default)]
pub(super) struct OwnSessions(Mutex<VecDeque<SessionId>>);

impl OwnSessions {
    pub(super) fn add(&self, session: SessionId) {
        let mut own = lock(&self.0);
        own.push_back(session);
        if own.len() > OWN_MAX {
            own.pop_front();
        }
    }

    pub(super) fn contains(&self, session: SessionId) -> bool {
        lock(&self.0).contains(&session)
    }

    /// Whether the session was opened after one of these: sessions are numbered in order.
    pub(super) fn is_older_than(&self, session: SessionId) -> bool {
        lock(&self.0).front().is_some_and(|own| *own < session)
    }
}

/// State that a campaign shares with its handles, its observer and its gauges.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) request: watch::Sender<CampaignRequest>,
    pub(super) state: watch::Sender<CampaignState>,
    pub(super) leader: watch::Sender<Option<Leader>>,
    ranges: Mutex<Ranges>,
    lease_duration: Duration,
}

#[derive(Default)]
struct Ranges {
    fail_open: bool,
    /// The newest term, unless it was given up or another client was seen to lead.
    term: Option<Term>,
}

impl std::fmt::Debug for Ranges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ranges").finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(lease_duration: Duration) -> Self {
        Self {
            request: watch::Sender::new(CampaignRequest::default()),
            state: watch::Sender::new(CampaignState::Waiting),
            leader: watch::Sender::new(None),
            ranges: Mutex::default(),
            lease_duration,
        }
    }

    pub(super) fn set_fail_open(&self, fail_open: bool) {
        lock(&self.ranges).fail_open = fail_open;
    }

    pub(super) fn fails_open(&self) -> bool {
        lock(&self.ranges).fail_open
    }

    pub(super) fn begin_term(&self, view: &Term) {
        lock(&self.ranges).term = Some(view.clone());
    }

    /// The term was given up: no range goes on from it.
    pub(super) fn give_up_term(&self) {
        lock(&self.ranges).term = None;
    }

    /// The campaign is over: nothing is led by it, and no range goes on.
    pub(super) fn over(&self) {
        self.give_up_term();
        self.state.send_replace(CampaignState::Over);
    }

    /// Takes what the cluster tells its watchers.
    pub(super) fn saw(&self, leader: Option<Leader>) {
        if leader.as_ref().is_some_and(|leader| !leader.mine) {
            let mut ranges = lock(&self.ranges);
            // What a watch tells can be older than the term that has just begun.
            let newer = |view: &Term| leader.as_ref().is_some_and(|l| l.token > view.token());
            if ranges.term.as_ref().is_some_and(newer) {
                ranges.term = None;
            }
        }
        self.leader.send_if_modified(|known| {
            let changed = *known != leader;
            if changed {
                *known = leader;
            }
            changed
        });
    }

    pub(super) fn is_held(&self) -> bool {
        let ranges = lock(&self.ranges);
        ranges.term.as_ref().is_some_and(|t| t.loss().is_none())
    }

    /// How many guards of the present term are not sealed.
    pub(super) fn unsealed(&self) -> usize {
        let ranges = lock(&self.ranges);
        let held = ranges.term.as_ref().filter(|term| term.is_valid());
        held.map_or(0, |term| term.unsealed().len())
    }

    /// The range to work with now; see [`Campaign::fail_open`](super::Campaign::fail_open).
    pub(super) fn range(&self) -> Option<Range> {
        let ranges = lock(&self.ranges);
        let term = ranges.term.as_ref()?;
        if let Some(range) = term.range() {
            return Some(range);
        }
        // Only silence is failed open on; a caller that was notified of the term's end knows.
        let silence = term.loss() == Some(Loss::WindowPassed);
        let now_unix_ms = clock::wall_micros() / 1_000;
        (ranges.fail_open && silence).then(|| Range {
            start_unix_ms: term.grant.since_unix_ms,
            end_unix_ms: now_unix_ms + millis(self.lease_duration),
            failing_open: true,
        })
    }
}

impl Leader {
    pub(super) fn of(grant: GrantInfo, own: &OwnSessions) -> Self {
        Self {
            mine: own.contains(grant.session),
            identity: grant.identity,
            session: grant.session,
            token: grant.token,
            data: grant.data,
            since_unix_ms: grant.since_unix_ms,
        }
    }
}
