//! The messages of a watch on their way to the client, each with the room that it takes.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;

use crate::clients::Held;

/// A message, and its bytes in the account of the connection.
pub(super) struct Charged<M> {
    message: M,
    _held: Held,
}

impl<M> Charged<M> {
    pub(super) fn new(message: M, held: Held) -> Self {
        Self {
            message,
            _held: held,
        }
    }
}

/// What the client reads. The room of a message is free once it is taken.
#[derive(Debug)]
pub(crate) struct Messages<M>(mpsc::Receiver<Result<Charged<M>, Status>>);

impl<M> Messages<M> {
    pub(super) fn new(messages: mpsc::Receiver<Result<Charged<M>, Status>>) -> Self {
        Self(messages)
    }
}

impl<M> Stream for Messages<M> {
    type Item = Result<M, Status>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.0.poll_recv(task);
        next.map(|message| message.map(|sent| sent.map(|charged| charged.message)))
    }
}
