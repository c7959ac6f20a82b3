//! What the fake cluster knows: just enough sessions, leases, queues and request memory to find
//! orphan grants, ghost waiters and requests that take effect twice.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ringfence_proto::Refusal;
use ringfence_proto::v1::cancel_response::Result as CancelResult;
use ringfence_proto::v1::check_response::Verdict;
use ringfence_proto::v1::server_frame::Body as Reply;
use ringfence_proto::v1::{
    AcquireRequest, AcquireResponse, CancelRequest, CancelResponse, CheckRequest, CheckResponse,
    CloseResponse, EndCause, GetResponse, Grant, KeepAliveRequest, KeepAliveResponse, Lease,
    LostGrant, OpenRequest, OpenResponse, Reason, ReleaseRequest, ReleaseResponse, SessionHandle,
    SessionLosses, SessionState, TransferRequest, TransferResponse, end_cause,
};

/// See the module.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) sessions: BTreeMap<u64, SessionModel>,
    pub(crate) held: BTreeMap<String, Grant>,
    pub(crate) queue: BTreeMap<String, Vec<(u64, u64)>>,
    answers: HashMap<(u64, u64), Answer>,
    /// Replies to requests that stand in a queue, by session and number.
    pub(crate) settled: HashMap<(u64, u64), Reply>,
    opened: HashMap<Vec<u8>, u64>,
    last_session: u64,
    last_token: u64,
    time_ms: u64,
    /// How many grants were ever made.
    pub(crate) grants: usize,
    /// Tokens that were acknowledged as lost.
    pub(crate) acknowledged: BTreeSet<u64>,
}

pub(crate) struct SessionModel {
    pub(crate) secret: Vec<u8>,
    pub(crate) ttl_ms: u64,
    lost: Vec<LostGrant>,
}

#[derive(Clone)]
enum Answer {
    Waiting(String),
    Granted(String, u64),
    Other(Reply),
    Voided,
}

fn refuse(reason: Reason, message: &str) -> Reply {
    Reply::Refusal(Refusal::new(reason, message).into())
}

/// A session that is bound to a Pod has no TTL.
fn ttl_of(ask: &OpenRequest) -> u64 {
    ask.pod.as_ref().map_or(ask.ttl_ms(), |_| u64::MAX)
}

impl Model {
    fn tick(&mut self) -> u64 {
        self.time_ms += 1;
        self.time_ms
    }

    pub(crate) fn open(&mut self, ask: &OpenRequest) -> Reply {
        let session = match self.opened.get(&ask.id[..]) {
            Some(&session) => session,
            None => {
                self.last_session += 1;
                let ttl_ms = ttl_of(ask);
                let secret = ask.secret.to_vec();
                let session = SessionModel {
                    secret,
                    ttl_ms,
                    lost: Vec::new(),
                };
                self.sessions.insert(self.last_session, session);
                self.opened.insert(ask.id.to_vec(), self.last_session);
                self.last_session
            }
        };
        Reply::Open(OpenResponse {
            session,
            ttl_ms: ttl_of(ask),
            cluster_time_ms: self.tick(),
            cluster_id: vec![7; 16].into(),
        })
    }

    /// Whether the handle proves a living session; else the refusal.
    fn prove(&self, handle: Option<&SessionHandle>) -> Result<u64, Reply> {
        let handle = handle.unwrap();
        match self.sessions.get(&handle.session) {
            None => Err(refuse(Reason::SessionExpired, "the session has ended")),
            Some(session) if session.secret != handle.secret => {
                Err(refuse(Reason::WrongSecret, "the secret is wrong"))
            }
            Some(_) => Ok(handle.session),
        }
    }

    /// The reply; `None` while it waits.
    pub(crate) fn acquire(&mut self, ask: &AcquireRequest) -> Option<Reply> {
        let Some(open) = &ask.open else {
            return self.acquire_with(ask);
        };
        let Reply::Open(opened) = self.open(open) else {
            panic!("it always opens")
        };
        let session = Some(SessionHandle {
            session: opened.session,
            secret: open.secret.clone(),
        });
        let (session, open) = (session, None);
        let ask = AcquireRequest {
            session,
            open,
            ..ask.clone()
        };
        Some(match self.acquire_with(&ask)? {
            Reply::Acquire(reply) => Reply::Acquire(AcquireResponse {
                opened: Some(opened),
                ..reply
            }),
            Reply::Refusal(mut refusal) => {
                let told = [("session", opened.session), ("ttl_ms", opened.ttl_ms)];
                let told = told.map(|(key, value)| (key.to_owned(), value.to_string()));
                refusal.metadata.extend(told);
                Reply::Refusal(refusal)
            }
            other => other,
        })
    }

