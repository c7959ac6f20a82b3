//! The client's side of the stream: whatever waits is sent as one message.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use ringfence_proto::v1::{ClientFrame, ClientMessage, client_frame};
use tokio::sync::mpsc::UnboundedReceiver;

/// The most frames in one message; the server refuses more.
const FRAMES_MAX: usize = 4_096;
/// Messages are cut before they have more bytes than this; the server refuses more than 1 MiB. One
/// frame has at most a tenth of it.
const BYTES_MAX: usize = 900 * 1024;

/// Drains the channel of frames into messages. The channel is not bounded in itself: each frame in
/// it belongs to a call, and those are.
pub(crate) struct Outbound {
    frames: UnboundedReceiver<ClientFrame>,
    drained: Vec<ClientFrame>,
    waiting: VecDeque<ClientFrame>,
    /// Others had their turn since the first frame of the next message came.
    gathered: bool,
}

impl Outbound {
    pub(crate) fn new(frames: UnboundedReceiver<ClientFrame>) -> Self {
        Self {
            frames,
            drained: Vec::new(),
            waiting: VecDeque::new(),
            gathered: false,
        }
    }

    fn message(&mut self) -> ClientMessage {
        let mut bytes = 0;
        let fitting = self.waiting.iter().take(FRAMES_MAX).take_while(|frame| {
            bytes += bytes_at_most(frame);
            bytes <= BYTES_MAX
        });
        let count = fitting.count();
        // A frame that is too large alone still has to go: the server will say so.
        ClientMessage {
            frames: self.waiting.drain(..count.max(1)).collect(),
        }
    }
}

impl Stream for Outbound {
    type Item = ClientMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ClientMessage>> {
        let this = &mut *self;
        if this.waiting.len() < FRAMES_MAX {
            let received = this
                .frames
                .poll_recv_many(cx, &mut this.drained, FRAMES_MAX);
            this.waiting.extend(this.drained.drain(..));
            match received {
                _ if !this.waiting.is_empty() => {}
                Poll::Pending => return Poll::Pending,
                Poll::Ready(_) => return Poll::Ready(None),
            }
        }
        // Callers that are about to ask run first: one message, one write for all of them.
        if !std::mem::replace(&mut this.gathered, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.gathered = false;
        Poll::Ready(Some(this.message()))
    }
}

/// An upper bound of a frame's encoded size.
fn bytes_at_most(frame: &ClientFrame) -> usize {
    /// Tags, lengths, numbers and a session handle.
    const FIXED: usize = 128;
    /// A session handle or an acknowledged loss in a keep-alive.
    const EACH: usize = 48;
    let variable = match &frame.body {
        Some(client_frame::Body::Open(open)) => open.identity.len(),
        Some(client_frame::Body::KeepAlive(request)) => {
            EACH * (request.sessions.len() + request.acknowledged.len())
        }
        Some(client_frame::Body::Acquire(request)) => {
            let open = request
                .open
                .as_ref()
                .map_or(0, |open| FIXED + open.identity.len());
            request.name.len() + request.data.len() + open
        }
        Some(client_frame::Body::Release(request)) => request.name.len(),
        Some(client_frame::Body::Transfer(request)) => request.name.len(),
        Some(client_frame::Body::Get(request)) => request.name.len(),
        Some(client_frame::Body::Check(request)) => request.name.len(),
        Some(client_frame::Body::Close(_) | client_frame::Body::Cancel(_)) | None => 0,
    };
    FIXED + variable
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};
    use ringfence_proto::v1::{AcquireRequest, GetRequest};
    use tokio::sync::mpsc;

    use super::*;

    fn get(id: u64) -> ClientFrame {
        ClientFrame {
            id,
            body: Some(client_frame::Body::Get(GetRequest::default())),
        }
    }

    fn drain(frames: Vec<ClientFrame>) -> Vec<usize> {
        let (sender, receiver) = mpsc::unbounded_channel();
        for frame in frames {
            assert!(sender.send(frame).is_ok());
        }
        drop(sender);
        let mut messages = Outbound::new(receiver).map(|message| message.frames.len());
        let mut counts = Vec::new();
        let mut in_vain = 0;
        // Others have their turn before each message.
        while in_vain < 2 {
            match messages.next().now_or_never() {
                Some(Some(count)) => {
                    counts.push(count);
                    in_vain = 0;
                }
                Some(None) => break,
                None => in_vain += 1,
            }
        }
        counts
    }

    #[test]
    fn what_waits_together_goes_together() {
        assert_eq!(drain((1..=100).map(get).collect()), [100]);
    }

    #[test]
    fn a_message_keeps_the_limits_of_the_server() {
        let counts = drain((1..=5_000).map(get).collect());
        assert_eq!(counts.iter().sum::<usize>(), 5_000);
        assert!(counts.iter().all(|&count| count <= FRAMES_MAX));

        let data = vec![0; 100 * 1024].into();
        let large = AcquireRequest {
            data,
            ..AcquireRequest::default()
        };
        let frame = ClientFrame {
            id: 1,
            body: Some(client_frame::Body::Acquire(large)),
        };
        let counts = drain(vec![frame; 20]);
        assert_eq!(counts.iter().sum::<usize>(), 20);
        assert!(counts.iter().all(|&count| count <= 9), "{counts:?}");
    }
}
