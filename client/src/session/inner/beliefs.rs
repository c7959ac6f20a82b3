//! The grants of a session that this client believes in: how belief begins, and every way in which it
//! ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringfence_core::{EndCause, FencingToken, LeaseName};
use ringfence_planted::{Bug, planted};
use ringfence_proto::v1;

use super::SessionInner;
use crate::session::grant::{Belief, Grant};
use crate::session::loss::Loss;
use crate::sync::lock;

impl SessionInner {
    /// These grants ended against the session's will. Belief in them ends before this returns.
    pub(crate) fn grants_lost(&self, grants: &[v1::LostGrant]) {
        for lost in grants {
            self.grant_lost(lost.token, || Loss::of_grant(lost.cause.clone()));
        }
        self.wake();
    }

    fn grant_lost(&self, token: u64, why: impl FnOnce() -> Loss) {
        let now = self.transport.now();
        let mut locked = lock(&self.locked);
        let until = locked.window.valid_until();
        let grant = locked.grants.remove(&token);
        // Listed, and not believed in here. Two cases: this client gave the grant up, then it may
        // acknowledge the loss at once; or the answer of its acquire is still on its way, then
        // `admit` finds the token in the list.
        if locked.losses.listed(token) && grant.is_none() {
            locked.acknowledge_loss(token, now);
        }
        drop(locked);
        if let Some(grant) = grant {
            let why = why();
            tracing::warn!(name = %grant.name, token = %grant.token, %why, "lease lost");
            // First the end of belief, then the acknowledgement: the cluster lets the next holder
            // in as soon as it has heard, so it must not hear before no task here can see the grant
            // as held.
            grant.end(&why, until);
            lock(&self.locked).acknowledge_loss(token, now);
        }
    }

    /// A watch reports that one of its grants has ended, before a keep-alive does. The answer to the
    /// acquire may be still on its way: then it brings nothing.
    pub(crate) fn on_watched_end(&self, token: FencingToken, cause: Option<EndCause>) {
        let token = token.get();
        let grant = {
            let mut locked = lock(&self.locked);
            let grant = locked.grants.get(&token).cloned();
            // The watch can be faster than the answer of the acquire, which comes over another
            // stream. The token is remembered, and `admit` refuses the grant when it arrives.
            if grant.is_none() && !planted(Bug::EndBeforeItsGrantForgotten) {
                locked.losses.ended(token);
            }
            grant
        };
        if grant.is_some_and(|grant| grant.belief() == Belief::Held) {
            self.grant_lost(token, || Loss::GrantEnded { cause });
            self.wake();
        }
    }

    /// A watch begins to tell, and these are the tokens in force. If another is believed in here, its
    /// end came before the watch did: the answer to a keep-alive tells of it.
    pub(crate) fn on_watched_state(&self, tokens: &BTreeMap<LeaseName, Option<FencingToken>>) {
        let is_other = |grant: &Arc<Grant>| {
            let present = tokens.get(&grant.name);
            present.is_some_and(|token| *token != Some(grant.token))
        };
        if lock(&self.locked).grants.values().any(is_other) {
            self.renew_and_wake();
        }
    }

    /// A grant that is believed in may have ended: the answer to a keep-alive says so.
    pub(crate) fn renew_and_wake(&self) {
        self.renew_now(self.transport.now());
        self.wake();
    }

    /// Begins to believe in a grant, unless it or the session was lost meanwhile; then the cluster
    /// may still grant it.
    pub(crate) fn admit(self: &Arc<Self>, grant: Grant) -> Result<Arc<Grant>, Loss> {
        // Asked before the lock is taken, since `loss` takes it too. A loss that falls between the
        // two is found in `locked.lost` below, under the lock that inserts the grant.
        let loss = self.loss();
        let mut locked = lock(&self.locked);
        let gone = locked.losses.has_listed(grant.token.get())
            && !planted(Bug::LossBeforeItsGrantForgotten);
        let listed = gone.then_some(Loss::GrantEnded { cause: None });
        if let Some(loss) = loss.or_else(|| locked.lost.clone()).or(listed) {
            drop(locked);
            // The late grant is in force at the cluster and held by no one here. It is noted as an
            // ending, so that it is released before the name is acquired again.
            self.forget_grant(grant.token);
            if let Some(callbacks) = self.callbacks.upgrade() {
                callbacks.grant_left(self, &grant);
            }
            return Err(loss);
        }
        let grant = Arc::new(grant);
        locked.grants.insert(grant.token.get(), Arc::clone(&grant));
        Ok(grant)
    }

