//! Keep-alives: one message for all sessions of the client, and an eye on their windows.
//!
//! It runs on the client's own thread, so that an application which blocks its executor loses no
//! session by that.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringfence_core::FencingToken;
use ringfence_proto::v1::check_response::Verdict;
use ringfence_proto::v1::{
    Acknowledged, CheckRequest, KeepAliveRequest, KeepAliveResponse, Reason, client_frame,
    server_frame,
};
use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::session::client_inner::ClientInner;
use crate::session::grant::Grant;
use crate::session::inner::SessionInner;
use crate::session::loss::Loss;
use crate::transport::calls::{Answer, ReplyMode};
use crate::transport::error::CallError;

/// The most sessions in one request; the server takes 10,000, and a message has an end too.
const SESSIONS_MAX: usize = 4_096;
/// The most grants of one session that are asked about at one time.
const CHECKS_MAX: usize = 256;

/// Runs until the client's thread ends.
pub(crate) async fn run(client: &Arc<ClientInner>) {
    let mut current = client.transport.link.current();
    loop {
        // Reset before the sessions are listed: a session that registers from here on finds no
        // armed moment and wakes this loop, even if the list below misses it.
        client.arm(None);
        let connected = current.borrow().is_some();
        let now = client.transport.now();
        let sessions = client.sessions();
        let mut next: Option<Moment> = None;
        let mut due = false;
        for session in &sessions {
            let Some((look, keep_alive)) = session.poll_deadlines(now) else {
                continue;
            };
            // Without a stream nothing is sent, so a due keep-alive is no reason to wake up; the
            // windows still are. A keep-alive that would wait for the next stream would be stale
            // when it leaves: `renew_now` makes a new one.
            due |= connected && keep_alive <= now;
            let wake = if connected {
                look.min(keep_alive)
            } else {
                look
            };
            next = Some(next.map_or(wake, |next| next.min(wake)));
        }
        if due {
            send(client, &sessions, now);
            continue;
        }
        client.arm(next);
        crate::sync::select! {
            () = sleep(client, next) => {}
            () = client.wake.notified() => {}
            changed = current.changed() => {
                if changed.is_err() {
                    return;
                }
                // A new stream, so perhaps a new leader: it learns at once who is alive.
                let now = client.transport.now();
                client.sessions().iter().for_each(|session| session.renew_now(now));
            }
        }
    }
}

