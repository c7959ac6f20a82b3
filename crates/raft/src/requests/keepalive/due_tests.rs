//! More sessions come due at once than one entry ends: what is reported of those that it did not
//! reach.

use std::sync::Arc;

use futures_util::stream;
use openraft::storage::RaftStateMachine;
use parking_lot::Mutex;
use ringfence_core::{
    ClusterId, ENDS_PER_ENTRY_MAX, Entry as CoreEntry, Event, Form, Identity, Millis, Open, OpenId,
    SessionEnd, Settings, StateMachine, WallTime,
};
use ringfence_proto::record::encode_command;
use tokio::sync::mpsc;

use super::*;
use crate::platform::hooks::Observer;
use crate::store::state::StateStore;
use crate::types::proposal::Proposal;
use crate::types::stop::StopSignal;
use crate::types::type_config::{Entry, Payload, log_id};
use ringfence_history::HistoryFeed;

/// One more than an entry ends.
const DUE: u64 = ENDS_PER_ENTRY_MAX as u64 + 1;
const TTL: Millis = Millis::from_secs(15);
/// When all of them are due.
const STORM: ClusterTime = ClusterTime(20_000);

/// Remembers what the newest entry was answered.
#[derive(Default)]
struct Newest(Mutex<Option<Outcome>>);

impl Observer for Newest {
    fn applied(&self, _: &StateMachine, _: &CoreEntry, outcome: &Outcome, _: &[Event]) {
        *self.0.lock() = Some(outcome.clone());
    }

    fn skipped(&self, _: &StateMachine, _: u64, _: u64) {}

    fn installed(&self, _: &StateMachine, _: u64, _: u64) {}

    fn leads(&self, _: u64) {}

    fn leads_no_more(&self, _: u64) {}
}

fn secret(n: u64) -> Secret {
    Secret::new(u128::from(n).to_be_bytes())
}

fn session(n: u64) -> (SessionId, Secret) {
    (SessionId::new(n).unwrap(), secret(n))
}

/// The state of a node whose sessions all come due at one time.
struct Storm {
    state: Arc<State>,
    store: StateStore,
    newest: Arc<Newest>,
    index: u64,
    term: u64,
}

impl Storm {
    async fn brewing() -> Self {
        let newest = Arc::new(Newest::default());
        let observer: Arc<dyn Observer> = newest.clone();
        let state = Arc::new(State::new(
            HistoryFeed::off(),
            StopSignal::new(),
            Some(observer),
        ));
        let mut storm = Self {
            store: StateStore::new(state.clone()),
            state,
            newest,
            index: 0,
            term: 0,
        };
        storm.new_term().await;
        let form = Form {
            cluster: ClusterId::new([1; 16]),
            token_floor: Some(0),
            settings: Settings::STANDARD,
        };
        storm.apply(ClusterTime(0), Command::Form(form)).await;
        for n in 1..=DUE {
            let open = Open {
                id: OpenId::new(u128::from(n).to_be_bytes()),
                secret: secret(n),
                seen: None,
                ttl: TTL,
                identity: Identity::parse("").unwrap(),
                acquire: None,
            };
            storm.apply(ClusterTime(0), Command::Open(open)).await;
        }
        storm
    }

    async fn new_term(&mut self) {
        self.term += 1;
        let unix_seconds = None;
        self.apply(ClusterTime(0), Command::TermStart { unix_seconds })
            .await;
    }

    async fn apply(&mut self, time: ClusterTime, command: Command) -> Outcome {
        self.index += 1;
        let proposal = Proposal::new(time, WallTime(0), &encode_command(&command));
        let entry = Entry {
            log_id: log_id(self.term, self.index),
            payload: Payload::Normal(proposal),
        };
        let entries = stream::iter([Ok((entry, None))]);
        self.store.apply(entries).await.unwrap();
        self.newest.0.lock().take().unwrap()
    }

    /// Keeps a session alive, as the leader does: checked, logged, applied, answered.
    async fn keep_alive(&mut self, time: ClusterTime, n: u64) -> KeptAlive {
        let (told, mut answers) = mpsc::unbounded_channel();
        let asked = Asked {
            request: KeepAlive {
                sessions: vec![session(n)],
                acknowledged: Vec::new(),
            },
            reply: Reply::new(move |answer| drop(told.send(answer))),
            origin: Origin::Here,
            source: KeepAliveSource::UNNAMED,
            deadline: Duration::ZERO,
        };
        let checked = vec![check(&self.state, asked)];
        let mut results = Vec::new();
        for renew in entries(&checked) {
            match self.apply(time, Command::Renew(renew)).await {
                Outcome::Renewed(renewed) => results.push(renewed),
                other => panic!("{other:?}"),
            }
        }
        let mut results = Results::new(results);
        for one in checked {
            answer(&self.state, one, &mut results);
        }
        answers.recv().await.unwrap().unwrap()
    }
}

#[tokio::test]
async fn the_end_of_a_session_is_told_only_when_it_has_ended() {
    let mut storm = Storm::brewing().await;
    let (last, _) = session(DUE);

    // The entry ends all that it may, and does not come to the last one.
    let kept = storm.keep_alive(STORM, DUE).await;
    assert_eq!(kept.ended, [], "nothing is told that is not so yet");
    assert_eq!(kept.untold, [last], "nothing is acknowledged to it either");

    let kept = storm.keep_alive(STORM, DUE).await;
    let cause = Some(SessionEnd::Expired);
    assert_eq!(
        kept.ended,
        [(last, Rejection::SessionExpired { cause })],
        "the next entry has ended it"
    );
    assert_eq!(kept.untold, []);
}

#[tokio::test]
async fn a_session_that_a_new_term_saves_was_not_told_to_be_over() {
    let mut storm = Storm::brewing().await;
    let (last, secret) = session(DUE);
    let kept = storm.keep_alive(STORM, DUE).await;
    assert_eq!(kept.ended, []);

    // The leader dies before anything else is logged.
    storm.new_term().await;
    let kept = storm.keep_alive(STORM, DUE).await;
    assert_eq!((kept.ended, kept.untold), (Vec::new(), Vec::new()));
    assert_eq!(
        storm.state.machine().authenticate(last, &secret),
        Ok(()),
        "the fresh TTL of the new term is its own"
    );
}
