//! Answers that are large for their question, as the pages of lists are: their room is made before they
//! are, and held until they are written to the connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::Response;

use super::account::{Account, Held};

/// Room for the one message of an answer; an extension of the response.
#[derive(Clone, Debug)]
pub(crate) struct Reserved(Arc<Held>);

/// Closes a connection that has not read an answer in time; dropped when the answer is written.
pub(crate) struct Unread(
    #[expect(dead_code, reason = "its end is what is heard")] oneshot::Sender<()>,
);

impl Reserved {
    pub(crate) fn new(room: Held) -> Self {
        Self(Arc::new(room))
    }

    /// The response with its room.
    pub(crate) fn with<T>(self, answer: T) -> Response<T> {
        let mut response = Response::new(answer);
        response.extensions_mut().insert(self);
        response
    }

    /// The room, for the bytes that were made in it; `None` if a copy of the response has it.
    pub(super) fn taken(self) -> Option<Held> {
        Arc::into_inner(self.0)
    }
}

impl Unread {
    /// From now on the connection has so long to take the answer.
    pub(crate) fn watched(account: &Arc<Account>, max: Duration) -> Self {
        let (unread, written) = oneshot::channel();
        let account = Arc::clone(account);
        ringfence_raft::spawn(async move {
            if timeout(max, written).await.is_err() {
                tracing::info!("connection closed: an answer was not read for {max:?}");
                account.close();
            }
        });
        Self(unread)
    }
}

#[cfg(test)]
mod tests {
    use super::super::account::Pool;
    use super::*;

    const SOON: Duration = Duration::from_millis(100);

    #[tokio::test]
    async fn an_answer_that_is_not_read_in_time_closes_its_connection() {
        let account = Account::new(Pool::new());
        let closing = account.closing();
        let _unread = Unread::watched(&account, SOON);
        closing.await.unwrap();
    }

    #[tokio::test]
    async fn an_answer_that_is_read_in_time_closes_nothing() {
        let account = Account::new(Pool::new());
        let closing = account.closing();
        drop(Unread::watched(&account, SOON));
        timeout(4 * SOON, closing).await.unwrap_err();
    }
}
