//! A cluster's stream of floors, fed by hand.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ringfence_guard::follow::{Ended, FloorFollower, News, Options, Unheard};
use ringfence_guard::{Fence, FencingToken};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;

pub(crate) fn fence(text: &str) -> Fence {
    text.parse().unwrap()
}

pub(crate) fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

pub(crate) fn floor(text: &str) -> News {
    let Fence { name, token } = fence(text);
    News::Floor { name, token }
}

/// So long that no test reaches it, however slow the machine is.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Waits as long as it takes, and takes no silence amiss.
pub(crate) fn patient(unheard: Unheard) -> Options {
    Options {
        patience: LONG,
        silence: LONG,
        unheard,
        ..Options::default()
    }
}

/// Gives up soon.
pub(crate) fn impatient(unheard: Unheard) -> Options {
    Options {
        patience: Duration::from_millis(50),
        ..patient(unheard)
    }
}

/// A follower that follows a stream in a task.
pub(crate) struct Followed {
    pub(crate) follower: FloorFollower,
    stream: Option<mpsc::UnboundedSender<Result<News, &'static str>>>,
    task: Option<JoinHandle<Ended<&'static str>>>,
}

impl Followed {
    /// Nothing is reported yet.
    pub(crate) fn start(options: Options) -> Self {
        let mut followed = Self {
            follower: FloorFollower::new(options),
            stream: None,
            task: None,
        };
        followed.connect();
        followed
    }

    /// A new stream.
    pub(crate) fn connect(&mut self) {
        let (stream, told) = mpsc::unbounded_channel();
        let follower = self.follower.clone();
        self.stream = Some(stream);
        self.task = Some(tokio::spawn(async move {
            follower.follow(UnboundedReceiverStream::new(told)).await
        }));
    }

    /// Tells these, and lets the follower take them in.
    pub(crate) async fn tell(&self, news: impl IntoIterator<Item = News>) {
        for one in news {
            self.stream.as_ref().unwrap().send(Ok(one)).unwrap();
        }
        settle().await;
    }

    /// How the follower ended on its own.
    pub(crate) async fn ended(&mut self) -> Ended<&'static str> {
        self.task.take().unwrap().await.unwrap()
    }

    /// The stream ends, or fails.
    pub(crate) async fn end(&mut self, error: Option<&'static str>) -> Ended<&'static str> {
        let stream = self.stream.take().unwrap();
        if let Some(error) = error {
            stream.send(Err(error)).unwrap();
        }
        drop(stream);
        self.task.take().unwrap().await.unwrap()
    }

    /// Drops the future that follows.
    pub(crate) async fn abort(&mut self) {
        let task = self.task.take().unwrap();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }
}

/// Runs whatever can run on this one thread.
pub(crate) async fn settle() {
    for _ in 0..16 {
        tokio::task::yield_now().await;
    }
}

/// What a future has come to, without waiting.
pub(crate) fn now<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
