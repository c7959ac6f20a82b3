//! Streams of the server's that never end for their reader: they are opened again, behind what was
//! reported, when a node fails.

use std::sync::Arc;
use std::time::Duration;

use ringfence_proto::DecodeError;
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};

use crate::transport::Transport;
use crate::transport::credential::Channel;
use crate::transport::driver::{AbortOnDrop, KeepRunning};
use crate::transport::error::CallError;
use crate::transport::refusal::Refusal;
use crate::transport::retry;
use crate::transport::unary;

/// How many items wait for a slow reader; the server waits with it.
const ITEMS_MAX: usize = 1_024;
/// The server says something at least every second; one that is silent for this long beyond what a
/// connection may be silent is left.
const SILENCE_MARGIN: Duration = Duration::from_secs(2);

/// One kind of stream.
pub(crate) trait StreamKind: Send + Sync + 'static {
    /// What the server sends.
    type Message: Send + 'static;
    /// What the reader gets.
    type Item: Send + 'static;

    /// Opens the stream behind what was reported.
    fn open(
        &self,
        channel: Channel,
    ) -> impl Future<Output = Result<Streaming<Self::Message>, Status>> + Send;

    /// What a message tells. One that makes no sense changes nothing, and the stream is opened
    /// again: what another node says may make sense.
    fn decode(&mut self, message: Self::Message) -> Result<Vec<Self::Item>, DecodeError>;

    /// The stream broke; it will be opened again.
    fn on_break(&mut self);

    /// The stream was refused; says whether to open it again at once, as something else.
    fn on_refusal(&mut self, refusal: &Refusal) -> bool;
}

/// The reader's end. The stream ends when it is dropped.
pub(crate) struct Reader<I> {
    items: mpsc::Receiver<Result<I, CallError>>,
    _task: AbortOnDrop<()>,
    _keep_running: Arc<KeepRunning>,
}

impl<I: Send + 'static> Reader<I> {
    pub(crate) fn begin<K: StreamKind<Item = I>>(
        transport: &Arc<Transport>,
        keep_running: &Arc<KeepRunning>,
        kind: K,
    ) -> Self {
        let (out, items) = mpsc::channel(ITEMS_MAX);
        let through = Arc::clone(transport);
        let task = transport.thread.spawn(async move {
            if let Err(error) = run(&through, kind, &out).await {
                out.send(Err(error)).await.ok();
            }
        });
        Self {
            items,
            _task: AbortOnDrop(task),
            _keep_running: Arc::clone(keep_running),
        }
    }

    pub(crate) async fn next(&mut self) -> Option<Result<I, CallError>> {
        self.items.recv().await
    }

    pub(crate) fn poll_next(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<I, CallError>>> {
        self.items.poll_recv(cx)
    }
}

/// Reads until the reader has gone, or the cluster has refused for good.
async fn run<K: StreamKind>(
    transport: &Transport,
    mut kind: K,
    out: &mpsc::Sender<Result<K::Item, CallError>>,
) -> Result<(), CallError> {
    let mut tries = 0;
    loop {
        let Ok(channel) = unary::channel(transport, transport.deadline()).await else {
            continue;
        };
        let (status, reported) = read_stream(transport, &mut kind, channel, out).await;
        if out.is_closed() {
            return Ok(());
        }
        if reported {
            tries = 0;
        }
        let refusal = Refusal::from_status(&status);
        if let Some(refusal) = &refusal
            && kind.on_refusal(refusal)
        {
            continue;
        }
        if status.code() == Code::Unimplemented {
            return Err(CallError::of_status(&status));
        }
        let asked = refusal.and_then(|refusal| refusal.retry_after);
        // A limit is one node's: another one, or this one later, has room.
        let full = status.code() == Code::ResourceExhausted;
        if let on_refusal @ CallError::Refused(_) = CallError::of_status(&status)
            && !full
        {
            return Err(on_refusal);
        }
        kind.on_break();
        let until = transport.now() + retry::pause(tries, asked);
        transport.options.clock.sleep_until(until).await;
        tries = tries.saturating_add(1);
    }
}

/// Reads one stream to its end; says why it ended, and whether it reported anything.
async fn read_stream<K: StreamKind>(
    transport: &Transport,
    kind: &mut K,
    channel: Channel,
    out: &mpsc::Sender<Result<K::Item, CallError>>,
) -> (Status, bool) {
    let silence = transport.options.silence_max() + SILENCE_MARGIN;
    let silent = || {
        transport
            .options
            .clock
            .sleep_until(transport.now() + silence)
    };
    let mut shown = transport.options.credential.shown();
    let opened = crate::sync::select! {
        opened = kind.open(channel) => opened,
        () = silent() => Err(Status::unavailable("no answer in time")),
        () = out.closed() => return (Status::cancelled("the reader has gone"), false),
    };
    let mut stream = match opened {
        Ok(stream) => stream,
        Err(status) => return (status, false),
    };
    let mut reported = false;
    loop {
        let message = crate::sync::select! {
            message = stream.message() => message,
            () = shown.replaced() => Err(Status::unavailable("there is another token")),
            () = silent() => Err(Status::unavailable("the stream has fallen silent")),
            () = out.closed() => return (Status::cancelled("the reader has gone"), reported),
        };
        match message {
            Ok(Some(message)) => {
                let items = match kind.decode(message) {
                    Ok(items) => items,
                    Err(fault) => {
                        tracing::warn!(%fault, "the stream makes no sense; opening it again");
                        let why = format!("the stream makes no sense: {fault}");
                        return (Status::internal(why), reported);
                    }
                };
                // Any readable message shows that this node serves the stream, so the backoff
                // starts over after the next break.
                reported = true;
                for item in items {
                    if out.send(Ok(item)).await.is_err() {
                        return (Status::cancelled("the reader has gone"), reported);
                    }
                }
            }
            Ok(None) => return (Status::unavailable("the stream ended"), reported),
            Err(status) => return (status, reported),
        }
    }
}
