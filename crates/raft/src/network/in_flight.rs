//! Which requests of an append stream are still unanswered.
//!
//! openraft keeps entries in the log for as long as it takes them to be on their way to a peer,
//! and takes them to be on their way until it is notified of an error. So a stream that ends with
//! requests unanswered must end with an error, and so must one that answers nothing any more:
//! else one dead voter would make every log grow without a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use tonic::Status;

/// How long a peer may leave requests unanswered without answering any. Disks that stall this long
/// are as good as dead, and a peer that comes back is sent what is missing anyway.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Counts requests on their way out and answers on their way back.
pub(super) struct InFlightTracker {
    sent: Arc<Sent>,
    answer_max: Duration,
}

#[derive(Default)]
struct Sent {
    requests: AtomicU64,
    /// There will be no more of them.
    all: AtomicBool,
}

impl InFlightTracker {
    /// The tracker, and the requests, which it counts as they are taken.
    pub(super) fn keep<T>(requests: impl Stream<Item = T>) -> (Self, impl Stream<Item = T>) {
        let sent = Arc::new(Sent::default());
        let in_flight = Self {
            sent: sent.clone(),
            answer_max: ANSWER_MAX,
        };
        let at_end = sent.clone();
        let end = futures_util::stream::poll_fn(move |_| {
            at_end.all.store(true, Ordering::Relaxed);
            std::task::Poll::Ready(None)
        });
        let requests = requests.inspect(move |_| {
            sent.requests.fetch_add(1, Ordering::Relaxed);
        });
        (in_flight, requests.chain(end))
    }

    /// The answers; the last one is an error if they end too early or stop coming.
    pub(super) fn settle<T>(
        self,
        answers: impl Stream<Item = Result<T, Status>> + Unpin,
    ) -> impl Stream<Item = Result<T, Status>> {
        let begin = Some((self, answers, 0));
        futures_util::stream::unfold(begin, |open| async move {
            let (in_flight, mut answers, answered) = open?;
            match in_flight.next(&mut answers, answered).await? {
                Ok(answer) => Some((Ok(answer), Some((in_flight, answers, answered + 1)))),
                Err(status) => Some((Err(status), None)),
            }
        })
    }

    async fn next<T>(
        &self,
        answers: &mut (impl Stream<Item = Result<T, Status>> + Unpin),
        answered: u64,
    ) -> Option<Result<T, Status>> {
        loop {
            let due = self.sent.requests.load(Ordering::Relaxed) > answered;
            match tokio::time::timeout(self.answer_max, answers.next()).await {
                Ok(Some(answer)) => return Some(answer),
                Ok(None) if self.is_settled(answered) => return None,
                Ok(None) => return Some(Err(Status::unavailable("the peer ended the stream"))),
                Err(_) if due => {
                    let why = format!("the peer answered nothing for {:?}", self.answer_max);
                    return Some(Err(Status::unavailable(why)));
                }
                Err(_) => {}
            }
        }
    }

    fn is_settled(&self, answered: u64) -> bool {
        self.sent.all.load(Ordering::Relaxed)
            && self.sent.requests.load(Ordering::Relaxed) <= answered
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    /// Takes `taken` of three requests and gives `given` answers.
    async fn last_answer(taken: usize, given: u64, ends: bool) -> Option<Result<u64, Status>> {
        let (mut in_flight, requests) = InFlightTracker::keep(stream::iter(0..3));
        in_flight.answer_max = Duration::from_millis(10);
        let requests: Vec<_> = requests.take(taken).collect().await;
        assert!(requests.len() <= 3);
        let answers = stream::iter((0..given).map(Ok));
        let answers = if ends {
            answers.boxed()
        } else {
            answers.chain(stream::pending()).boxed()
        };
        let mut settled: Vec<_> = in_flight.settle(answers).collect().await;
        settled.pop()
    }

    #[tokio::test]
    async fn a_stream_whose_requests_are_all_answered_ends_well() {
        assert!(matches!(last_answer(4, 3, true).await, Some(Ok(2))));
    }

    #[tokio::test]
    async fn a_stream_that_ends_before_its_requests_ends_with_an_error() {
        assert!(matches!(last_answer(2, 2, true).await, Some(Err(_))));
    }

    #[tokio::test]
    async fn a_stream_that_ends_with_requests_unanswered_ends_with_an_error() {
        assert!(matches!(last_answer(4, 2, true).await, Some(Err(_))));
    }

    #[tokio::test]
    async fn a_peer_that_stops_answering_is_an_error() {
        let last = last_answer(3, 2, false).await;
        let why = last.unwrap().unwrap_err();
        assert!(why.message().contains("answered nothing"), "{why}");
    }
}
