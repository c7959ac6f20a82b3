//! The leader's side of the stream of calls.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use prost::Message;
use ringfence_proto::TraceParent;
use ringfence_proto::raft as pb;
use ringfence_proto::record::decode_command;
use tokio::sync::{Notify, mpsc};
use tonic::{Status, Streaming};

use super::allowed::{Refusals, allowed};
use crate::membership::error::{MembershipError, failure_to_pb as membership_failure_to_pb};
use crate::network::forward::{FRAME_BYTES_AIM, applied_to_pb, failure_to_pb};
use crate::platform::clock;
use crate::read::reading;
use crate::requests::change::{change_as_leader, denied_to_pb};
use crate::requests::keepalive;
use crate::requests::keepalive::KeepAliveSource;
use crate::requests::propose::{FORWARD, Origin, Pending, end_forward};
use crate::shared::inner::Inner;
use crate::spans::Serving;
use crate::types::reply::{Applied, ProposeError, Reply};

/// The most answers in one frame.
const ANSWERS_PER_FRAME: usize = 512;
/// Answers that a slow caller may leave unread before its stream is ended.
const ANSWERS_QUEUED: usize = 65_536;

type Answers = Pin<Box<dyn Stream<Item = Result<pb::Answers, Status>> + Send>>;

/// Carries out the calls of a stream and answers each when it is done, in any order. A caller of a
/// newer release may ask for what this one cannot read. `caller` is the node id that it names.
pub(crate) fn serve_calls(
    inner: Arc<Inner>,
    mut calls: Streaming<pb::Calls>,
    caller: u64,
    newer_caller: bool,
    refusals: Arc<Refusals>,
) -> Answers {
    let (answers, done) = mpsc::channel(ANSWERS_QUEUED);
    let answers = Answering {
        answers,
        lost: Arc::default(),
    };
    let lost = answers.lost.clone();
    let source = KeepAliveSource::unique();
    let task = crate::platform::runtime::spawn(async move {
        while let Ok(Some(frame)) = calls.message().await {
            for call in frame.calls {
                if newer_caller && let Some(why) = not_known(&call) {
                    let body = failure(&ProposeError::not_done(why));
                    answers.send(call.id, body);
                    continue;
                }
                if let Some(pb::call::Body::Propose(command)) = &call.body
                    && let Err(refused) = allowed(command)
                {
                    refusals.tell(caller, &refused);
                    answers.send(call.id, failure(&refused.into()));
                    continue;
                }
                carry_out(&inner, source, call, answers.clone());
            }
        }
    });
    frames(done, lost, AbortOnDrop(task.abort_handle()))
}

/// The answers in frames, until there are no more or one was lost.
fn frames(
    done: mpsc::Receiver<pb::Answer>,
    lost: Arc<Notify>,
    guard: impl Send + 'static,
) -> Answers {
    let state = (done, lost, guard);
    let frames = futures_util::stream::unfold(state, |(mut done, lost, guard)| async move {
        let first = tokio::select! {
            biased;
            () = lost.notified() => return None,
            first = done.recv() => first?,
        };
        let answers = frame(first, || done.try_recv().ok());
        Some((Ok(pb::Answers { answers }), (done, lost, guard)))
    });
    frames.boxed()
}

/// An answer and what is there besides, as far as it fits in a frame.
fn frame(first: pb::Answer, mut more: impl FnMut() -> Option<pb::Answer>) -> Vec<pb::Answer> {
    let mut bytes = first.encoded_len();
    let mut answers = vec![first];
    while answers.len() < ANSWERS_PER_FRAME
        && bytes < FRAME_BYTES_AIM
        && let Some(answer) = more()
    {
        bytes += answer.encoded_len();
        answers.push(answer);
    }
    answers
}

/// The queue of answers of one stream, [`ANSWERS_QUEUED`] long.
#[derive(Clone)]
struct Answering {
    answers: mpsc::Sender<pb::Answer>,
    lost: Arc<Notify>,
}

impl Answering {
    /// An answer for which there is no room ends the stream: the caller would wait for it for ever,
    /// and learns so that whatever is under way may have happened.
    fn send(&self, id: u64, body: pb::answer::Body) {
        let body = Some(body);
        if let Err(mpsc::error::TrySendError::Full(_)) =
            self.answers.try_send(pb::Answer { id, body })
        {
            self.lost.notify_one();
        }
    }
}

