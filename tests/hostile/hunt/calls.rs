//! Calls of any RPC with bytes as they are.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status};

/// The most messages that are read of one answer.
const MESSAGES_MAX: usize = 64;

/// Messages as they stand on the wire.
#[derive(Default)]
pub(super) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

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
