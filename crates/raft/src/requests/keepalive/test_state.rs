//! The state of a node, as its batches meet it.

use std::sync::Arc;

use futures_util::stream;
use openraft::storage::RaftStateMachine;
use parking_lot::Mutex;
use ringfence_core::{
    ClusterId, Entry as CoreEntry, Event, Form, Settings, StateMachine, WallTime,
};
use ringfence_history::HistoryFeed;
use ringfence_proto::record::encode_command;
use tokio::sync::mpsc;

use super::*;
use crate::platform::hooks::Observer;
use crate::store::state::StateStore;
use crate::types::proposal::Proposal;
use crate::types::stop::StopSignal;
use crate::types::type_config::{Entry, Payload, log_id};

pub(super) const CLUSTER: ClusterId = ClusterId::new([1; 16]);

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

/// A state to which a test applies entries.
pub(super) struct TestState {
    pub(super) state: Arc<State>,
    store: StateStore,
    newest: Arc<Newest>,
    pub(super) index: u64,
    term: u64,
}

impl TestState {
    /// That of a new cluster, in its first term.
    pub(super) async fn formed() -> Self {
        let newest = Arc::new(Newest::default());
        let observer: Arc<dyn Observer> = newest.clone();
        let state = Arc::new(State::new(
            HistoryFeed::off(),
            StopSignal::new(),
            Some(observer),
        ));
        let mut this = Self {
            store: StateStore::new(state.clone()),
            state,
            newest,
            index: 0,
            term: 0,
        };
        this.new_term().await;
        let form = Form {
            cluster: CLUSTER,
            token_floor: Some(0),
            settings: Settings::STANDARD,
            mode: ringfence_core::Mode::Off,
            quiet_time: ringfence_core::Millis(0),
            restored: None,
        };
        this.apply(ClusterTime(0), Command::Form(form)).await;
        this
    }

    pub(super) async fn new_term(&mut self) {
        self.term += 1;
        let unix_seconds = None;
        self.apply(ClusterTime(0), Command::TermStart { unix_seconds })
            .await;
    }

    pub(super) async fn apply(&mut self, time: ClusterTime, command: Command) -> Outcome {
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

    /// A batch, as the leader makes it: checked, logged, applied, answered.
    pub(super) async fn keep_alive(
        &mut self,
        time: ClusterTime,
        batch: Vec<KeepAlive>,
    ) -> Vec<KeptAlive> {
        let batch = self.check(batch);
        self.log(time, batch).await
    }

    /// A batch that is checked and not logged yet.
    pub(super) fn check(&self, batch: Vec<KeepAlive>) -> Batch {
        let (told, answers) = mpsc::unbounded_channel();
        let checked = batch.into_iter().map(|request| {
            let told = told.clone();
            let asked = Asked {
                request,
                reply: Reply::new(move |answer| drop(told.send(answer))),
                origin: Origin::Here,
                source: KeepAliveSource::UNNAMED,
                deadline: Duration::ZERO,
            };
            check(&self.state, asked)
        });
        let checked: Vec<Checked> = checked.collect();
        Batch { checked, answers }
    }

    /// Logs and applies a batch, and answers it.
    pub(super) async fn log(&mut self, time: ClusterTime, batch: Batch) -> Vec<KeptAlive> {
        let Batch {
            checked,
            mut answers,
        } = batch;
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
        let answers = std::iter::from_fn(|| answers.try_recv().ok());
        answers.map(Result::unwrap).collect()
    }
}

/// Requests that were checked together.
pub(super) struct Batch {
    pub(super) checked: Vec<Checked>,
    answers: mpsc::UnboundedReceiver<Result<KeptAlive, ProposeError>>,
}
