//! Calls of any RPC with bytes as they are.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::raw::Raw;

/// The most messages that are read of one answer.
const MESSAGES_MAX: usize = 64;

/// What came of a call.
pub(super) struct Answer {
    /// The messages of the answer.
    pub(super) messages: Vec<Bytes>,
    /// How it ended; `None` if the caller left first.
    pub(super) end: Option<Result<(), Status>>,
}

/// Sends messages to `package.Service/Method` with these headers, and reads until the end or for so
/// long; then it leaves. A stream is half open meanwhile.
pub(super) async fn call(
    channel: Channel,
    path: String,
    messages: Vec<Bytes>,
    headers: &[(&'static str, MetadataValue<Ascii>)],
    patience: Duration,
) -> Answer {
    let mut read = Vec::new();
    let calling = async {
        let mut client = Grpc::new(channel).max_decoding_message_size(16 << 20);
        let ready = client.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let (send, sent) = mpsc::channel(messages.len().max(1));
        let closes = messages.len() == 1;
        for message in messages {
            send.try_send(message).ok();
        }
        // One message is a whole request; a stream stays open.
        let _open = (!closes).then_some(send);
        let mut request = Request::new(ReceiverStream::new(sent));
        for (name, value) in headers {
            request.metadata_mut().append(*name, value.clone());
        }
        let path = PathAndQuery::try_from(path).unwrap();
        let mut answers = client.streaming(request, path, Raw).await?.into_inner();
        while read.len() < MESSAGES_MAX
            && let Some(message) = answers.message().await?
        {
            read.push(message);
        }
        Ok(())
    };
    let end = timeout(patience, calling).await.ok();
    Answer {
        messages: read,
        end,
    }
}
