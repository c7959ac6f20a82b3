//! `POST /v1/acquire`: for a session, or with a session of its own.
//!
//! The answer of a grant says for how long the caller may believe in it. Only the opening of a session
//! and its keep-alives tell that, so this node makes a keep-alive for the caller behind each grant
//! that was not opened by the same entry.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ringfence_proto::v1::Reason;
use ringfence_proto::v1::leases_server::Leases;
use ringfence_proto::v1::sessions_server::Sessions;
use ringfence_proto::{Refusal, v1};
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tokio::time::sleep;
use tonic::{Response, Status};

use crate::Rest;
use crate::abandoned::Abandoned;
use crate::barred::Barred;
use crate::call::{Answer, Call, Refused, refusal};
use crate::handle;
use crate::numbers::{self, Numbered};
use crate::repeats::{in_words_of_key, same_identity, same_ttl};
use crate::sessions::{Kept, Opened, is_over, lost, open_request, repeatable};
use crate::shown::{Members, fence};
use crate::window::validity;

/// What is asked for, for a known session or a new one.
#[derive(Clone)]
struct Wanted {
    name: String,
    wait_ms: Option<u64>,
    data: Bytes,
    lock_delay_ms: u64,
}

impl Wanted {
    fn request(&self, session: &v1::SessionHandle, numbered: Numbered) -> v1::AcquireRequest {
        v1::AcquireRequest {
            session: Some(session.clone()),
            number: numbered.number,
            lowest: numbered.lowest,
            ..self.message()
        }
    }

    fn message(&self) -> v1::AcquireRequest {
        v1::AcquireRequest {
            name: self.name.clone(),
            wait_ms: self.wait_ms,
            data: self.data.clone(),
            lock_delay_ms: self.lock_delay_ms,
            ..v1::AcquireRequest::default()
        }
    }
}

/// A lease that was granted, and what its caller may believe.
struct Granted<'a> {
    grant: v1::Grant,
    session: &'a v1::SessionHandle,
    kept: Kept,
}

impl Granted<'_> {
    fn answer(self) -> Answer {
        let Self {
            grant,
            session,
            kept,
        } = self;
        let members = Members::default()
            .with("name", grant.name.as_str())
            .with("token", grant.token)
            .with("fence", fence(&grant.name, grant.token))
            .with("session", handle::shown(session))
            .with("valid_for_ms", kept.valid_for_ms)
            .with("request", grant.request);
        let members = match kept.lost.is_empty() {
            true => members,
            false => members.with("lost", lost(&kept.lost)),
        };
        Answer::ok(members.value())
    }
}

impl Rest {
    /// `POST /v1/acquire`
    pub(crate) async fn acquire(&self, call: &Call, body: &[u8]) -> Result<Answer, Refused> {
        let mut fields = call.fields(body)?;
        let name = fields.required("name", "a lease name")?;
        let wanted = Wanted {
            name: name.clone(),
            wait_ms: fields.millis("wait")?,
            data: fields.text("data")?.unwrap_or_default().into(),
            lock_delay_ms: fields.millis("lock_delay")?.unwrap_or_default(),
        };
        let (session, ttl_ms) = (fields.session()?, fields.millis("ttl")?);
        let answered = match (session, ttl_ms) {
            (Some(session), None) => {
                let given = numbers::of_request(call.headers(), fields.number("lowest")?)?;
                fields.end()?;
                Box::pin(self.acquire_for(call, &session, &wanted, given)).await
            }
            (None, Some(ttl_ms)) => {
                let identity = fields.text("identity")?.unwrap_or_default();
                let (id, secret) = repeatable(call, fields.secret()?)?;
                fields.end()?;
                let repeats = id.is_some();
                let open = v1::OpenRequest {
                    ttl_ms: Some(ttl_ms),
                    identity,
                    ..open_request(id.map(of_acquire), secret)
                };
                match wanted.wait_ms {
                    None => Box::pin(self.open_and_acquire(call, open, &wanted, repeats)).await,
                    Some(_) => Box::pin(self.open_and_wait(call, open, &wanted, repeats)).await,
                }
            }
            (Some(_), Some(_)) => {
                let allowed = "one of them: `ttl` opens a new session";
                return Err(Refusal::invalid("ttl", "both `session` and `ttl`", allowed).into());
            }
            (None, None) => {
                let allowed = "a session handle, or else `ttl` to open a session with";
                return Err(Refusal::missing("session", allowed).into());
            }
        };
        match answered {
            Err(refused) if refused.refusal.reason == Reason::Held => {
                Err(self.held(call, &name, refused.refusal).await)
            }
            Err(refused) if ttl_ms.is_some() => Err(Refused {
                refusal: in_words_of_key(refused.refusal),
                ..refused
            }),
            answered => answered,
        }
    }