    /// A grant was made at this client's own wish, and it has not begun to believe in it. When it is
    /// notified that it was lost, or has been notified before, it acknowledges that.
    pub(crate) fn forget_grant(&self, token: FencingToken) {
        let now = self.transport.now();
        let mut locked = lock(&self.locked);
        if locked.losses.has_listed(token.get()) {
            locked.acknowledge_loss(token.get(), now);
            drop(locked);
            self.wake();
        } else {
            locked.losses.give_up(token.get());
        }
    }

    /// Work under a grant begins whose end takes time; see [`Working`](crate::Working).
    pub(crate) fn work_begins(&self, token: FencingToken) {
        lock(&self.locked).losses.work_begins(token.get());
    }

    /// Such work has ended: a loss that the cluster was not to hear of goes out at once.
    pub(crate) fn work_ended(&self, token: FencingToken) {
        let now = self.transport.now();
        let mut locked = lock(&self.locked);
        if locked.losses.work_ended(token.get()) {
            locked.renew_at(now);
            drop(locked);
            self.wake();
        }
    }

    /// Belief in a grant has ended by this client's own doing.
    pub(crate) fn drop_grant(&self, token: FencingToken) {
        let mut locked = lock(&self.locked);
        locked.grants.remove(&token.get());
        locked.losses.give_up(token.get());
    }

    /// Ends belief in a grant that is about to be released or handed over; returns it if it was
    /// believed in here.
    pub(crate) fn end_belief(&self, name: &str, token: FencingToken) -> Option<Arc<Grant>> {
        let known = lock(&self.locked).grants.get(&token.get()).cloned();
        let grant = known.filter(|grant| grant.name.as_str() == name)?;
        // Of two callers that release the same grant only one gets it back; the other must not hand
        // it over or release it a second time.
        let first = grant.end(&Loss::Released, self.valid_until());
        self.drop_grant(token);
        first.then_some(grant)
    }

    /// It has not given this grant up after all.
    pub(crate) fn take_back(&self, token: FencingToken) {
        lock(&self.locked).losses.take_back(token.get());
    }

    /// Others have the handle: what they end by it no keep-alive tells.
    pub(crate) fn mark_shared(&self) {
        self.shared.store(true, Ordering::Relaxed);
    }

    /// What to ask the cluster about after a keep-alive, since others may have ended it: nothing
    /// unless the handle was given away or came from elsewhere.
    pub(crate) fn grants_to_verify(&self) -> Vec<Arc<Grant>> {
        match self.shared.load(Ordering::Relaxed) && !planted(Bug::SharedGrantsNotChecked) {
            true => lock(&self.locked).grants.values().cloned().collect(),
            false => Vec::new(),
        }
    }

    /// A guard refused this grant's token: belief in it ends, and it is released at the cluster,
    /// or the session that lives on would hold it for no holder. The release goes on as long as the
    /// session lives; a session that ends first ends the grant as well.
    pub(crate) fn report_stale(self: &Arc<Self>, grant: &Grant) {
        if grant.end(&Loss::Reported, self.valid_until()) {
            tracing::warn!(name = %grant.name, token = %grant.token, "lease lost: a guard refused its token");
            self.drop_grant(grant.token);
            if let Some(callbacks) = self.callbacks.upgrade() {
                callbacks.release(self, grant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use ringfence_core::{Secret, SessionId};

    use super::*;
    use crate::session::client_inner::ClientInner;
    use crate::session::handle::SessionHandle;
    use crate::session::request_numbers::RequestNumbers;
    use crate::transport::driver;
    use crate::transport::endpoint::Endpoint;
    use crate::transport::endpoint_selector::EndpointSelector;
    use crate::transport::options::Options;

    /// What was answered was asked before.
    #[test]
    fn an_answer_to_an_earlier_keep_alive_takes_no_question_back() {
        let options = Options::default();
        let (thread, _keep_running) = driver::start(&options).unwrap();
        let nowhere = EndpointSelector::new(vec![Endpoint::parse("127.0.0.1:1").unwrap()], 0);
        let client = ClientInner::new(options, thread, nowhere);
        let handle = SessionHandle {
            session: SessionId::new(3).unwrap(),
            secret: Secret::new([7; 16]),
            cluster: None,
        };
        let (ttl, opened) = (Duration::from_secs(60), client.transport.now());
        let numbers = RequestNumbers::from(1);
        let session = client.new_session(handle, ttl, opened, numbers);
        let session = Arc::new(session);
        let asks = || session.join_keep_alive(client.transport.now()).is_some();
        assert!(!asks(), "nothing is due");
        session.renew_and_wake();
        assert!(asks());
        let sent = client.transport.now();
        assert!(!asks(), "it waits for the answer");

        session.renew_and_wake();
        session.acknowledge(sent);
        assert!(asks(), "the second question is forgotten");
        session.acknowledge(client.transport.now());
        assert!(!asks());
    }
}
