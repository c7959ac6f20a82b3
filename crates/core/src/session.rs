//! A session: one client's liveness contract with the cluster.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::access::principal::Principal;
use crate::few::Few;
use crate::id::{FencingToken, OpenId, RequestNumber, Secret};
use crate::name::{Identity, LeaseName};
use crate::outcome::LostGrant;
use crate::pod::Pod;
use crate::requests::Requests;
use crate::snapshot::Header;
use crate::time::{ClusterTime, Millis};

/// A living session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) open: OpenId,
    pub(crate) secret: Secret,
    pub(crate) identity: Identity,
    /// Who opened it, for its life; `None` if that was not proven.
    pub(crate) owner: Option<Principal>,
    ttl: Millis,
    /// Cluster time of its last keep-alive; a later one if that gave it a shorter TTL.
    seen: ClusterTime,
    /// Where it stands among the deadlines; never later than its own deadline.
    pub(crate) armed: ClusterTime,
    pub(crate) requests: Requests,
    /// In the order of the names.
    holds: Few<(LeaseName, FencingToken)>,
    /// What most sessions have none of.
    rare: Option<Arc<Rare>>,
}

/// What most sessions have none of.
#[derive(Clone, Debug, Default)]
struct Rare {
    /// In rising order of the numbers.
    waits: Vec<Wait>,
    /// Grants that ended against its will and that it has not acknowledged.
    lost: Vec<LostGrant>,
    /// What it is bound to instead of a TTL.
    pod: Option<Pod>,
}

/// A place in a queue, as its session knows it.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) number: RequestNumber,
    pub(crate) name: LeaseName,
    pub(crate) place: u64,
}

impl Session {
    /// A new session, alive at `seen`; the caller arms it.
    pub(crate) fn new(
        (open, secret): (OpenId, Secret),
        identity: Identity,
        ttl: Millis,
        seen: ClusterTime,
    ) -> Self {
        Self {
            open,
            secret,
            identity,
            owner: None,
            ttl,
            seen,
            armed: seen,
            requests: Requests::new(),
            holds: Few::default(),
            rare: None,
        }
    }

    /// Its TTL; [`Millis::FOREVER`] if it is bound to a Pod.
    pub(crate) fn ttl(&self) -> Millis {
        self.ttl
    }

    /// Cluster time of its last keep-alive; see [`Session::keep_alive_with`].
    pub(crate) fn seen(&self) -> ClusterTime {
        self.seen
    }

    /// Takes a sign of life. It moves the deadline to a later time, never to an earlier one: the
    /// ordered set of deadlines relies on that.
    pub(crate) fn keep_alive(&mut self, now: ClusterTime) {
        self.seen = self.seen.max(now);
    }

    /// Takes a sign of life that gives it another TTL. It ends no earlier than was promised before: a
    /// shorter TTL counts from there, so that `seen` may be a time to come.
    pub(crate) fn keep_alive_with(
        &mut self,
        now: ClusterTime,
        ttl: Millis,
        term_start: ClusterTime,
    ) {
        let promised = self.deadline(term_start);
        self.keep_alive(now);
        if ttl < self.ttl {
            self.seen = self.seen.max(ClusterTime(promised.0.saturating_sub(ttl.0)));
        }
        self.ttl = ttl;
    }

    /// Until when its client may believe in what it holds, unless it renews again.
    pub(crate) fn believes_until(&self, now: ClusterTime) -> ClusterTime {
        self.seen.max(now).after(self.ttl)
    }

    /// When it ends unless it is kept alive. A new term gives one fresh TTL and only one, however
    /// many terms follow: the second one begins after `seen + ttl` and so counts for nothing more.
    pub(crate) fn deadline(&self, term_start: ClusterTime) -> ClusterTime {
        let fresh = term_start.min(self.seen.after(self.ttl));
        self.seen.max(fresh).after(self.ttl)
    }

    /// Whether its time has not come. That of a session that is bound to a Pod never comes.
    pub(crate) fn is_alive(&self, header: &Header) -> bool {
        self.pod().is_some() || self.deadline(header.term_start) > header.time
    }

    /// What counts against the limit of one session. Losses count until they are acknowledged, or
    /// their list could grow without bound.
    pub(crate) fn load(&self) -> usize {
        self.holds.len() + self.waits().len() + self.lost().len()
    }

    pub(crate) fn holds(&self) -> &[(LeaseName, FencingToken)] {
        self.holds.as_slice()
    }

    fn held(&self, name: &LeaseName) -> Result<usize, usize> {
        self.holds().binary_search_by(|(held, _)| held.cmp(name))
    }

    pub(crate) fn add_hold(&mut self, name: LeaseName, token: FencingToken) {
        if let Err(at) = self.held(&name) {
            self.holds.insert(at, (name, token));
        }
    }

    pub(crate) fn remove_hold(&mut self, name: &LeaseName) {
        if let Ok(at) = self.held(name) {
            self.holds.remove(at);
        }
    }

    pub(crate) fn waits(&self) -> &[Wait] {
        self.rare.as_deref().map_or(&[], |rare| &rare.waits)
    }

    /// Its first place in the queue of a lease. Looks at all that it waits for: 4,096 at most.
    pub(crate) fn first_place(&self, name: &LeaseName) -> Option<u64> {
        let waits = self.waits().iter().filter(|wait| wait.name == *name);
        waits.map(|wait| wait.place).min()
    }

    fn waiting(&self, number: RequestNumber) -> Result<usize, usize> {
        self.waits()
            .binary_search_by_key(&number, |known| known.number)
    }

    pub(crate) fn add_wait(&mut self, wait: Wait) {
        if let Err(at) = self.waiting(wait.number) {
            self.rare_mut().waits.insert(at, wait);
        }
    }

    pub(crate) fn remove_wait(&mut self, number: RequestNumber) -> Option<Wait> {
        let at = self.waiting(number).ok()?;
        let wait = self.rare_mut().waits.remove(at);
        self.settle_rare();
        Some(wait)
    }

    pub(crate) fn lost(&self) -> &[LostGrant] {
        self.rare.as_deref().map_or(&[], |rare| &rare.lost)
    }

    pub(crate) fn add_lost(&mut self, lost: LostGrant) {
        self.rare_mut().lost.push(lost);
    }

    /// Takes out the loss of the grant with this token.
    pub(crate) fn remove_lost(&mut self, token: FencingToken) -> Option<LostGrant> {
        let at = self.lost().iter().position(|lost| lost.token == token)?;
        let known = self.rare_mut().lost.remove(at);
        self.settle_rare();
        Some(known)
    }

    /// The Pod that it is bound to; it has no TTL then.
    pub(crate) fn pod(&self) -> Option<&Pod> {
        self.rare.as_deref()?.pod.as_ref()
    }

    /// Binds a new session for its life.
    pub(crate) fn bind(&mut self, pod: Pod) {
        self.ttl = Millis::FOREVER;
        self.rare_mut().pod = Some(pod);
    }

    // A frozen state may share it; the copy is made at the first change after the freeze.
    fn rare_mut(&mut self) -> &mut Rare {
        Arc::make_mut(self.rare.get_or_insert_default())
    }

    fn settle_rare(&mut self) {
        if self.waits().is_empty() && self.lost().is_empty() && self.pod().is_none() {
            self.rare = None;
        }
    }
}

// What a session costs in memory is a promise of its own: a million of them fit a small machine.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Session>() <= 176);