    /// Acquires for a session that its caller keeps alive.
    async fn acquire_for(
        &self,
        call: &Call,
        session: &v1::SessionHandle,
        wanted: &Wanted,
        given: Option<Numbered>,
    ) -> Result<Answer, Refused> {
        let number = Arc::new(AtomicU64::new(0));
        // A caller with a number of its own finds its place by that; another one never could.
        let waits = given.is_none() && wanted.wait_ms.is_some();
        let abandoned = waits.then(|| {
            let (rest, call, session) = (self.clone(), call.clone(), session.clone());
            let number = Arc::clone(&number);
            Abandoned::new(async move {
                let number = number.load(Ordering::Relaxed);
                rest.give_up(&call, &session, number).await;
            })
        });
        let ask = |numbered: Numbered| {
            number.store(numbered.number, Ordering::Relaxed);
            self.leases
                .acquire(call.ask(wanted.request(session, numbered)))
        };
        let (_, asked) = self.numbered(given, ask).await;
        let answered = match asked {
            Ok(asked) => {
                let grant = grant_of(asked.into_inner())?;
                self.believed(call, session, grant).await
            }
            Err(status) => match Barred::of(&status) {
                None => Err(status.into()),
                Some(barred) => {
                    let number = number.load(Ordering::Relaxed);
                    let undone =
                        abandoned.is_some() && self.undo(call, session, number).await.is_ok();
                    Err(barred.refused(undone))
                }
            },
        };
        let refused = answered.as_ref().err();
        // What may still be granted is taken back: the caller has no number to repeat it with.
        let certain = refused.is_none_or(Refused::is_certain);
        if let Some(abandoned) = abandoned.filter(|_| certain) {
            abandoned.answered();
        }
        answered
    }

    /// Opens a session and acquires in one step.
    async fn open_and_acquire(
        &self,
        call: &Call,
        open: v1::OpenRequest,
        wanted: &Wanted,
        repeats: bool,
    ) -> Result<Answer, Refused> {
        let secret = open.secret.clone();
        let (asked_ms, identity) = (open.ttl_ms, open.identity.clone());
        let of = |session| v1::SessionHandle {
            session,
            secret: secret.clone(),
        };
        let request = v1::AcquireRequest {
            open: Some(open),
            number: 1,
            lowest: 1,
            ..wanted.message()
        };
        let answered = match self.acquire_unless_gone(call, request, repeats).await {
            Ok(answered) => answered,
            Err(status) => {
                let mut refusal = refusal(&status);
                let session = opened_by(&Err(status)).map(of);
                refusal.metadata.remove("session");
                refusal.metadata.remove("ttl_ms");
                if let Some(session) = session.filter(|_| is_unused(&refusal, repeats)) {
                    self.close_unused(call, session).await;
                }
                return Err(refusal.into());
            }
        };
        let opened = answered.opened.clone().unwrap_or_default();
        let (session, ttl_ms) = (of(opened.session), opened.ttl_ms);
        let grant = grant_of(answered)?;
        // A repeat was perhaps opened by its first try, long before this one was sent.
        if repeats {
            same_ttl(asked_ms, ttl_ms)?;
            same_identity(&identity, &grant)?;
            return self.believed(call, &session, grant).await;
        }
        let kept = Kept {
            valid_for_ms: validity(ttl_ms),
            lost: Vec::new(),
        };
        let session = &session;
        Ok(Granted {
            grant,
            session,
            kept,
        }
        .answer())
    }

