//! How much memory the present states that watches tell may take, and for how long.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{WATCH_PRESENT_MAX, WATCH_PRESENT_PACE_MIN, WATCH_PRESENT_STALL_MAX};

/// What all watches of a node share while they tell present states.
#[derive(Clone)]
pub(in crate::services) struct Presents {
    /// One for each lease that somebody is about to tell.
    places: Arc<Semaphore>,
    limits: Limits,
}

#[derive(Clone, Copy)]
struct Limits {
    leases: u32,
    stall: Duration,
    /// Leases per second.
    pace: u32,
}

/// How long a reader may take for a present state.
pub(super) struct Pace {
    /// For each message.
    pub(super) stall: Duration,
    /// For all of it.
    pub(super) whole: Duration,
}

impl Presents {
    pub(in crate::services) fn new() -> Self {
        Self::limited(Limits {
            leases: WATCH_PRESENT_MAX,
            stall: WATCH_PRESENT_STALL_MAX,
            pace: WATCH_PRESENT_PACE_MIN,
        })
    }

    fn limited(limits: Limits) -> Self {
        Self {
            places: Arc::new(Semaphore::new(limits.leases as usize)),
            limits,
        }
    }

    /// Places for so many leases, or all that there are; waits for them in turn. Says for how many
    /// leases they are.
    pub(super) async fn places(&self, leases: usize) -> (OwnedSemaphorePermit, usize) {
        let wanted = u32::try_from(leases).unwrap_or(u32::MAX);
        let (wanted, room) = match wanted < self.limits.leases {
            true => (wanted, leases),
            // Whoever has them all is the only one, and tells whatever there is.
            false => (self.limits.leases, usize::MAX),
        };
        let places = self.places.clone().acquire_many_owned(wanted);
        (places.await.expect("nobody closes this semaphore"), room)
    }

    /// How a present state of so many leases has to be read.
    pub(super) fn pace(&self, leases: usize) -> Pace {
        let Limits { stall, pace, .. } = self.limits;
        let leases = u32::try_from(leases).unwrap_or(u32::MAX);
        Pace {
            stall,
            whole: stall + Duration::from_secs(1) * leases / pace,
        }
    }
}