/// Says why a command must not be logged by this node: it would stop before the entry itself.
pub(crate) fn not_known(call: &pb::Call) -> Option<String> {
    let Some(pb::call::Body::Propose(command)) = &call.body else {
        return None;
    };
    let error = decode_command(command).err()?;
    Some(format!(
        "this node leads and its release does not know the command ({error}): upgrade it first"
    ))
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn carry_out(inner: &Arc<Inner>, source: KeepAliveSource, call: pb::Call, answers: Answering) {
    let id = call.id;
    let answer = move |body| answers.send(id, body);
    match call.body {
        Some(pb::call::Body::Propose(command)) => {
            let serving = served(inner, &call.traceparent);
            let span = serving.as_ref().map(|serving| Arc::clone(serving.span()));
            inner.proposals.submit(Pending {
                command,
                reply: Reply::new(move |result| {
                    record(serving, &result);
                    answer(match result {
                        Ok(applied) => pb::answer::Body::Applied(applied_to_pb(&applied)),
                        Err(error) => failure(&error),
                    });
                }),
                origin: Origin::Peer,
                deadline: clock::since_boot(),
                refusal: None,
                rests: false,
                span,
            });
        }
        Some(pb::call::Body::KeepAlive(request)) => match keepalive::request_from_pb(&request) {
            Some(request) => inner.keepalives.submit_from_peer(
                source,
                request,
                Reply::new(move |result| {
                    answer(match result {
                        Ok(kept) => pb::answer::Body::KeptAlive(keepalive::kept_to_pb(kept)),
                        Err(error) => failure(&error),
                    });
                }),
            ),
            None => answer(failure(&ProposeError::not_done(
                "a session number or token is 0, or its caller is no principal",
            ))),
        },
        Some(pb::call::Body::ReadIndex(pb::Nothing {})) => {
            let inner = inner.clone();
            let _detached = crate::platform::runtime::spawn(async move {
                answer(match reading::leader_read_index(&inner).await {
                    Ok(index) => pb::answer::Body::ReadIndex(index),
                    Err(error) => failure(&error),
                });
            });
        }
        Some(pb::call::Body::ChangeMembers(change)) => {
            let inner = inner.clone();
            let _detached = crate::platform::runtime::spawn(async move {
                answer(
                    match change_as_leader(&inner.route, inner.config.timing, change).await {
                        Ok(changed) => pb::answer::Body::MembersChanged(changed),
                        Err(MembershipError::Denied(rejection)) => {
                            pb::answer::Body::MembersChanged(denied_to_pb(&rejection))
                        }
                        Err(error) => pb::answer::Body::Failure(membership_failure_to_pb(&error)),
                    },
                );
            });
        }
        None => answer(failure(&ProposeError::not_done(
            "this node does not know the call",
        ))),
    }
}

/// Begins the span of a command that another node hands on, if its trace is recorded.
fn served(inner: &Arc<Inner>, traceparent: &str) -> Option<Serving> {
    if traceparent.is_empty() {
        return None;
    }
    let caller = TraceParent::parse(traceparent)?;
    let serving = inner.config.spans.serve(FORWARD, || Some(caller))?;
    serving.span().note("rpc.system.name", "grpc");
    serving.span().note("rpc.method", FORWARD);
    Some(serving)
}

fn record(serving: Option<Serving>, result: &Result<Applied, ProposeError>) {
    let Some(serving) = serving else { return };
    let error = match result {
        Ok(_) => None,
        Err(ProposeError::NotDone { .. }) => Some("not_done"),
        Err(ProposeError::Unknown { .. }) => Some("unknown"),
        Err(ProposeError::Fault { .. }) => Some("fault"),
    };
    end_forward(serving, error);
}

fn failure(error: &ProposeError) -> pb::answer::Body {
    pb::answer::Body::Failure(failure_to_pb(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_answers_ends_by_its_bytes() {
        let outcome = bytes::Bytes::from(vec![7; FRAME_BYTES_AIM / 4]);
        let mut waiting = (1..=100).map(|id| {
            let applied = pb::Applied {
                outcome: outcome.clone(),
                ..pb::Applied::default()
            };
            let body = Some(pb::answer::Body::Applied(applied));
            pb::Answer { id, body }
        });
        let first = waiting.next().unwrap();
        let answers = frame(first, || waiting.next());
        assert_eq!(answers.len(), 4);
        assert_eq!(
            waiting.next().map(|answer| answer.id),
            Some(5),
            "none is lost"
        );
    }

    #[test]
    fn a_command_of_a_newer_release_is_not_logged() {
        // Field 99, of no length.
        let propose = |command: &'static [u8]| pb::Call {
            id: 1,
            body: Some(pb::call::Body::Propose(command.into())),
            ..pb::Call::default()
        };
        let why = not_known(&propose(&[0x9a, 0x06, 0x00])).unwrap();
        assert!(why.contains("99") && why.contains("upgrade"), "{why}");
        // A tick.
        assert_eq!(not_known(&propose(&[0x1a, 0x00])), None);
    }

    #[tokio::test]
    async fn a_lost_answer_ends_the_stream() {
        let (answers, done) = mpsc::channel(1);
        let answering = Answering {
            answers,
            lost: Arc::default(),
        };
        let mut frames = frames(done, answering.lost.clone(), ());
        for id in 1..=2 {
            answering.send(id, pb::answer::Body::ReadIndex(id));
        }
        let ended = async { while frames.next().await.is_some() {} };
        let ended = tokio::time::timeout(std::time::Duration::from_secs(5), ended).await;
        assert!(ended.is_ok(), "its caller would wait for ever");
    }
}