    /// Acquires with a session that the request opens. If the caller goes before it is answered, the
    /// session is closed: its number is known to no other.
    async fn acquire_unless_gone(
        &self,
        call: &Call,
        request: v1::AcquireRequest,
        repeats: bool,
    ) -> Result<v1::AcquireResponse, Status> {
        let secret = request.open.as_ref().map(|open| open.secret.clone());
        let (tell, answer) = oneshot::channel();
        let (rest, call) = (self.clone(), call.clone());
        ringfence_raft::spawn(ringfence_raft::carried(async move {
            let answered = rest.leases.acquire(call.ask(request)).await;
            let answered = answered.map(Response::into_inner);
            let Err(unheard) = tell.send(answered) else {
                return;
            };
            if let (Some(session), Some(secret), false) = (opened_by(&unheard), secret, repeats) {
                let session = v1::SessionHandle { session, secret };
                rest.close_unused(&call, session).await;
            }
        }));
        let stopped = |_| Refusal::outcome_unknown("this node is stopping").into();
        answer.await.unwrap_or_else(|error| Err(stopped(error)))
    }

    /// Opens a session and waits for the lease. Its caller knows no session before it is answered,
    /// so this node keeps it alive as long as the caller's connection lasts.
    async fn open_and_wait(
        &self,
        call: &Call,
        open: v1::OpenRequest,
        wanted: &Wanted,
        repeats: bool,
    ) -> Result<Answer, Refused> {
        let (asked_ms, identity) = (open.ttl_ms, open.identity.clone());
        let Opened { handle, ttl_ms } = self.open(call, open).await?;
        same_ttl(asked_ms, ttl_ms)?;
        let abandoned = (!repeats).then(|| {
            let (rest, call, session) = (self.clone(), call.clone(), handle.clone());
            Abandoned::new(async move {
                rest.close_unused(&call, session).await;
            })
        });
        let first = Numbered {
            number: 1,
            lowest: 1,
        };
        let waiting = self
            .leases
            .acquire(call.ask(wanted.request(&handle, first)));
        let answered = tokio::select! {
            answered = waiting => answered,
            never = self.keep_on(call, &handle, ttl_ms) => match never {},
        };
        let answered = match answered {
            Ok(answered) => {
                let grant = grant_of(answered.into_inner())?;
                same_identity(&identity, &grant)?;
                self.believed(call, &handle, grant).await
            }
            Err(status) => match Barred::of(&status) {
                None => Err(status.into()),
                Some(barred) => {
                    let undone = !repeats && self.close_unused(call, handle.clone()).await;
                    Err(barred.refused(undone))
                }
            },
        };
        if let Some(abandoned) = abandoned {
            abandoned.answered();
        }
        let refused = answered.as_ref().err();
        if refused.is_some_and(|refused| is_unused(&refused.refusal, repeats)) {
            self.close_unused(call, handle).await;
        }
        answered
    }

    /// Keeps a session alive until this is dropped.
    async fn keep_on(
        &self,
        call: &Call,
        session: &v1::SessionHandle,
        ttl_ms: u64,
    ) -> std::convert::Infallible {
        loop {
            // The acquire says what became of a session that is not kept.
            let kept = Box::pin(self.keep(call, session, Vec::new())).await.is_ok();
            let pause = if kept { ttl_ms / 3 } else { ttl_ms / 20 };
            sleep(Duration::from_millis(pause.max(1))).await;
        }
    }

    /// Adds to a grant for how long it may be believed in.
    async fn believed(
        &self,
        call: &Call,
        session: &v1::SessionHandle,
        grant: v1::Grant,
    ) -> Result<Answer, Refused> {
        let kept = Box::pin(self.keep_or_nothing(call, session)).await?;
        if let Some(lost) = kept.lost.iter().find(|lost| lost.token == grant.token) {
            let cause = lost
                .cause
                .as_ref()
                .map_or("", |cause| cause.kind().as_str_name());
            let message = format!(
                "lease {} was granted with token {}, and that grant has ended; acquire again",
                grant.name, grant.token
            );
            let refusal = Refusal::new(Reason::Ended, message)
                .with("name", &grant.name)
                .with("token", grant.token)
                .with("cause", cause);
            return Err(refusal.into());
        }
        Ok(Granted {
            grant,
            session,
            kept,
        }
        .answer())
    }

    /// Closes a session that brought its caller nothing, and says whether it did. If not the session
    /// ends by its TTL.
    async fn close_unused(&self, call: &Call, session: v1::SessionHandle) -> bool {
        let session = Some(session);
        let close = self.sessions.close(call.ask(v1::CloseRequest { session }));
        close.await.is_ok()
    }

