//! The stores that a client writes to: guarded ones, and the same writes on one without a guard.

use std::sync::{Arc, Mutex, PoisonError};

use ringfence_check::history::{Guard, GuardAct, Record};
use ringfence_core::{FencingToken, LeaseName};
use ringfence_guard::Fence;

use super::ask::{Answer, Ask};
use super::memory::MemoryStore;
use super::recorder::Recorder;
use super::sqlite::{Door, SqliteStore};
use super::{ClientOptions, MEMORY, SQLITE, UNGUARDED};
use crate::clock::now_ns;

/// One store.
#[derive(Debug)]
enum Store {
    Sqlite(SqliteStore),
    Memory(MemoryStore),
}

impl Store {
    fn answer(&mut self, ask: &Ask) -> Answer {
        match self {
            Self::Sqlite(store) => store.answer(ask),
            Self::Memory(store) => store.answer(ask),
        }
    }
}

#[derive(Debug)]
struct Named {
    name: &'static str,
    guarded: bool,
    store: Mutex<Store>,
}

/// All stores of a client. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Stores {
    all: Arc<[Named]>,
    recorder: Recorder,
}

/// A store by its place.
pub(super) type Place = usize;

impl Stores {
    pub(super) fn new(options: &ClientOptions, recorder: Recorder) -> Self {
        let door = if options.open_guard {
            Door::Open
        } else {
            Door::Guarded
        };
        let sqlite = SqliteStore::new(options.stores.join(SQLITE), door);
        let memory = MemoryStore::new(options.memory.clone());
        let mut all = vec![
            Named {
                name: SQLITE,
                guarded: true,
                store: Mutex::new(Store::Sqlite(sqlite)),
            },
            Named {
                name: MEMORY,
                guarded: true,
                store: Mutex::new(Store::Memory(memory)),
            },
        ];
        if options.control {
            let bare = SqliteStore::new(options.stores.join(UNGUARDED), Door::Open);
            all.push(Named {
                name: UNGUARDED,
                guarded: false,
                store: Mutex::new(Store::Sqlite(bare)),
            });
        }
        Self {
            all: all.into(),
            recorder,
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Comes to a store and tells the history what came of it.
    pub(super) async fn ask(
        &self,
        place: Place,
        fence: &Fence,
        act: GuardAct,
        value: i64,
    ) -> Answer {
        let stores = self.clone();
        let ask = Ask {
            client: self.recorder.client(),
            fence: fence.clone(),
            act,
            value,
        };
        let answering = tokio::task::spawn_blocking(move || stores.ask_now(place, &ask));
        answering.await.unwrap_or(Answer::FAILED)
    }

    fn ask_now(&self, place: Place, ask: &Ask) -> Answer {
        let named = &self.all[place];
        let begin = now_ns();
        let answer = {
            let mut store = named.store.lock().unwrap_or_else(PoisonError::into_inner);
            store.answer(ask)
        };
        let value = match ask.act {
            GuardAct::Read => answer.value,
            GuardAct::Write => Some(ask.value),
            GuardAct::Advance => None,
        };
        self.recorder.put(&Record::Guard(Guard {
            store: named.name.to_owned(),
            client: ask.client,
            lease: ask.fence.name.to_string(),
            token: ask.fence.token.get(),
            act: ask.act,
            begin,
            end: now_ns(),
            commit: answer.commit,
            admission: answer.admission,
            value: value.map(|value| value.to_string()),
            guarded: named.guarded,
        }));
        answer
    }
}

/// A fence of these two, which came from a grant.
pub(super) fn fence(name: &LeaseName, token: FencingToken) -> Fence {
    Fence::new(name.clone(), token)
}
