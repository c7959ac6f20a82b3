//! What a node answers to a client's frame: decoded, applied and encoded by the code that the nodes
//! use, `ringfence_proto::wire` and the state machine.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ringfence_core::{
    Acquired, ClusterTime, Command, Opened, Outcome, Rejection, Renew, RequestNumber, SessionId,
    StateMachine,
};
use ringfence_proto::v1::server_frame::Body;
use ringfence_proto::{Refusal, v1, wire};
use tokio::sync::oneshot;

use crate::cluster::{Applied, Cluster, WaitDone};

/// When a client may try again while no node leads: as the nodes say.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// The answer to a frame.
pub(crate) enum Answer {
    /// At once.
    Now(Box<v1::ServerFrame>),
    /// When a wait in a queue ends.
    Later(BoxFuture<'static, v1::ServerFrame>),
}

type Answered = Result<Body, Refusal>;

/// Carries out what a process asks.
pub(crate) fn serve(cluster: &Arc<Cluster>, process: &str, frame: v1::ClientFrame) -> Answer {
    let id = frame.id;
    let asked = match wire::frame_from_wire(frame.body) {
        Ok(asked) => asked,
        Err(refusal) => return now(id, Err(refusal)),
    };
    let answered = match asked {
        wire::Asked::Command(command) => return propose(cluster, process, id, command),
        wire::Asked::KeepAlive { id, keep_alive } => keep_alive_of(cluster, id, keep_alive),
        wire::Asked::Get { name, .. } => look(cluster, |machine| {
            let lease = machine.get(&name).ok_or_else(|| {
                Refusal::not_found(format!("lease {name}, or it is idle and forgotten"))
            })?;
            Ok(Body::Get(v1::GetResponse {
                lease: Some(wire::lease_to_wire(&lease)),
                at: Some(point(machine)),
            }))
        }),
        wire::Asked::Check { name, token, .. } => look(cluster, |machine| {
            let verdict = machine.check(&name, token);
            Ok(Body::Check(wire::verdict_to_wire(verdict, point(machine))))
        }),
    };
    now(id, answered)
}

fn now(id: u64, answered: Answered) -> Answer {
    Answer::Now(Box::new(framed(id, answered)))
}

fn framed(id: u64, answered: Answered) -> v1::ServerFrame {
    match answered {
        Ok(body) => v1::ServerFrame {
            id,
            body: Some(body),
        },
        Err(refusal) => wire::refusal_frame(id, refusal),
    }
}

fn no_leader() -> Refusal {
    let why = "no node leads: the members elect one";
    Refusal::unavailable(why, None, RETRY_AFTER)
}

fn look(cluster: &Cluster, answer: impl FnOnce(&StateMachine) -> Answered) -> Answered {
    cluster.leader().ok_or_else(no_leader)?;
    cluster.read(answer)
}

fn point(machine: &StateMachine) -> v1::ReadPoint {
    wire::read_point_to_wire(machine.index(), machine.time(), Duration::ZERO)
}

fn propose(cluster: &Arc<Cluster>, process: &str, id: u64, command: Command) -> Answer {
    let asked = match &command {
        Command::Request(request) => Some((request.session, request.number)),
        _ => None,
    };
    let Some(Applied { outcome, time }) = cluster.apply(command, Some(process)) else {
        return now(id, Err(no_leader()));
    };
    let answered = match outcome {
        Outcome::Acquired(acquired) => {
            return acquired_or_waits(cluster, id, acquired, time, asked, None);
        }
        Outcome::Opened(opened) => {
            let own = Some((opened.session, RequestNumber::FIRST));
            let response = opened_to_wire(cluster, &opened, time);
            match opened.acquired {
                Some(acquired) => {
                    return acquired_or_waits(cluster, id, acquired, time, own, Some(response));
                }
                None => Ok(Body::Open(response)),
            }
        }
        Outcome::Cancelled(cancelled) => {
            Ok(Body::Cancel(wire::cancelled_to_wire(&cancelled, time)))
        }
        Outcome::Released { .. } => Ok(Body::Release(v1::ReleaseResponse {
            cluster_time_ms: time.0,
        })),
        Outcome::Transferred { to, token } => Ok(Body::Transfer(v1::TransferResponse {
            to_session: to.get(),
            token: token.get(),
            cluster_time_ms: time.0,
        })),
        Outcome::Closed { cause } => Ok(Body::Close(wire::closed_to_wire(cause.as_ref(), time))),
        Outcome::Rejected(rejection) => Err(Refusal::from_rejection(&rejection)),
        Outcome::Done
        | Outcome::Renewed(_)
        | Outcome::NodeId(_)
        | Outcome::AccessChanged { .. }
        | Outcome::Object(_) => Err(Refusal::fault("the log answered another question")),
    };
    now(id, answered)
}

fn opened_to_wire(cluster: &Cluster, opened: &Opened, time: ClusterTime) -> v1::OpenResponse {
    let name = cluster.read(|machine| machine.cluster());
    wire::opened_to_wire(opened, time, &name.expect("it is formed before it serves"))
}

/// Answers an acquire, or waits with it for its turn.
fn acquired_or_waits(
    cluster: &Arc<Cluster>,
    id: u64,
    acquired: Acquired,
    time: ClusterTime,
    asked: Option<(SessionId, RequestNumber)>,
    opened: Option<v1::OpenResponse>,
) -> Answer {
    match (acquired, asked) {
        (Acquired::Waiting { .. }, Some((session, number))) => {
            let done = cluster.wait(session, number);
            let cluster = cluster.clone();
            Answer::Later(Box::pin(async move {
                framed(id, settled(&cluster, session, done, opened).await)
            }))
        }
        (acquired, _) => now(id, acquired_to_wire(&acquired, time, opened)),
    }
}

async fn settled(
    cluster: &Cluster,
    session: SessionId,
    done: oneshot::Receiver<WaitDone>,
    opened: Option<v1::OpenResponse>,
) -> Answered {
    match done.await {
        Ok(WaitDone::Settled(acquired)) => {
            let time = cluster.read(|machine| machine.time());
            acquired_to_wire(&acquired, time, opened)
        }
        Ok(WaitDone::SessionGone) => {
            let cause = cluster.read(|machine| machine.session_end(session));
            let rejection = Rejection::SessionExpired { cause };
            Err(Refusal::from_rejection(&rejection).with("session", session))
        }
        Err(_) => Err(Refusal::outcome_unknown("the world has ended")),
    }
}

fn acquired_to_wire(
    acquired: &Acquired,
    time: ClusterTime,
    opened: Option<v1::OpenResponse>,
) -> Answered {
    match (wire::acquired_to_wire(acquired), opened) {
        (Ok(grant), opened) => Ok(Body::Acquire(v1::AcquireResponse {
            grant: Some(grant),
            opened,
            cluster_time_ms: time.0,
        })),
        // The client needs the number of the session that was opened all the same.
        (Err(refusal), Some(opened)) => Err(refusal
            .with("session", opened.session)
            .with("ttl_ms", opened.ttl_ms)),
        (Err(refusal), None) => Err(refusal),
    }
}

/// One entry for each message; the nodes gather those of 50 ms into one.
fn keep_alive_of(cluster: &Cluster, id: u64, asked: wire::KeepAlive) -> Answered {
    let mut ended = Vec::new();
    let mut renew = Renew::default();
    cluster.read(|machine| {
        for (session, secret) in &asked.sessions {
            match machine.authenticate(*session, secret) {
                Ok(()) => renew.sessions.push(*session),
                Err(rejection) => ended.push((*session, rejection)),
            }
        }
        // Losses that there are, and no others, belong into the log.
        let known = asked.acknowledged.into_iter().filter(|(session, token)| {
            let lost = machine.lost(*session);
            lost.iter().any(|lost| lost.token == *token)
        });
        renew.acknowledged = known.collect();
    });
    renew.sessions.sort_unstable();
    renew.sessions.dedup();
    let applied = cluster.apply(Command::Renew(renew), None);
    let Applied { outcome, time } = applied.ok_or_else(no_leader)?;
    let Outcome::Renewed(renewed) = outcome else {
        return Err(Refusal::fault("the log answered another question"));
    };
    cluster.read(|machine| {
        ended.extend(renewed.ended.into_iter().map(|session| {
            let cause = machine.session_end(session);
            (session, Rejection::SessionExpired { cause })
        }));
    });
    let answer = wire::kept_alive_to_wire(id, time, &ended, &renewed.lost, &[]);
    Ok(Body::KeepAlive(wire::with_malformed(
        answer,
        &asked.malformed,
    )))
}
