//! How many present states watches tell at a time, and for how long.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ringfence_core::Frozen;
use ringfence_raft::Node;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{WATCH_PRESENT_PACE_MIN, WATCH_PRESENT_STALL_MAX, WATCH_PRESENTS_MAX};

/// What all watches of a node share while they tell present states.
#[derive(Clone)]
pub(crate) struct Presents {
    /// One for each state that is kept.
    places: Arc<Semaphore>,
    /// The newest of them, for watches that begin while nothing has changed.
    newest: Arc<Mutex<Weak<Present>>>,
    limits: Limits,
}

#[derive(Clone, Copy)]
struct Limits {
    /// States at different indices.
    states: usize,
    stall: Duration,
    /// Leases per second.
    pace: u32,
}

/// A frozen state that some watches are telling.
pub(super) struct Present {
    state: Frozen,
    _place: OwnedSemaphorePermit,
}

impl Deref for Present {
    type Target = Frozen;

    fn deref(&self) -> &Frozen {
        &self.state
    }
}

/// How long a reader may take for a present state.
pub(super) struct Pace {
    /// For each message.
    pub(super) stall: Duration,
    /// For all of it.
    pub(super) whole: Duration,
}

impl Presents {
    pub(crate) fn new() -> Self {
        Self::limited(Limits {
            states: WATCH_PRESENTS_MAX,
            stall: WATCH_PRESENT_STALL_MAX,
            pace: WATCH_PRESENT_PACE_MIN,
        })
    }

    fn limited(limits: Limits) -> Self {
        Self {
            places: Arc::new(Semaphore::new(limits.states)),
            newest: Arc::default(),
            limits,
        }
    }

    /// The state of this node, at least as new as now. Watches that begin while nothing changes
    /// share one; else it waits, in turn, until fewer states are kept than may be.
    pub(super) async fn state(&self, node: &Node) -> Arc<Present> {
        let since = node.read(|state| state.index());
        if let Some(present) = self.newest_since(since) {
            return present;
        }
        let place = self.places.clone().acquire_owned().await;
        let place = place.expect("nothing closes this semaphore");
        // Another watch may have waited for the same.
        if let Some(present) = self.newest_since(since) {
            return present;
        }
        let present = Arc::new(Present {
            state: node.frozen(),
            _place: place,
        });
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&present);
        present
    }

    fn newest_since(&self, index: u64) -> Option<Arc<Present>> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.upgrade().filter(|present| present.index() >= index)
    }

    /// How a present state out of so many leases has to be read.
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
             take {stall:?}, and all of it {whole:?}; begin the watch again and read it at once, or \
             watch a longer prefix"
        )
    }
}

#[cfg(test)]
mod tests {
    use ringfence_proto::Refusal;
    use ringfence_proto::v1::{self, Reason};
    use tokio_stream::StreamExt;
    use tonic::Status;

    use super::super::{Messages, leases};
    use super::*;
    use crate::alone::{Alone, LEASES, PATIENCE, alone, within};
    use crate::caller::Who;
    use crate::clients::{Account, Pool};
    use crate::limits::{
        BYTES_PER_CONNECTION_MAX, BYTES_PER_CONNECTION_SHARE, WATCH_EVENT_BYTES_EXPECTED,
        WATCH_MESSAGE_BYTES_EXPECTED,
    };

    const LIMITS: Limits = Limits {
        states: 1,
        stall: Duration::from_secs(2),
        pace: 500,
    };
    /// How long the slow reader takes for a message: quick enough for each of them, and with all
    /// sixteen it is much too late.
    const SLOW: Duration = Duration::from_millis(400);

    type Told = Messages<v1::WatchResponse>;

    impl Alone {
        fn watch(&self, prefix: &str) -> Told {
            self.watch_on(&Account::new(Pool::new()), prefix)
        }

        /// The same on the connection with this account.
        fn watch_on(&self, account: &Arc<Account>, prefix: &str) -> Told {
            let request = v1::WatchRequest {
                prefix: prefix.to_owned(),
                from: None,
            };
            leases(&self.context, account.clone(), Who::default(), request).unwrap()
        }

        fn free(&self) -> usize {
            self.context.presents.places.available_permits()
        }
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
        let mut alone = alone().await;
        alone.context.presents = Presents::limited(LIMITS);
        alone.fill().await;
        let slow = tokio::spawn(read(alone.watch(""), SLOW));
        while alone.free() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }

        // The present state of a few leases needs no place.
        let one = read(alone.watch("lease/1000"), Duration::ZERO).await;
        assert_eq!(one.unwrap(), 1);
        assert_eq!(alone.free(), 0, "the slow reader has the only one still");

        // While nothing changes, all of them are reported out of one state.
        let same = read(alone.watch(""), Duration::ZERO).await;
        assert_eq!(same.unwrap(), LEASES as usize);

        // A newer one waits its turn, which comes.
        alone.open(2).await;
        let all = read(alone.watch(""), Duration::ZERO).await;
        assert_eq!(all.unwrap(), LEASES as usize);

        let refused = slow.await.unwrap().unwrap_err();
        let refused = Refusal::from_status(&refused).unwrap();
        assert_eq!(refused.reason, Reason::Unavailable);
        assert!(refused.message.contains("all of it 4s"), "{refused:?}");
    }

    /// Watches that no client reads hold what their connection may, and no more; one of them goes
    /// on once there is room.
    #[tokio::test(flavor = "multi_thread")]
    async fn what_watches_hold_is_charged_to_their_connection() {
        let mut alone = alone().await;
        alone.context.presents = Presents::limited(Limits {
            stall: PATIENCE,
            ..LIMITS
        });
        alone.fill().await;
        let pool = Pool::new();
        let account = Account::new(pool.clone());
        // All but room for two messages that are being made.
        let calls = account.charge(BYTES_PER_CONNECTION_MAX - 2 * WATCH_MESSAGE_BYTES_EXPECTED);
        let before = pool.held();
        let mut watches: Vec<Told> = (0..200).map(|_| alone.watch_on(&account, "")).collect();
        let full = async {
            while account.try_reserve(WATCH_MESSAGE_BYTES_EXPECTED).is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        within("a connection without room", full).await;
        let held = usize::try_from(pool.held() - before).unwrap();
        assert!(held > 0, "nothing is charged");
        assert!(held <= 2 * WATCH_MESSAGE_BYTES_EXPECTED, "{held}");

        let last = watches.pop().unwrap();
        drop(watches);
        assert_eq!(read(last, Duration::ZERO).await.unwrap(), LEASES as usize);
        drop(calls);
        let freed = async {
            while pool.held() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        within("everything given back", freed).await;
    }

    /// Others take all that connections have in common, and calls of its own nearly all of its share. A
    /// watch is sent in small messages, and then goes on.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_watch_within_its_connections_share_goes_on_whatever_others_hold() {
        let alone = alone().await;
        alone.fill().await;
        let account = Account::new(Pool::empty());
        let _calls = account.charge(BYTES_PER_CONNECTION_SHARE - 3 * WATCH_EVENT_BYTES_EXPECTED);
        let mut told = alone.watch_on(&account, "");
        let mut leases = 0;
        let position = loop {
            let message = within("message", told.next()).await.unwrap().unwrap();
            assert!(message.events.len() <= 3, "more than there is room for");
            leases += message.events.len();
            if let Some(position) = message.position {
                break position;
            }
        };
        assert_eq!(leases, LEASES as usize);
        // Nothing that it tells of happens any more, but something does.
        alone.open(2).await;
        let quiet = within("position", told.next()).await.unwrap().unwrap();
        assert!(quiet.position.unwrap().index >= position.index);
    }
}
