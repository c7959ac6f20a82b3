//! Holds back appends that bring a follower nothing but a newer commit index.
//!
//! openraft sends one whenever an entry is committed. While entries keep coming the next append
//! says the same a moment later, so that half of all messages between nodes would be in vain. A
//! follower alone learns a little later what is committed: no answer of the leader waits for that.

use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use tokio::time::{Instant, timeout_at};

/// How long it is held back at most; about one round of agreement.
const HELD_BACK_MAX: Duration = Duration::from_millis(1);

/// The same appends, without those that a later one makes superfluous. `is_bare` says which bring
/// no entries.
pub(super) fn coalesce_commit_updates<T>(
    appends: impl Stream<Item = T> + Unpin,
    is_bare: impl Fn(&T) -> bool,
) -> impl Stream<Item = T> {
    let begin = (appends.fuse(), is_bare);
    stream::unfold(begin, |(mut appends, is_bare)| async move {
        let mut newest = appends.next().await?;
        let until = soon();
        while is_bare(&newest)
            && let Ok(Some(next)) = timeout_at(until, appends.next()).await
        {
            newest = next;
        }
        Some((newest, (appends, is_bare)))
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "a timer of the runtime, no reading of time"
)]
fn soon() -> Instant {
    Instant::now() + HELD_BACK_MAX
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::UnboundedReceiverStream;

    use super::*;

    /// Negative numbers are bare.
    fn lingering(
        appends: mpsc::UnboundedReceiver<i32>,
    ) -> std::pin::Pin<Box<dyn Stream<Item = i32>>> {
        Box::pin(coalesce_commit_updates(
            UnboundedReceiverStream::new(appends),
            |n| *n < 0,
        ))
    }

    #[tokio::test]
    async fn a_bare_append_goes_with_the_next_entries() {
        let (send, appends) = mpsc::unbounded_channel();
        for n in [1, -1, -2, 2, 3] {
            send.send(n).unwrap();
        }
        let mut sent = lingering(appends);
        assert_eq!(sent.next().await, Some(1));
        assert_eq!(sent.next().await, Some(2));
        assert_eq!(sent.next().await, Some(3));
    }

    #[tokio::test]
    async fn the_newest_bare_append_goes_alone_when_no_entries_come() {
        let (send, appends) = mpsc::unbounded_channel();
        send.send(-1).unwrap();
        send.send(-2).unwrap();
        let mut sent = lingering(appends);
        assert_eq!(sent.next().await, Some(-2));
        send.send(-3).unwrap();
        drop(send);
        assert_eq!(sent.next().await, Some(-3));
        assert_eq!(sent.next().await, None);
    }
}