    fn acquire_with(&mut self, ask: &AcquireRequest) -> Option<Reply> {
        let session = match self.prove(ask.session.as_ref()) {
            Ok(session) => session,
            Err(refusal) => return Some(refusal),
        };
        let key = (session, ask.number);
        match self.answers.get(&key).cloned() {
            Some(Answer::Waiting(_)) => return None,
            Some(Answer::Granted(name, token)) => return Some(self.granted(&name, token)),
            Some(Answer::Other(reply)) => return Some(reply),
            Some(Answer::Voided) => return Some(refuse(Reason::RequestVoided, "voided")),
            None => {}
        }
        let holder = self.held.get(&ask.name);
        if let Some(holder) =
            holder.filter(|holder| ask.wait_ms.is_none() || holder.session == session)
        {
            let refusal = Refusal::new(Reason::Held, "held")
                .with("holder", holder.session)
                .with("identity", &holder.identity)
                .with("token", holder.token)
                .with("mine", holder.session == session);
            let reply = Reply::Refusal(refusal.into());
            self.answers.insert(key, Answer::Other(reply.clone()));
            return Some(reply);
        }
        let waiting = Answer::Waiting(ask.name.clone());
        self.answers.insert(key, waiting);
        self.queue.entry(ask.name.clone()).or_default().push(key);
        self.grant_next(&ask.name, &ask.data);
        match self.answers.get(&key).cloned() {
            Some(Answer::Granted(name, token)) => Some(self.granted(&name, token)),
            _ => None,
        }
    }

    fn granted(&mut self, name: &str, token: u64) -> Reply {
        let cluster_time_ms = self.tick();
        match self.held.get(name).filter(|grant| grant.token == token) {
            Some(grant) => {
                let grant = Some(grant.clone());
                Reply::Acquire(AcquireResponse {
                    grant,
                    opened: None,
                    cluster_time_ms,
                })
            }
            None => refuse(Reason::Ended, "the grant has ended"),
        }
    }

    fn grant_next(&mut self, name: &str, data: &[u8]) {
        if self.held.contains_key(name) {
            return;
        }
        let Some(queue) = self.queue.get_mut(name) else {
            return;
        };
        let (session, number) = queue.remove(0);
        if queue.is_empty() {
            self.queue.remove(name);
        }
        self.last_token += 1;
        self.grants += 1;
        let token = self.last_token;
        let grant = Grant {
            name: name.into(),
            token,
            session,
            identity: format!("session {session}"),
            data: data.to_vec().into(),
            request: number,
            index: token,
            since_unix_ms: 1_700_000_000_000,
        };
        self.held.insert(name.into(), grant);
        self.answers
            .insert((session, number), Answer::Granted(name.into(), token));
        let reply = self.granted(name, token);
        self.settled.insert((session, number), reply);
    }

    pub(crate) fn cancel(&mut self, ask: &CancelRequest) -> Reply {
        let session = match self.prove(ask.session.as_ref()) {
            Ok(session) => session,
            Err(refusal) => return refusal,
        };
        let target = (session, ask.target);
        let mut reply = CancelResponse {
            cluster_time_ms: self.tick(),
            ..CancelResponse::default()
        };
        match self.answers.get(&target).cloned() {
            None => {
                self.answers.insert(target, Answer::Voided);
                reply.set_result(CancelResult::Voided);
            }
            Some(Answer::Waiting(name)) => {
                self.leave_queue(&name, target);
                reply.set_result(CancelResult::Removed);
            }
            Some(Answer::Granted(name, token))
                if self
                    .held
                    .get(&name)
                    .is_some_and(|grant| grant.token == token) =>
            {
                reply.set_result(CancelResult::Granted);
                reply.name = name;
                reply.token = token;
            }
            Some(_) => reply.set_result(CancelResult::Settled),
        }
        Reply::Cancel(reply)
    }

    fn leave_queue(&mut self, name: &str, key: (u64, u64)) {
        if let Some(queue) = self.queue.get_mut(name) {
            queue.retain(|waiting| *waiting != key);
            if queue.is_empty() {
                self.queue.remove(name);
            }
        }
        let reply = refuse(Reason::Cancelled, "cancelled");
        self.answers.insert(key, Answer::Other(reply.clone()));
        self.settled.insert(key, reply);
    }

    pub(crate) fn release(&mut self, ask: &ReleaseRequest) -> Reply {
        self.numbered(ask.session.as_ref(), ask.number, |model, session| {
            if let Err(stale) = model.end_held(session, &ask.name, ask.token) {
                return stale;
            }
            model.grant_next(&ask.name, &[]);
            Reply::Release(ReleaseResponse {
                cluster_time_ms: model.tick(),
            })
        })
    }

    pub(crate) fn transfer(&mut self, ask: &TransferRequest) -> Reply {
        self.numbered(ask.session.as_ref(), ask.number, |model, session| {
            let queue = model.queue.get_mut(&ask.name);
            let place = queue.and_then(|queue| {
                let wanted =
                    |&(waiting, _): &(u64, u64)| ask.to_session == 0 || waiting == ask.to_session;
                let at = queue.iter().position(wanted)?;
                let place = queue.remove(at);
                queue.insert(0, place);
                Some(place)
            });
            let Some((to, _)) = place else {
                return refuse(Reason::NotWaiting, "it does not wait");
            };
            if let Err(stale) = model.end_held(session, &ask.name, ask.token) {
                return stale;
            }
            model.grant_next(&ask.name, &[]);
            let token = model.held[&ask.name].token;
            let cluster_time_ms = model.tick();
            Reply::Transfer(TransferResponse {
                to_session: to,
                token,
                cluster_time_ms,
            })
        })
    }

