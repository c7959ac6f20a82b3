//! Calls for the leader: one stream to each node that leads, frames of many calls, answers by id.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use prost::Message;
use ringfence_core::ClusterTime;
use ringfence_proto::TraceParent;
use ringfence_proto::raft as pb;
use ringfence_proto::record::{decode_outcome, encode_outcome};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::client::Link;
use crate::types::reply::{Applied, LeaderHint, ProposeError};

/// The most calls that wait for the stream to one leader.
const CALLS_QUEUED_MAX: usize = 65_536;
/// The most calls in one frame.
const CALLS_PER_FRAME: usize = 512;
/// A frame of calls or answers ends behind the one with which it passes this size, in bytes; so it
/// stays far below what a message may have.
pub(crate) const FRAME_BYTES_AIM: usize = 1 << 20;
/// Frames that wait for the stream.
const FRAMES_QUEUED: usize = 16;
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

impl CallBody {
    fn into_pb(self) -> pb::call::Body {
        match self {
            Self::Propose(command) => pb::call::Body::Propose(command),
            Self::KeepAlive(request) => pb::call::Body::KeepAlive(request),
            Self::ReadIndex => pb::call::Body::ReadIndex(pb::Nothing {}),
            Self::ChangeMembers(change) => pb::call::Body::ChangeMembers(change),
        }
    }
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

/// The leader's answer to a call, not yet checked to be of the kind that was asked for.
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
        // No caller needs to try again.
        ProposeError::NotDone {
            why,
            retry_after: None,
            ..
        } => (Kind::Refused, why, None),
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
    /// The span that asks, if it is recorded.
    within: Option<TraceParent>,
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
        let task = crate::platform::runtime::spawn(run(link, calls, abandoned.subscribe()));
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

    /// Breaks the stream: the node at its other end lost leadership and may never answer. Calls in
    /// flight fail as [`Failed::Broken`], since they may have been logged.
    pub(crate) fn abandon(&self) {
        self.abandoned.send_replace(());
    }

    /// Asks the leader. `callback` is called exactly once, on any task, and must not block.
    pub(crate) fn call(
        &self,
        body: CallBody,
        callback: impl FnOnce(Result<Answer, Failed>) + Send + 'static,
    ) {
        self.call_within(body, None, callback);
    }

    /// The same within a trace.
    pub(crate) fn call_within(
        &self,
        body: CallBody,
        within: Option<TraceParent>,
        callback: impl FnOnce(Result<Answer, Failed>) + Send + 'static,
    ) {
        let call = Call {
            body,
            within,
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
            tell.send(result).ok();
        });
        let dropped = |_| Failed::Broken("this node is stopping".to_owned());
        answer.await.map_err(dropped)?
    }
}

async fn run(link: Arc<Link>, mut calls: mpsc::Receiver<Call>, mut abandoned: watch::Receiver<()>) {
    while let Some(first) = calls.recv().await {
        // An abandonment that is older than this call is not about it. A later one is kept by the
        // watch, even while the stream is being opened.
        abandoned.mark_unchanged();
        let mut unsent = VecDeque::from([first]);
        let (frames, outgoing) = mpsc::channel(FRAMES_QUEUED);
        let opened = tokio::time::timeout(OPEN_MAX, link.forward(ReceiverStream::new(outgoing)));
        let why = match opened.await {
            Ok(Ok(answers)) => {
                let mut stream = Stream {
                    frames,
                    answers,
                    under_way: UnderWay::default(),
                };
                stream.run(&mut unsent, &mut calls, &mut abandoned).await
            }
            Ok(Err(status)) => format!("the leader cannot be reached: {}", status.message()),
            Err(_) => "the leader did not answer in time".to_owned(),
        };
        while let Ok(call) = calls.try_recv() {
            unsent.push_back(call);
        }
        for call in unsent {
            (call.callback)(Err(Failed::NotSent(why.clone())));
        }
    }
}

struct Stream<A> {
    frames: mpsc::Sender<pb::Calls>,
    answers: A,
    under_way: UnderWay,
}

impl<A> Stream<A>
where
    A: futures_util::Stream<Item = Result<pb::Answers, Status>> + Unpin,
{
    /// Runs until the stream breaks, and says why. What stays in `unsent` the leader never saw.
    async fn run(
        &mut self,
        unsent: &mut VecDeque<Call>,
        calls: &mut mpsc::Receiver<Call>,
        abandoned: &mut watch::Receiver<()>,
    ) -> String {
        let Self {
            frames,
            answers,
            under_way,
        } = self;
        let mut taken = Vec::new();
        let why = loop {
            // Answers are read even while there is no room for calls. A leader that cannot send its
            // answers stops reading calls, so waiting for room alone would block both sides for ever.
            tokio::select! {
                room = frames.reserve(), if !unsent.is_empty() => match room {
                    Ok(room) => room.send(under_way.next_frame(unsent)),
                    Err(_) => break "the stream to the leader broke".to_owned(),
                },
                count = calls.recv_many(&mut taken, CALLS_PER_FRAME),
                    if unsent.len() < CALLS_PER_FRAME =>
                {
                    if count == 0 {
                        break "this node is stopping".to_owned();
                    }
                    unsent.extend(taken.drain(..));
                }
                frame = answers.next() => match frame {
                    Some(Ok(frame)) => frame.answers.into_iter().for_each(|a| under_way.answer(a)),
                    None => break "the leader closed the stream".to_owned(),
                    Some(Err(status)) => break format!("the stream broke: {}", status.message()),
                },
                _ = abandoned.changed() => break "another node leads now".to_owned(),
            }
        };
        under_way.give_up(&why);
        why
    }
}