impl Pace {
    /// What to tell a reader who was slower.
    pub(super) fn missed(&self, leases: usize) -> String {
        let Self { stall, whole } = self;
        format!(
            "the present state of {leases} leases was not read in time: each of its messages may \
             take {stall:?}, and all of it {whole:?}; begin the watch anew and read it at once, or \
             watch a longer prefix"
        )
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use ringfence_core::{
        Acquire, Acquired, Ask, Command, HolderData, Identity, LeaseName, Millis, Open, OpenId,
        Opened, Outcome, Request, RequestNumber, Secret, SessionId,
    };
    use ringfence_proto::Refusal;
    use ringfence_proto::v1::{self, Reason};
    use ringfence_raft::{Node, NodeConfig};
    use ringfence_testkit::ports::Port;
    use tokio::sync::watch;
    use tokio_stream::StreamExt;
    use tokio_stream::wrappers::ReceiverStream;
    use tonic::Status;

    use super::super::leases;
    use super::*;
    use crate::metrics::Metrics;
    use crate::services::Context;

    const LEASES: u64 = 1_000;
    /// Requests of the session that are under way together.
    const TOGETHER: u64 = 250;
    const PATIENCE: Duration = Duration::from_secs(20);
    const LIMITS: Limits = Limits {
        leases: 300,
        stall: Duration::from_secs(2),
        pace: 500,
    };
    /// How long the slow reader takes for a message: quick enough for each of them, and with all
    /// sixteen it is much too late.
    const SLOW: Duration = Duration::from_millis(400);

    type Told = ReceiverStream<Result<v1::WatchResponse, Status>>;

    struct Alone {
        node: Node,
        context: Context,
        _dir: tempfile::TempDir,
        _stop: watch::Sender<bool>,
    }

    /// A cluster of one node with low limits.
    async fn alone() -> Alone {
        let (dir, port) = (tempfile::tempdir().unwrap(), Port::any());
        let config = NodeConfig {
            peer_listen: port.address(),
            initial_cluster: vec![("n1".to_owned(), port.address().to_string())],
            token_floor: Some(0),
            ..NodeConfig::new("n1", dir.path().join("n1"))
        };
        let node = Node::start(config).await.unwrap();
        let mut status = node.watch_status();
        let serving = status.wait_for(|status| status.serving);
        drop(within("a node that serves", serving).await.unwrap());
        let (stop, stopping) = watch::channel(false);
        let metrics = Metrics::new(&node, None, None);
        let mut context = Context::new(node.clone(), metrics, stopping);
        context.presents = Presents::limited(LIMITS);
        Alone {
            node,
            context,
            _dir: dir,
            _stop: stop,
        }
    }

    impl Alone {
        async fn propose(&self, command: Command) -> Outcome {
            self.node.propose(command).await.unwrap().outcome
        }

        /// A session takes all the leases.
        async fn fill(&self) {
            let secret = Secret::new([1; 16]);
            let open = Open {
                id: OpenId::new([1; 16]),
                secret,
                seen: None,
                ttl: Millis::from_secs(300),
                identity: Identity::parse("holder").unwrap(),
                acquire: None,
            };
            let opened = self.propose(Command::Open(open)).await;
            let Outcome::Opened(Opened { session, .. }) = opened else {
                panic!("{opened:?}");
            };
            let number = |n| RequestNumber::new(n).unwrap();
            for first in (1..=LEASES).step_by(TOGETHER as usize) {
                let take = (first..first + TOGETHER)
                    .map(|n| self.propose(acquire(session, secret, number(n), number(first))));
                for taken in join_all(take).await {
                    assert!(
                        matches!(taken, Outcome::Acquired(Acquired::Granted(_))),
                        "{taken:?}"
                    );
                }
            }
        }

        fn watch(&self, prefix: &str) -> Told {
            let request = v1::WatchRequest {
                prefix: prefix.to_owned(),
                from: None,
            };
            leases(&self.context, request).unwrap()
        }

        fn free(&self) -> usize {
            self.context.presents.places.available_permits()
        }
    }

    fn acquire(
        session: SessionId,
        secret: Secret,
        number: RequestNumber,
        lowest: RequestNumber,
    ) -> Command {
        Command::Request(Request {
            session,
            secret,
            number,
            lowest,
            ask: Ask::Acquire(Acquire {
                name: LeaseName::parse(&format!("lease/{number}")).unwrap(),
                wait: None,
                data: HolderData::default(),
                lock_delay: Millis(0),
            }),
        })
    }

    async fn within<T>(what: &str, step: impl Future<Output = T>) -> T {
        let done = tokio::time::timeout(PATIENCE, step).await;
        done.unwrap_or_else(|_| panic!("no {what} within {PATIENCE:?}"))
    }

    /// Reads a present state to its end, with a pause before each message; how many leases it has.
    async fn read(mut told: Told, pause: Duration) -> Result<usize, Status> {
        let mut leases = 0;
        loop {
            tokio::time::sleep(pause).await;
            let message = within("message", told.next()).await.expect("an end")?;
            leases += message.events.len();
            if message.position.is_some() {
                return Ok(leases);
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_slow_reader_of_all_leases_keeps_nobody_from_beginning() {
        let alone = alone().await;
        alone.fill().await;
        let slow = tokio::spawn(read(alone.watch(""), SLOW));
        while alone.free() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }

        // The present state of a few leases needs no place.
        let one = read(alone.watch("lease/1000"), Duration::ZERO).await;
        assert_eq!(one.unwrap(), 1);
        assert_eq!(alone.free(), 0, "the slow reader has them all still");

        // That of many waits its turn, which comes.
        let all = read(alone.watch(""), Duration::ZERO).await;
        assert_eq!(all.unwrap(), LEASES as usize);

        let refused = slow.await.unwrap().unwrap_err();
        let refused = Refusal::from_status(&refused).unwrap();
        assert_eq!(refused.reason, Reason::Unavailable);
        assert!(refused.message.contains("all of it 4s"), "{refused:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn places_are_asked_for_by_what_is_under_the_prefix() {
        let alone = alone().await;
        alone.fill().await;
        let all = LIMITS.leases as usize;
        // Two messages, of which nobody takes the first.
        let unread = alone.watch("lease/1");
        let took = async {
            while alone.free() != all - 112 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within("112 places", took).await;

        let other = read(alone.watch("lease/2"), Duration::ZERO).await;
        assert_eq!(other.unwrap(), 111, "there is room for both");
        drop(unread);
        let given_back = async {
            while alone.free() < all {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within("places given back", given_back).await;
    }
}