    fn numbered(
        &mut self,
        handle: Option<&SessionHandle>,
        number: u64,
        act: impl FnOnce(&mut Self, u64) -> Reply,
    ) -> Reply {
        let session = match self.prove(handle) {
            Ok(session) => session,
            Err(refusal) => return refusal,
        };
        if let Some(Answer::Other(reply)) = self.answers.get(&(session, number)) {
            return reply.clone();
        }
        let reply = act(self, session);
        self.answers
            .insert((session, number), Answer::Other(reply.clone()));
        reply
    }

    fn end_held(&mut self, session: u64, name: &str, token: u64) -> Result<(), Reply> {
        let current = self.held.get(name);
        if current.is_some_and(|grant| grant.token == token && grant.session == session) {
            self.held.remove(name);
            return Ok(());
        }
        Err(refuse(
            Reason::StaleToken,
            "the token is not that of the present grant",
        ))
    }

    /// The holder of a lease, if it has one.
    pub(crate) fn get(&self, name: &str) -> GetResponse {
        let lease = self.held.get(name).map(|grant| Lease {
            name: name.into(),
            holder: Some(grant.clone()),
            floor: grant.token,
            ..Lease::default()
        });
        GetResponse { lease, at: None }
    }

    /// What a token is worth.
    pub(crate) fn check(&self, ask: &CheckRequest) -> CheckResponse {
        let mut reply = CheckResponse::default();
        reply.set_verdict(match self.held.get(&ask.name) {
            Some(grant) if grant.token == ask.token => Verdict::Current,
            Some(grant) if grant.token > ask.token => Verdict::Superseded,
            _ if ask.token > self.last_token => Verdict::Unknown,
            _ => Verdict::Ended,
        });
        reply
    }

    pub(crate) fn keep_alive(&mut self, ask: &KeepAliveRequest) -> Reply {
        let mut reply = KeepAliveResponse {
            id: ask.id,
            ..KeepAliveResponse::default()
        };
        for lost in &ask.acknowledged {
            self.acknowledged.insert(lost.token);
            if let Some(session) = self.sessions.get_mut(&lost.session) {
                session.lost.retain(|known| known.token != lost.token);
            }
        }
        for handle in &ask.sessions {
            match self.prove(Some(handle)) {
                Ok(number) => {
                    let grants = self.sessions[&number].lost.clone();
                    if !grants.is_empty() {
                        reply.lost.push(SessionLosses {
                            session: number,
                            grants,
                        });
                    }
                }
                Err(Reply::Refusal(refusal)) => reply.ended.push(SessionState {
                    session: handle.session,
                    reason: refusal.reason,
                    cause: None,
                }),
                Err(_) => {}
            }
        }
        reply.cluster_time_ms = self.tick();
        Reply::KeepAlive(reply)
    }

    pub(crate) fn close(&mut self, handle: Option<&SessionHandle>) -> Reply {
        if let Ok(session) = self.prove(handle) {
            self.end_session(session);
        }
        Reply::Close(CloseResponse {
            cause: None,
            cluster_time_ms: self.tick(),
        })
    }

    /// Ends a session and all that it has, as expiry does.
    pub(crate) fn end_session(&mut self, session: u64) {
        self.sessions.remove(&session);
        for queue in self.queue.values_mut() {
            queue.retain(|&(waiting, _)| waiting != session);
        }
        self.queue.retain(|_, queue| !queue.is_empty());
        let names: Vec<String> = self
            .held
            .iter()
            .filter(|(_, grant)| grant.session == session)
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            self.held.remove(&name);
            self.grant_next(&name, &[]);
        }
    }

    /// Ends a grant at an operator's wish; its session hears of it in its keep-alives.
    pub(crate) fn revoke(&mut self, name: &str) {
        let grant = self.held.remove(name).unwrap();
        let mut cause = EndCause {
            operator: "bob".into(),
            ..EndCause::default()
        };
        cause.set_kind(end_cause::Kind::Revoked);
        let lost = LostGrant {
            name: name.into(),
            token: grant.token,
            cause: Some(cause),
        };
        self.sessions
            .get_mut(&grant.session)
            .unwrap()
            .lost
            .push(lost);
        self.grant_next(name, &[]);
    }

    /// Ends a grant without telling its session anything.
    pub(crate) fn end_held_by_operator(&mut self, name: &str) {
        self.held.remove(name);
        self.grant_next(name, &[]);
    }

    /// No session holds anything, and none waits.
    pub(crate) fn is_quiet(&self) -> bool {
        self.held.is_empty() && self.nobody_waits()
    }

    /// No client waits for anything.
    pub(crate) fn nobody_waits(&self) -> bool {
        self.queue.is_empty()
    }
}
