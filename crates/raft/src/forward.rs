//! Calls for the leader: one stream to each node that leads, frames of many calls, answers by id.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringfence_core::ClusterTime;
use ringfence_proto::raft as pb;
use ringfence_proto::record::{decode_outcome, encode_outcome};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::network::Link;
use crate::propose::{Applied, LeaderHint, ProposeError};

/// The most calls that wait for the stream to one leader.
const CALLS_QUEUED_MAX: usize = 65_536;
/// The most calls in one frame.
const CALLS_PER_FRAME: usize = 512;
/// How long opening the stream may take.
const OPEN_MAX: Duration = Duration::from_secs(1);

/// What the leader is asked.
#[derive(Debug)]
pub(crate) enum CallBody {
    /// To log an encoded command.
    Propose(Bytes),
    KeepAlive(pb::KeepAlive),
    ReadIndex,
    ChangeMembers(pb::ChangeMembers),
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The leader never saw the call.
    NotSent(String),
    /// The leader answered that it cannot.
    Refused(ProposeError),
    /// The stream broke while the call was under way.
    Broken(String),
}

impl From<Failed> for ProposeError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::NotSent(why) => Self::not_done(why),
            Failed::Refused(error) => error,
            Failed::Broken(why) => Self::unknown(why),
        }
    }
}

/// The leader's answer.
#[derive(Debug)]
pub(crate) struct Answer(pub(crate) pb::answer::Body);

impl Answer {
    pub(crate) fn into_applied(self) -> Result<Applied, ProposeError> {
        match self.0 {
            pb::answer::Body::Applied(applied) => {
                let outcome = decode_outcome(&applied.outcome).map_err(|error| {
                    // Applied, but a newer program answered with what this one cannot read.
                    ProposeError::unknown(format!("the leader's answer: {error}"))
                })?;
                Ok(Applied {
                    outcome,
                    index: applied.index,
                    time: ClusterTime(applied.time),
                })
            }
            other => Err(unexpected(&other)),
        }
    }
}

pub(crate) fn unexpected(body: &pb::answer::Body) -> ProposeError {
    let _ = body;
    ProposeError::unknown("the leader answered another question than was asked")
}

pub(crate) fn applied_to_pb(applied: &Applied) -> pb::Applied {
    pb::Applied {
        outcome: encode_outcome(&applied.outcome),
        index: applied.index,
        time: applied.time.0,
    }
}

pub(crate) fn failure_to_pb(error: &ProposeError) -> pb::Failure {
    use pb::failure::Kind;
    let (kind, why, retry_after) = match error {
        ProposeError::NotDone {
            why, retry_after, ..
        } => (Kind::NotDone, why, *retry_after),
        ProposeError::Unknown { why } => (Kind::Unknown, why, None),
        ProposeError::Fault { why } => (Kind::Fault, why, None),
    };
    let retry_after = retry_after.unwrap_or_default().as_millis();
    pb::Failure {
        kind: kind.into(),
        why: why.clone(),
        retry_after_ms: u64::try_from(retry_after).unwrap_or(u64::MAX),
    }
}

fn failure_from_pb(failure: pb::Failure) -> ProposeError {
    let kind = failure.kind();
    let why = failure.why;
    match kind {
        pb::failure::Kind::NotDone => ProposeError::NotDone {
            why,
            leader: None,
            retry_after: Some(Duration::from_millis(failure.retry_after_ms)),
        },
        // Trying again would not help.
        pb::failure::Kind::Refused => ProposeError::NotDone {
            why,
            leader: None,
            retry_after: None,
        },
        // A fault of the leader is none of this node: what became of the call is not known.
        pb::failure::Kind::Unspecified | pb::failure::Kind::Unknown | pb::failure::Kind::Fault => {
            ProposeError::Unknown { why }
        }
    }
}

type Callback = Box<dyn FnOnce(Result<Answer, Failed>) + Send>;

struct Call {
    body: CallBody,
    callback: Callback,
}

