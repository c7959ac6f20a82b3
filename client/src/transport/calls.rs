//! The requests that wait for a reply: which are on the stream, which wait for another try, and
//! what is known of each one's fate. Pure bookkeeping: no clock, no I/O.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use ringfence_proto::v1::{ClientFrame, KeepAliveResponse, client_frame, server_frame};
use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::transport::error::CallError;
use crate::transport::refusal::Refusal;
use crate::transport::retry::{self, Meaning};
use crate::transport::trace::TraceParent;

/// The most requests that may wait for a reply at one time.
pub(crate) const CALLS_MAX: usize = 65_536;

/// A reply, and when its request was first given to the stream.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: server_frame::Body,
    pub(crate) sent: Moment,
}

/// Where the reply goes.
pub(crate) type Reply = oneshot::Sender<Result<Answer, CallError>>;

/// How a request is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    /// It is answered at once, and repeated until it is.
    Prompt,
    /// It may rightly be answered late, since it stands in a queue; repeated too.
    Waiting,
    /// It is not repeated: a newer one takes its place.
    Once,
}

struct Call {
    body: client_frame::Body,
    /// The caller's place in a trace: on the heap, since most have none.
    within: Option<Box<TraceParent>>,
    mode: ReplyMode,
    sent: Moment,
    deadline: Moment,
    state: CallState,
    /// Why it may have been done: it was on a stream that broke, or its reply left its outcome open.
    maybe_done: Option<String>,
    tries: u32,
    last_error: Option<String>,
    reply: Reply,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CallState {
    /// Waits for a stream.
    Ready,
    /// On the present stream since then.
    Sent(Moment),
    /// Waits until then for another try.
    Pausing(Moment),
}

/// All calls of a client.
#[derive(Default)]
pub(crate) struct Calls {
    last_id: u64,
    calls: HashMap<u64, Call>,
    timers: BTreeSet<(Moment, u64)>,
}

/// What a refused try asks of the connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RetryHint {
    /// The leader that the refusal names.
    pub(crate) leader: Option<String>,
}

impl Calls {
    /// Takes a request in; `sent` is the present moment, read before this.
    pub(crate) fn insert(
        &mut self,
        body: client_frame::Body,
        within: Option<TraceParent>,
        mode: ReplyMode,
        sent: Moment,
        deadline: Moment,
        reply: Reply,
    ) -> Option<u64> {
        if self.calls.len() >= CALLS_MAX {
            let why = format!("{CALLS_MAX} requests of this client wait for replies already");
            reply.send(Err(CallError::Unavailable { why })).ok();
            return None;
        }
        self.last_id += 1;
        let id = self.last_id;
        let state = CallState::Ready;
        let (maybe_done, tries, last_error) = (None, 0, None);
        let call = Call {
            body,
            within: within.map(Box::new),
            mode,
            sent,
            deadline,
            state,
            maybe_done,
            tries,
            last_error,
            reply,
        };
        self.timers.insert((deadline, id));
        self.calls.insert(id, call);
        Some(id)
    }

    /// The frame of a call that is ready, now given to the stream.
    pub(crate) fn send(&mut self, id: u64, now: Moment) -> Option<ClientFrame> {
        let call = self.calls.get_mut(&id)?;
        if call.state != CallState::Ready {
            return None;
        }
        call.state = CallState::Sent(now);
        call.tries += 1;
        Some(ClientFrame {
            id,
            body: Some(call.body.clone()),
            traceparent: call
                .within
                .as_ref()
                .map(|place| place.to_string().into())
                .unwrap_or_default(),
        })
    }

