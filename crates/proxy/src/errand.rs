//! A request on its way to the service, and the answer on its way back, in a task of their own: a caller that
//! goes away takes back nothing of what was sent, and one that does not read holds nothing for ever.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Either};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::Failure;
use crate::answer::{AnswerBody, Passing};
use crate::clock::now;
use crate::failure::with_sources;
use crate::passage::Permit;
use crate::pool::{Connection, Pool};
use crate::request::from_service;
use crate::upload::{Upload, Whole};

/// What a caller waits for.
type Head = oneshot::Sender<Result<Response<AnswerBody>, Failure>>;

/// A request that may pass.
pub(crate) struct Errand {
    pub(crate) request: Request<Upload>,
    /// Whether its body was handed over as a whole.
    pub(crate) whole: Whole,
    /// Its place at the gate, if it has come with a fence.
    pub(crate) permit: Option<Permit>,
    /// Its place among all requests.
    pub(crate) place: OwnedSemaphorePermit,
    /// How long it may take. Then it is severed.
    pub(crate) request_max: Duration,
}

/// How the way of a request has ended.
enum End {
    /// Its body was handed over as a whole, and the answer has ended; whether the connection can have another
    /// request.
    Seen(bool),
    /// The connection has ended before that.
    Unseen(Failure),
    /// It was to end: its time is over, or a newer holder has come.
    Ended(Failure),
}

impl Errand {
    /// Runs it in a task, and has the head of the answer. Its body comes after it.
    pub(crate) async fn run(self, pool: Arc<Pool>) -> Result<Response<AnswerBody>, Failure> {
        let (head, answered) = oneshot::channel();
        tokio::spawn(self.go(pool, head));
        let answered = answered.await;
        answered.unwrap_or_else(|_| Err(Failure::Broken("the task has failed".to_owned())))
    }

    async fn go(self, pool: Arc<Pool>, head: Head) {
        let Self {
            request,
            mut whole,
            mut permit,
            place,
            request_max,
        } = self;
        let is_head = *request.method() == Method::HEAD;
        let until = now() + request_max;
        let mut head = Some(head);
        let connected = connect(&pool, until).await;
        let mut connection = match connected {
            Ok(connection) => connection,
            Err(failure) => return tell(&mut head, failure),
        };
        if let Some(permit) = &mut permit {
            permit.begin(request_max);
        }
        let sent = {
            let ended = ended(permit.as_ref(), until);
            tokio::select! {
                biased;
                failure = ended => Err(End::Ended(failure)),
                sent = send(&pool, &mut connection, request) => sent,
            }
        };
        let end = match sent {
            Err(end) => end,
            Ok(Sent::Not(failure)) => {
                if let Some(permit) = &mut permit {
                    permit.end();
                }
                return tell(&mut head, failure);
            }
            Ok(Sent::Answered(answer)) => {
                let ended = ended(permit.as_ref(), until);
                tokio::select! {
                    biased;
                    failure = ended => End::Ended(failure),
                    end = pass(answer, is_head, &mut connection, &mut whole, &mut head) => end,
                }
            }
        };
        if let End::Seen(true) = end {
            pool.give(connection);
        } else {
            connection.sever().await;
        }
        if matches!(end, End::Seen(_) | End::Ended(Failure::Cut)) {
            permit.iter_mut().for_each(Permit::end);
        }
        // From here on nothing of it goes to the service.
        drop(permit);
        drop(place);
        if let End::Unseen(failure) | End::Ended(failure) = end {
            tell(&mut head, failure);
        }
    }
}

/// Ready when it is to end before its end.
async fn ended(permit: Option<&Permit>, until: Instant) -> Failure {
    let cut = async {
        match permit {
            Some(permit) => permit.cut().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = sleep_until(until) => Failure::Late,
        () = cut => Failure::Cut,
    }
}

async fn connect(pool: &Pool, until: Instant) -> Result<Connection, Failure> {
    match timeout_at(until, pool.take()).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(Failure::Unreached(with_sources(&error))),
        Err(_) => Err(Failure::Unreached("there was no time for it".to_owned())),
    }
}

/// What has become of a request that was to be sent.
enum Sent {
    Answered(Response<Incoming>),
    /// Nothing was.
    Not(Failure),
}

async fn send(
    pool: &Pool,
    connection: &mut Connection,
    mut request: Request<Upload>,
) -> Result<Sent, End> {
    loop {
        let mut error = match connection.send(request).await {
            Ok(answer) => return Ok(Sent::Answered(answer)),
            Err(error) => error,
        };
        let told = with_sources(error.error());
        match error.take_message() {
            // The service had closed it.
            Some(unsent) if connection.is_used => request = unsent,
            Some(_) => return Ok(Sent::Not(Failure::Unreached(told))),
            None => return Err(End::Unseen(Failure::Broken(told))),
        }
        match pool.connect().await {
            Ok(new) => *connection = new,
            Err(error) => return Ok(Sent::Not(Failure::Unreached(with_sources(&error)))),
        }
    }
}

/// Passes the answer on until it has ended, also when its caller has gone, and waits until the body of
/// the request was handed over as well.
async fn pass(
    answer: Response<Incoming>,
    is_head: bool,
    connection: &mut Connection,
    whole: &mut Whole,
    head: &mut Option<Head>,
) -> End {
    let broken = |told: String| End::Unseen(Failure::Broken(told));
    let (mut parts, mut body) = answer.into_parts();
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        return broken("it has changed the protocol, for which it was not asked".to_owned());
    }
    // Some services send the body of these all the same, and it would be the next answer.
    let without_body = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED];
    let has_no_body = is_head || without_body.contains(&parts.status);
    from_service(&mut parts.headers);
    parts.version = http::Version::default();
    let (to, passing) = Passing::new(&body);
    if let Some(head) = head.take() {
        let answer = Response::from_parts(parts, Either::Left(passing));
        head.send(Ok(answer)).ok();
    }
    while let Some(frame) = body.frame().await {
        match frame {
            // Trailers are not passed on, as those of requests are not.
            Ok(frame) => match frame.into_data() {
                Ok(data) => to.send(data).await,
                Err(_) => continue,
            },
            Err(error) => return broken(with_sources(&error)),
        }
    }
    to.end();
    let is_early = !whole.is_whole();
    let is_whole = tokio::select! {
        biased;
        is_whole = whole.wait() => is_whole,
        _ = connection.closed() => false,
    };
    if !is_whole {
        return broken("the connection has ended before the end of the request".to_owned());
    }
    match connection.flushed().await {
        // A service that answers early may take the rest of the body for the next request.
        Ok(can_have_another) => End::Seen(can_have_another && !is_early && !has_no_body),
        Err(told) => broken(told),
    }
}

fn tell(head: &mut Option<Head>, failure: Failure) {
    if let Some(head) = head.take() {
        head.send(Err(failure)).ok();
    }
}