/// The way to one leader. Dropping it ends its stream.
pub(crate) struct Forwarder {
    hint: LeaderHint,
    queue: mpsc::Sender<Call>,
    abandoned: watch::Sender<()>,
    task: tokio::task::AbortHandle,
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Forwarder {
    pub(crate) fn new(hint: LeaderHint, link: Arc<Link>) -> Self {
        let (queue, calls) = mpsc::channel(CALLS_QUEUED_MAX);
        let abandoned = watch::Sender::new(());
        let task = tokio::spawn(run(link, calls, abandoned.subscribe()));
        Self {
            hint,
            queue,
            abandoned,
            task: task.abort_handle(),
        }
    }

    pub(crate) fn hint(&self) -> LeaderHint {
        self.hint.clone()
    }

    pub(crate) fn node_id(&self) -> u64 {
        self.hint.node_id
    }

    /// Breaks the stream: this node leads no more, and may never answer.
    pub(crate) fn abandon(&self) {
        self.abandoned.send_replace(());
    }

    /// Asks the leader. `callback` is called exactly once, on any task, and must not block.
    pub(crate) fn call(
        &self,
        body: CallBody,
        callback: impl FnOnce(Result<Answer, Failed>) + Send + 'static,
    ) {
        let call = Call {
            body,
            callback: Box::new(callback),
        };
        if let Err(error) = self.queue.try_send(call) {
            let why = format!("{CALLS_QUEUED_MAX} calls are waiting for the leader");
            (error.into_inner().callback)(Err(Failed::NotSent(why)));
        }
    }

    /// Asks the leader and waits.
    pub(crate) async fn ask(&self, body: CallBody) -> Result<Answer, Failed> {
        let (tell, answer) = tokio::sync::oneshot::channel();
        self.call(body, move |result| {
            drop(tell.send(result));
        });
        let dropped = |_| Failed::Broken("this node is stopping".to_owned());
        answer.await.map_err(dropped)?
    }
}

async fn run(link: Arc<Link>, mut calls: mpsc::Receiver<Call>, mut abandoned: watch::Receiver<()>) {
    while let Some(first) = calls.recv().await {
        // From here on it is remembered, also while the stream is opened or written to.
        abandoned.mark_unchanged();
        let mut batch = vec![first];
        let (frames, outgoing) = mpsc::channel(16);
        let opened = tokio::time::timeout(OPEN_MAX, link.forward(ReceiverStream::new(outgoing)));
        let why = match opened.await {
            Ok(Ok(answers)) => {
                let stream = Stream {
                    frames,
                    answers,
                    under_way: HashMap::new(),
                    next: 0,
                };
                stream.run(&mut batch, &mut calls, &mut abandoned).await;
                continue;
            }
            Ok(Err(status)) => format!("the leader cannot be reached: {}", status.message()),
            Err(_) => "the leader did not answer in time".to_owned(),
        };
        while let Ok(call) = calls.try_recv() {
            batch.push(call);
        }
        for call in batch {
            (call.callback)(Err(Failed::NotSent(why.clone())));
        }
    }
}

struct Stream {
    frames: mpsc::Sender<pb::Calls>,
    answers: Streaming<pb::Answers>,
    under_way: HashMap<u64, Callback>,
    next: u64,
}

impl Stream {
    async fn run(
        mut self,
        batch: &mut Vec<Call>,
        calls: &mut mpsc::Receiver<Call>,
        abandoned: &mut watch::Receiver<()>,
    ) {
        let why = loop {
            if !batch.is_empty() && !self.send(batch).await {
                break "the stream to the leader broke".to_owned();
            }
            tokio::select! {
                taken = calls.recv_many(batch, CALLS_PER_FRAME) => {
                    if taken == 0 {
                        break "this node is stopping".to_owned();
                    }
                }
                answers = self.answers.message() => match answers {
                    Ok(Some(frame)) => frame.answers.into_iter().for_each(|a| self.answer(a)),
                    Ok(None) => break "the leader closed the stream".to_owned(),
                    Err(status) => break format!("the stream broke: {}", status.message()),
                },
                _ = abandoned.changed() => break "another node leads now".to_owned(),
            }
        };
        for callback in self.under_way.into_values() {
            callback(Err(Failed::Broken(why.clone())));
        }
    }

    async fn send(&mut self, batch: &mut Vec<Call>) -> bool {
        let mut frame = pb::Calls {
            calls: Vec::with_capacity(batch.len()),
        };
        for Call { body, callback } in batch.drain(..) {
            self.next += 1;
            self.under_way.insert(self.next, callback);
            let body = match body {
                CallBody::Propose(command) => pb::call::Body::Propose(command),
                CallBody::KeepAlive(request) => pb::call::Body::KeepAlive(request),
                CallBody::ReadIndex => pb::call::Body::ReadIndex(pb::Nothing {}),
                CallBody::ChangeMembers(change) => pb::call::Body::ChangeMembers(change),
            };
            frame.calls.push(pb::Call {
                id: self.next,
                body: Some(body),
            });
        }
        self.frames.send(frame).await.is_ok()
    }

    fn answer(&mut self, answer: pb::Answer) {
        let Some(callback) = self.under_way.remove(&answer.id) else {
            return;
        };
        callback(match answer.body {
            Some(pb::answer::Body::Failure(failure)) => {
                Err(Failed::Refused(failure_from_pb(failure)))
            }
            Some(body) => Ok(Answer(body)),
            None => Err(Failed::Broken("the leader's answer was empty".to_owned())),
        });
    }
}