    /// The calls that are ready, in the order in which they were made; those that no caller waits
    /// for any more are dropped.
    pub(crate) fn ready(&mut self) -> Vec<u64> {
        let abandoned: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, call)| call.reply.is_closed())
            .map(|(&id, _)| id)
            .collect();
        for id in abandoned {
            drop(self.remove(id));
        }
        let ready = self
            .calls
            .iter()
            .filter(|(_, call)| call.state == CallState::Ready);
        let mut ready: Vec<u64> = ready.map(|(&id, _)| id).collect();
        ready.sort_unstable();
        ready
    }

    /// Takes a reply from the stream. `Some` if the try was in vain.
    pub(crate) fn answer(
        &mut self,
        id: u64,
        body: Option<server_frame::Body>,
        now: Moment,
    ) -> Option<RetryHint> {
        let call = self.calls.get(&id)?;
        // A refused keep-alive says so inside its reply.
        let body = match body {
            Some(server_frame::Body::KeepAlive(KeepAliveResponse {
                refusal: Some(refusal),
                ..
            })) => Some(server_frame::Body::Refusal(refusal)),
            body => body,
        };
        let body = match body {
            Some(server_frame::Body::Refusal(refusal)) => {
                let message = refusal.message.clone();
                let Some(refusal) = Refusal::from_wire(refusal) else {
                    // A reason of a newer cluster: repeating would bring the same.
                    self.finish(id, Err(CallError::Unknown { why: message }));
                    return None;
                };
                let meaning = retry::meaning(&refusal);
                // This try is refused for good, but an earlier one may sit in the log of a deposed
                // leader. Only if the refusal covers that one too may the caller learn that nothing
                // was done.
                if meaning == Meaning::Final
                    && call.maybe_done.is_some()
                    && !covers_earlier_tries(&call.body, &refusal)
                {
                    let why = format!("an earlier try was sent, then one was refused: {message}");
                    self.finish(id, Err(CallError::Unknown { why }));
                    return None;
                }
                let leader = refusal.metadata.get("leader").cloned();
                let hint = (meaning != Meaning::Final).then_some(RetryHint { leader });
                if hint.is_none() || call.mode == ReplyMode::Once {
                    self.finish(id, Err(CallError::Refused(Box::new(refusal))));
                } else {
                    let open = meaning == Meaning::Open;
                    self.pause(id, now, open, refusal.message, refusal.retry_after);
                }
                return hint;
            }
            Some(body) if answers(&call.body, &body) => body,
            _ if call.mode == ReplyMode::Once => {
                let why = "the server's reply does not fit the request".to_owned();
                self.finish(id, Err(CallError::Unknown { why }));
                return None;
            }
            _ => {
                let last_error = "the server's reply does not fit the request".to_owned();
                self.pause(id, now, true, last_error, None);
                return Some(RetryHint { leader: None });
            }
        };
        let sent = call.sent;
        self.finish(id, Ok(Answer { body, sent }));
        None
    }

    /// The stream is gone: what was on it may have been done, and waits for the next one.
    pub(crate) fn stream_lost(&mut self, why: &str) {
        let mut abandoned = Vec::new();
        for (&id, call) in &mut self.calls {
            if matches!(call.state, CallState::Sent(_)) {
                // The server may have applied it before the stream broke. This is never cleared: a
                // later refusal of another try does not prove the first one void.
                call.maybe_done = Some(why.to_owned());
                call.last_error = Some(why.to_owned());
                if call.mode == ReplyMode::Once {
                    abandoned.push(id);
                } else {
                    call.state = CallState::Ready;
                }
            } else if let CallState::Pausing(until) = call.state {
                // A pause ends early when the stream breaks: it was to spare the server of that
                // stream, and the next one may belong to another member.
                if until < call.deadline {
                    self.timers.remove(&(until, id));
                }
                call.state = CallState::Ready;
            }
        }
        abandoned.sort_unstable();
        for id in abandoned {
            self.finish(
                id,
                Err(CallError::Unknown {
                    why: why.to_owned(),
                }),
            );
        }
    }

    /// Says to those still without a stream why there is none.
    pub(crate) fn no_stream(&mut self, why: &str) {
        for call in self
            .calls
            .values_mut()
            .filter(|call| call.state == CallState::Ready)
        {
            call.last_error = Some(why.to_owned());
        }
    }

    /// Fails what is past its deadline; returns what is ready for another try.
    pub(crate) fn due(&mut self, now: Moment) -> Vec<u64> {
        let mut ready = Vec::new();
        while let Some(&(moment, id)) = self.timers.first()
            && moment <= now
        {
            self.timers.pop_first();
            let Some(call) = self.calls.get_mut(&id) else {
                continue;
            };
            if call.deadline <= now {
                self.expire(id);
            } else if call.reply.is_closed() {
                // No caller waits for it any more; the code that dropped it sees to its end.
                drop(self.remove(id));
            } else if call.state == CallState::Pausing(moment) {
                call.state = CallState::Ready;
                ready.push(id);
            }
        }
        ready
    }

    /// When [`due`](Self::due) has to be called next.
    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.timers.first().map(|&(moment, _)| moment)
    }

    /// Since when the oldest request has been on the stream that should have been answered.
    pub(crate) fn oldest_unanswered(&self) -> Option<Moment> {
        let overdue = |call: &Call| match call.state {
            CallState::Sent(since) if call.mode != ReplyMode::Waiting => Some(since),
            _ => None,
        };
        self.calls.values().filter_map(overdue).min()
    }

    fn pause(
        &mut self,
        id: u64,
        now: Moment,
        open: bool,
        last_error: String,
        asked: Option<Duration>,
    ) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let until = now + retry::pause(call.tries, asked);
        if open {
            call.maybe_done = Some(last_error.clone());
        }
        call.last_error = Some(last_error);
        call.state = CallState::Pausing(until);
        // A pause that outlasts the deadline ends with it.
        if until < call.deadline {
            self.timers.insert((until, id));
        }
    }

    fn expire(&mut self, id: u64) {
        let Some(call) = self.calls.get(&id) else {
            return;
        };
        let on_stream = matches!(call.state, CallState::Sent(_));
        // Even a call that is on the stream for the first time may have been applied: its reply can
        // be on the way. Only a call that never left is surely not done. What is said is why it may
        // have been done: the last error may say of its own try that it was not.
        let error = match call.maybe_done.clone() {
            Some(why) => CallError::Unknown { why },
            None if on_stream => CallError::Unknown {
                why: "no reply before the deadline".into(),
            },
            None => CallError::Unavailable {
                why: call
                    .last_error
                    .clone()
                    .unwrap_or_else(|| "no connection before the deadline".into()),
            },
        };
        self.finish(id, Err(error));
    }

    fn finish(&mut self, id: u64, result: Result<Answer, CallError>) {
        if let Some(call) = self.remove(id) {
            // A caller that dropped the other end does not want the answer.
            call.reply.send(result).ok();
        }
    }

    fn remove(&mut self, id: u64) -> Option<Call> {
        let call = self.calls.remove(&id)?;
        self.timers.remove(&(call.deadline, id));
        if let CallState::Pausing(until) = call.state {
            self.timers.remove(&(until, id));
        }
        Some(call)
    }
}