    /// Takes back a request whose caller has gone, and a grant that crossed this.
    async fn give_up(&self, call: &Call, session: &v1::SessionHandle, target: u64) {
        for _ in 0..GIVE_UP_TRIES {
            if target == 0 {
                return;
            }
            match self.undo(call, session, target).await {
                Ok(()) => return,
                Err(status) if is_over(refusal(&status).reason) => return,
                Err(_) => {}
            }
            sleep(GIVE_UP_PAUSE).await;
        }
    }

    /// The same once. Then nothing is left of the request.
    async fn undo(
        &self,
        call: &Call,
        session: &v1::SessionHandle,
        target: u64,
    ) -> Result<(), Status> {
        let (_, cancelled) = self.take_back(call, session, target, None).await;
        let cancelled = cancelled?;
        if cancelled.token == 0 {
            return Ok(());
        }
        let release = |numbered: Numbered| {
            self.leases.release(call.ask(v1::ReleaseRequest {
                session: Some(session.clone()),
                number: numbered.number,
                lowest: numbered.lowest,
                name: cancelled.name.clone(),
                token: cancelled.token,
                close_session: false,
            }))
        };
        self.numbered(None, release).await.1.map(drop)
    }

    /// A refusal of a held lease with its holder, and what is left to it.
    async fn held(&self, call: &Call, name: &str, refusal: Refusal) -> Refused {
        let number = |key: &str| refusal.metadata.get(key).and_then(|text| text.parse().ok());
        let token: u64 = number("token").unwrap_or_default();
        let identity = refusal.metadata.get("identity");
        let members = Members::default()
            .with_number("holder", number("holder").unwrap_or_default())
            .with("identity", identity.map_or("", String::as_str))
            .with("token", token)
            .with("fence", fence(name, token));
        let name = name.to_owned();
        let get = v1::GetRequest { name, read: None };
        let left = self.left(call, get, token).await.ok().flatten();
        let more: Map<String, Value> = members.with_some("left_ms", left).map();
        Refused { refusal, more }
    }

    /// Cluster time left to the grant with this token unless it is kept alive.
    async fn left(
        &self,
        call: &Call,
        get: v1::GetRequest,
        token: u64,
    ) -> Result<Option<Value>, Status> {
        let lease = self.leases.get(call.ask(get)).await?.into_inner().lease;
        let lease = lease.filter(|lease| {
            let holder = lease.holder.as_ref();
            holder.is_some_and(|holder| holder.token == token)
        });
        Ok(lease.map(|lease| Value::from(lease.remaining_ms)))
    }
}

/// How often a request whose caller has gone is taken back until that is answered.
const GIVE_UP_TRIES: usize = 10;
/// The pause between two tries.
const GIVE_UP_PAUSE: Duration = Duration::from_secs(1);

/// The id of an opening that is part of an acquire. A key belongs to its call: used for `sessions`
/// before, it would name a session here that this acquire has not opened and must not close.
fn of_acquire(key: Bytes) -> Bytes {
    const CALL: [u8; handle::SECRET_BYTES] = *b"acquire with ttl";
    key.iter()
        .zip(CALL)
        .map(|(byte, call)| byte ^ call)
        .collect()
}

/// Whether nothing was granted to the session that a refused acquire opened, and nothing can be any
/// more. Where its caller may repeat the request, an earlier try may have been granted the lease: then
/// only what the log remembers of this very request says so, and any other refusal speaks of this try.
fn is_unused(refusal: &Refusal, repeats: bool) -> bool {
    let is_remembered = matches!(
        refusal.reason,
        Reason::Held
            | Reason::Queued
            | Reason::LockDelay
            | Reason::Revoking
            | Reason::QuietTime
            | Reason::WaitTimeout
    );
    is_remembered || !repeats
}

/// The session that a request opened, whatever it was answered.
fn opened_by(answered: &Result<v1::AcquireResponse, Status>) -> Option<u64> {
    match answered {
        Ok(answer) => answer.opened.as_ref().map(|opened| opened.session),
        Err(status) => refusal(status).metadata.get("session")?.parse().ok(),
    }
}

fn grant_of(answer: v1::AcquireResponse) -> Result<v1::Grant, Refusal> {
    let missing = || Refusal::fault("an acquire was answered without its grant");
    answer.grant.ok_or_else(missing)
}