async fn sleep(client: &ClientInner, until: Option<Moment>) {
    match until {
        Some(moment) => client.transport.options.clock.sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// The sessions of one request, each with the losses it acknowledged.
type Batch = Vec<(Arc<SessionInner>, Vec<u64>)>;

fn send(client: &Arc<ClientInner>, sessions: &[Arc<SessionInner>], now: Moment) {
    let mut request = KeepAliveRequest::default();
    let mut batch = Batch::new();
    for session in sessions {
        let Some(part) = session.join_keep_alive(now) else {
            continue;
        };
        let number = session.id().get();
        request.sessions.push(part.handle);
        let acknowledged = part.acknowledged.iter();
        request
            .acknowledged
            .extend(acknowledged.map(|&token| Acknowledged {
                session: number,
                token,
            }));
        batch.push((Arc::clone(session), part.acknowledged));
        if request.sessions.len() + request.acknowledged.len() >= SESSIONS_MAX {
            dispatch(
                client,
                std::mem::take(&mut request),
                std::mem::take(&mut batch),
                now,
            );
        }
    }
    if !batch.is_empty() {
        dispatch(client, request, batch, now);
    }
}

fn dispatch(client: &Arc<ClientInner>, request: KeepAliveRequest, batch: Batch, now: Moment) {
    // An answer that comes when the last window has passed is of no use.
    let longest = batch
        .iter()
        .map(|(session, _)| session.ttl())
        .max()
        .unwrap_or_default();
    let body = client_frame::Body::KeepAlive(request);
    // Never repeated by the transport: a repeat would carry the `t_send` of the first try, and the
    // next keep-alive carries a later one.
    let reply = client
        .transport
        .link
        .call(body, None, ReplyMode::Once, now + longest);
    let taker = Arc::clone(client);
    let taking = async move { take(&taker, reply, batch).await };
    drop(client.transport.thread.spawn(taking));
}

async fn take(
    client: &ClientInner,
    reply: oneshot::Receiver<Result<Answer, CallError>>,
    batch: Batch,
) {
    // Without an answer there is nothing to do: the next keep-alive is scheduled already.
    let Ok(answer) = reply.await else { return };
    let (reply, sent) = match answer {
        Ok(Answer {
            body: server_frame::Body::KeepAlive(reply),
            sent,
        }) => (reply, sent),
        Ok(_) => return,
        Err(error) => {
            if let CallError::Refused(refusal) = &error {
                client
                    .transport
                    .options
                    .credential
                    .keep_alive_refused(refusal);
            }
            return client.transport.note_refusal(&error);
        }
    };
    if reply.ended.len() < batch.len() {
        client.transport.options.credential.keep_alive_taken();
    }
    apply(reply, sent, &batch);
    client.wake.notify_one();
}

fn apply(reply: KeepAliveResponse, sent: Moment, batch: &Batch) {
    for (session, acknowledged) in batch {
        let number = session.id().get();
        if let Some(ended) = reply.ended.iter().find(|ended| ended.session == number) {
            let why = match ended.reason() {
                // The credential was not taken: the session lives until its window ends, and the
                // client asks again, with another token perhaps.
                Reason::Unauthenticated => continue,
                // Not ended: it is not this client's, as with another secret.
                Reason::WrongSecret | Reason::PermissionDenied => Loss::WrongSecret,
                _ => Loss::of_session(ended.cause.clone()),
            };
            // The session's own end outweighs whatever else the reply lists for it.
            session.lose(&why);
            continue;
        }
        // What was lost first, then what the reply extends: nothing for the lost.
        if let Some(lost) = reply.lost.iter().find(|lost| lost.session == number) {
            session.grants_lost(&lost.grants);
        }
        // It may have lost anything: nothing is extended, and it asks again at once.
        if reply.untold.contains(&number) {
            session.ask_soon();
            continue;
        }
        // What this keep-alive acknowledged has reached the cluster. Losses that were noticed since
        // stay in the list for the next one.
        session.acknowledged(acknowledged);
        session.acknowledge(sent);
        verify_grants(session);
    }
}

/// Asks whether the grants of a session whose handle others have are still in force. A keep-alive
/// tells what ended against the session's will; what another process ended by the handle is the
/// session's will.
fn verify_grants(session: &Arc<SessionInner>) {
    let grants = session.grants_to_verify();
    if grants.is_empty() || session.checking.swap(true, Ordering::Relaxed) {
        return;
    }
    // In a task of its own: the checks take a round trip, and the next keep-alive must not wait for
    // them. `checking` allows one such task per session, or slow answers would pile up.
    let asking = Arc::clone(session);
    drop(session.transport.thread.spawn(async move {
        for chunk in grants.chunks(CHECKS_MAX) {
            let questions = chunk.iter().map(|grant| ended_token(&asking, grant));
            let answers = futures_util::future::join_all(questions).await;
            for ended in answers.into_iter().flatten() {
                asking.on_watched_end(ended, None);
            }
        }
        asking.checking.store(false, Ordering::Relaxed);
    }));
}

/// Whether the cluster says that a grant is not in force; without an answer nothing is known.
async fn ended_token(session: &SessionInner, grant: &Grant) -> Option<FencingToken> {
    let question = client_frame::Body::Check(CheckRequest {
        name: grant.name.to_string(),
        token: grant.token.get(),
        read: None,
    });
    let transport = &session.transport;
    let answer = transport
        .call(question, ReplyMode::Prompt, transport.deadline())
        .await;
    let Ok(Answer {
        body: server_frame::Body::Check(reply),
        ..
    }) = answer
    else {
        return None;
    };
    match reply.verdict() {
        Verdict::Unspecified | Verdict::Current => None,
        Verdict::Superseded | Verdict::Ended | Verdict::Unknown => Some(grant.token),
    }
}