/// Whether this refusal also says that no earlier try of the request was done.
fn covers_earlier_tries(request: &client_frame::Body, refusal: &Refusal) -> bool {
    use client_frame::Body as Ask;
    match request {
        Ask::Get(_) | Ask::Check(_) | Ask::KeepAlive(_) => true,
        Ask::Open(_) | Ask::Close(_) => retry::covers_earlier_tries(refusal, false),
        Ask::Acquire(_) | Ask::Cancel(_) | Ask::Release(_) | Ask::Transfer(_) => {
            retry::covers_earlier_tries(refusal, true)
        }
    }
}

/// Whether a reply of this kind can answer that request.
fn answers(request: &client_frame::Body, reply: &server_frame::Body) -> bool {
    use client_frame::Body as Ask;
    use server_frame::Body as Reply;
    matches!(
        (request, reply),
        (Ask::Open(_), Reply::Open(_))
            | (Ask::KeepAlive(_), Reply::KeepAlive(_))
            | (Ask::Close(_), Reply::Close(_))
            | (Ask::Acquire(_), Reply::Acquire(_))
            | (Ask::Cancel(_), Reply::Cancel(_))
            | (Ask::Release(_), Reply::Release(_))
            | (Ask::Transfer(_), Reply::Transfer(_))
            | (Ask::Get(_), Reply::Get(_))
            | (Ask::Check(_), Reply::Check(_))
    )
}
