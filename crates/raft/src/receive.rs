//! The leader's side of the stream of calls.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use ringfence_proto::raft as pb;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use crate::clock;
use crate::forward::{applied_to_pb, failure_to_pb};
use crate::inner::Inner;
use crate::propose::{Origin, Pending, ProposeError, Reply};
use crate::{keepalive, membership, reading};

/// The most answers in one frame.
const ANSWERS_PER_FRAME: usize = 512;
/// Answers that a slow caller may leave unread before its calls are taken no more.
const ANSWERS_QUEUED: usize = 65_536;

type Answers = Pin<Box<dyn Stream<Item = Result<pb::Answers, Status>> + Send>>;

/// Carries out the calls of a stream and answers each when it is done, in any order.
pub(crate) fn serve_calls(inner: Arc<Inner>, mut calls: Streaming<pb::Calls>) -> Answers {
    let (answers, done) = mpsc::channel(ANSWERS_QUEUED);
    let task = tokio::spawn(async move {
        while let Ok(Some(frame)) = calls.message().await {
            for call in frame.calls {
                carry_out(&inner, call, answers.clone());
            }
        }
    });
    let guard = AbortOnDrop(task.abort_handle());
    let frames = futures_util::stream::unfold((done, guard), |(mut done, guard)| async move {
        let mut answers = Vec::new();
        if done.recv_many(&mut answers, ANSWERS_PER_FRAME).await == 0 {
            return None;
        }
        Some((Ok(pb::Answers { answers }), (done, guard)))
    });
    frames.boxed()
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn carry_out(inner: &Arc<Inner>, call: pb::Call, answers: mpsc::Sender<pb::Answer>) {
    let id = call.id;
    let answer = move |body| {
        // A caller that reads nothing any more loses the answer, and knows that it may have.
        drop(answers.try_send(pb::Answer {
            id,
            body: Some(body),
        }));
    };
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