/// Calls that wait for their answers.
#[derive(Default)]
struct UnderWay {
    callbacks: BTreeMap<u64, Callback>,
    last: u64,
}

impl UnderWay {
    /// Takes as many calls as fit in a frame, at least one.
    fn next_frame(&mut self, unsent: &mut VecDeque<Call>) -> pb::Calls {
        let mut frame = pb::Calls::default();
        let mut bytes = 0;
        while frame.calls.len() < CALLS_PER_FRAME
            && bytes < FRAME_BYTES_AIM
            && let Some(Call {
                body,
                within,
                callback,
            }) = unsent.pop_front()
        {
            self.last += 1;
            self.callbacks.insert(self.last, callback);
            let call = pb::Call {
                id: self.last,
                body: Some(body.into_pb()),
                traceparent: within.map(|within| within.to_string()).unwrap_or_default(),
            };
            bytes += call.encoded_len();
            frame.calls.push(call);
        }
        frame
    }

    fn answer(&mut self, answer: pb::Answer) {
        let Some(callback) = self.callbacks.remove(&answer.id) else {
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

    fn give_up(&mut self, why: &str) {
        for callback in std::mem::take(&mut self.callbacks).into_values() {
            callback(Err(Failed::Broken(why.to_owned())));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn call(body: CallBody, answered: &Arc<AtomicU64>) -> Call {
        let answered = answered.clone();
        Call {
            body,
            within: None,
            callback: Box::new(move |answer| {
                if answer.is_ok() {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }),
        }
    }

    #[tokio::test]
    async fn answers_are_read_while_the_leader_takes_no_calls() {
        let (frames, _nobody_takes_them) = mpsc::channel(1);
        let (answer, answers) = mpsc::channel(1);
        let (queue, mut calls) = mpsc::channel(4 * CALLS_PER_FRAME);
        let answered = Arc::new(AtomicU64::new(0));
        for _ in 0..3 * CALLS_PER_FRAME {
            queue
                .try_send(call(CallBody::ReadIndex, &answered))
                .ok()
                .unwrap();
        }
        let running = crate::platform::runtime::spawn(async move {
            let mut stream = Stream {
                frames,
                answers: ReceiverStream::new(answers),
                under_way: UnderWay::default(),
            };
            let abandoned = watch::Sender::new(());
            let mut unsent = VecDeque::new();
            let why = stream
                .run(&mut unsent, &mut calls, &mut abandoned.subscribe())
                .await;
            (why, unsent.len())
        });
        // A frame for the full channel, and one call at a time from then on.
        let answers = (1..=20).map(|id| pb::Answers {
            answers: vec![pb::Answer {
                id,
                body: Some(pb::answer::Body::ReadIndex(id)),
            }],
        });
        for frame in answers {
            let sent = tokio::time::timeout(Duration::from_secs(10), answer.send(Ok(frame)));
            sent.await.expect("somebody reads answers").unwrap();
        }
        drop(answer);
        let (why, unsent) = running.await.unwrap();
        assert!(why.contains("closed the stream"), "{why}");
        assert!(unsent > 0, "calls that were never sent are known to be");
    }

    #[test]
    fn a_frame_ends_by_its_bytes_and_loses_no_call() {
        let answered = Arc::default();
        let long = FRAME_BYTES_AIM / 10;
        let bodies = (0..40).map(|n| vec![n; if n == 20 { 3 * FRAME_BYTES_AIM } else { long }]);
        let mut unsent: VecDeque<Call> = bodies
            .map(|body| call(CallBody::Propose(body.into()), &answered))
            .collect();
        let mut under_way = UnderWay::default();
        let mut seen = 0;
        while !unsent.is_empty() {
            let frame = under_way.next_frame(&mut unsent);
            let whole = frame.encoded_len();
            let last = frame.calls.last().unwrap().encoded_len();
            assert!(whole - last < FRAME_BYTES_AIM, "{whole} bytes");
            for call in frame.calls {
                seen += 1;
                assert_eq!(call.id, seen);
            }
        }
        assert_eq!(seen, 40);
    }
}
