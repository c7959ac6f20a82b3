//! The leader's side of the stream of calls.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use ringfence_proto::raft as pb;
use tokio::sync::{Notify, mpsc};
use tonic::{Status, Streaming};

use crate::clock;
use crate::forward::{applied_to_pb, failure_to_pb};
use crate::inner::Inner;
use crate::propose::{Origin, Pending, ProposeError, Reply};
use crate::{keepalive, membership, reading};

/// The most answers in one frame.
const ANSWERS_PER_FRAME: usize = 512;
/// Answers that a slow caller may leave unread before its stream is ended.
const ANSWERS_QUEUED: usize = 65_536;

type Answers = Pin<Box<dyn Stream<Item = Result<pb::Answers, Status>> + Send>>;

/// Carries out the calls of a stream and answers each when it is done, in any order.
pub(crate) fn serve_calls(inner: Arc<Inner>, mut calls: Streaming<pb::Calls>) -> Answers {
    let (answers, done) = mpsc::channel(ANSWERS_QUEUED);
    let answers = Answering {
        answers,
        lost: Arc::default(),
    };
    let lost = answers.lost.clone();
    let task = tokio::spawn(async move {
        while let Ok(Some(frame)) = calls.message().await {
            for call in frame.calls {
                carry_out(&inner, call, answers.clone());
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
        let mut answers = Vec::new();
        tokio::select! {
            biased;
            () = lost.notified() => return None,
            taken = done.recv_many(&mut answers, ANSWERS_PER_FRAME) => {
                if taken == 0 {
                    return None;
                }
            }
        }
        Some((Ok(pb::Answers { answers }), (done, lost, guard)))
    });
    frames.boxed()
}

/// Where answers go.
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

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn carry_out(inner: &Arc<Inner>, call: pb::Call, answers: Answering) {
    let id = call.id;
    let answer = move |body| answers.send(id, body);
    match call.body {
        Some(pb::call::Body::Propose(command)) => inner.proposals.submit(Pending {
            command,
            reply: Reply::new(move |result| {
                answer(match result {
                    Ok(applied) => pb::answer::Body::Applied(applied_to_pb(&applied)),
                    Err(error) => failure(&error),
                });
            }),
            origin: Origin::Peer,
            deadline: clock::since_boot(),
            refused: false,
        }),
        Some(pb::call::Body::KeepAlive(request)) => match keepalive::request_from_pb(&request) {
            Some(request) => inner.keepalives.submit_from_peer(
                request,
                Reply::new(move |result| {
                    answer(match result {
                        Ok(kept) => pb::answer::Body::KeptAlive(keepalive::kept_to_pb(kept)),
                        Err(error) => failure(&error),
                    });
                }),
            ),
            None => answer(failure(&ProposeError::not_done(
                "a session number or token is 0",
            ))),
        },
        Some(pb::call::Body::ReadIndex(pb::Nothing {})) => {
            let inner = inner.clone();
            let _detached = tokio::spawn(async move {
                answer(match reading::leader_read_index(&inner).await {
                    Ok(index) => pb::answer::Body::ReadIndex(index),
                    Err(error) => failure(&error),
                });
            });
        }
        Some(pb::call::Body::ChangeMembers(change)) => {
            let inner = inner.clone();
            let _detached = tokio::spawn(async move {
                answer(match membership::change_as_leader(&inner, change).await {
                    Ok(changed) => pb::answer::Body::MembersChanged(changed),
                    Err(error) => pb::answer::Body::Failure(membership::failure_to_pb(&error)),
                });
            });
        }
        None => answer(failure(&ProposeError::not_done(
            "this node does not know the call",
        ))),
    }
}

fn failure(error: &ProposeError) -> pb::answer::Body {
    pb::answer::Body::Failure(failure_to_pb(error))
}

#[cfg(test)]
mod tests {
    use super::*;

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
