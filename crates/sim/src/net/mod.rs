//! The network: directed links between machines, and the connections over them.
//!
//! What a connection carries arrives once and in order, as over TCP: a lost packet comes later,
//! together with all behind it, and a link that is cut holds everything back until it is healed or
//! the connection is given up. What is doubled or reordered is so between connections.

mod calls;
mod connection;
mod pipe;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use ringfence_raft::place::{Answer, Dial};
use tokio::sync::watch;
use tonic::Status;

use calls::Way;
pub use connection::{Broken, Connection, Side};
pub use pipe::{Inlet, Outlet};

use crate::lock::lock;
use crate::machine::{Machine, MachineId, Process, Wire};
use crate::random::Random;
use crate::timeline::Timeline;

/// How long it takes until a packet that was lost is sent again, at first.
const RESEND_AFTER: Duration = Duration::from_millis(200);
/// How often connections are looked at for ends that do not answer.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long an end may be silent before the other gives the connection up: as long as between
/// nodes, two seconds until it is asked and two for the answer.
const SILENT_MAX: Duration = Duration::from_secs(4);

/// What a link is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weather {
    /// How long a packet is under way.
    pub delay: Range<Duration>,
    /// How many of a thousand packets are lost, and sent again.
    pub lost_per_mille: u64,
    /// How many of a thousand calls of clients arrive twice; see [`crate::world::World::call`].
    pub doubled_per_mille: u64,
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            delay: Duration::from_micros(100)..Duration::from_millis(2),
            lost_per_mille: 0,
            doubled_per_mille: 0,
        }
    }
}

/// The network of a run. Clones share it.
#[derive(Clone)]
pub struct Net {
    inner: Arc<Inner>,
}

struct Inner {
    timeline: Timeline,
    state: Mutex<State>,
    /// Moved whenever a link changes.
    changed: watch::Sender<u64>,
}

struct State {
    random: Random,
    weather: Weather,
    links: BTreeMap<(MachineId, MachineId), Link>,
    listeners: BTreeMap<String, Listener>,
    connections: Vec<Weak<Connection>>,
    counts: Counts,
}

#[derive(Default, Clone)]
struct Link {
    cut: bool,
    weather: Option<Weather>,
}

#[derive(Clone)]
struct Listener {
    machine: Machine,
    process: Arc<Process>,
    answer: Answer,
}

/// What answers for a process that has ended.
fn nobody() -> Answer {
    Arc::new(|_| Box::pin(async { Err(Status::unavailable("the process has ended")) }))
}

/// Figures about a run's network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that were sent.
    pub sent: u64,
    /// How many of them were lost at first.
    pub lost: u64,
    /// Connections that were opened.
    pub opened: u64,
    /// Connections that broke.
    pub broken: u64,
}

impl Net {
    pub(crate) fn new(timeline: Timeline, random: Random) -> Self {
        let state = State {
            random,
            weather: Weather::default(),
            links: BTreeMap::new(),
            listeners: BTreeMap::new(),
            connections: Vec::new(),
            counts: Counts::default(),
        };
        Self {
            inner: Arc::new(Inner {
                timeline,
                state: Mutex::new(state),
                changed: watch::Sender::new(0),
            }),
        }
    }

    /// Cuts the link in this direction.
    pub fn cut(&self, from: MachineId, to: MachineId) {
        self.state().links.entry((from, to)).or_default().cut = true;
        self.touch();
    }

    /// Heals it.
    pub fn heal(&self, from: MachineId, to: MachineId) {
        self.state().links.entry((from, to)).or_default().cut = false;
        self.touch();
    }

    /// Cuts a machine off from these others, both ways.
    pub fn isolate(&self, one: MachineId, others: impl IntoIterator<Item = MachineId>) {
        for other in others {
            if other != one {
                self.cut(one, other);
                self.cut(other, one);
            }
        }
    }

    /// Heals every link, and makes the weather what it is by default everywhere.
    pub fn heal_all(&self) {
        self.state().links.clear();
        self.touch();
    }

    /// Whether the link is cut in this direction.
    #[must_use]
    pub fn is_cut(&self, from: MachineId, to: MachineId) -> bool {
        let state = self.state();
        state.links.get(&(from, to)).is_some_and(|link| link.cut)
    }

    /// Sets what one direction of a link is like; `None`: as all others.
    pub fn set_weather(&self, from: MachineId, to: MachineId, weather: Option<Weather>) {
        self.state().links.entry((from, to)).or_default().weather = weather;
    }

    /// Sets what all other links are like.
    pub fn set_default_weather(&self, weather: Weather) {
        self.state().weather = weather;
    }

    /// Figures about it.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Lets go of everything at the end of a run.
    pub(crate) fn forget(&self) {
        let listeners = std::mem::take(&mut self.state().listeners);
        drop(listeners);
    }

    fn listener(&self, address: &str) -> Option<Listener> {
        self.state().listeners.get(address).cloned()
    }

    /// Gives up connections whose other end is silent; runs as long as the run.
    pub(crate) async fn watch(self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            for connection in self.connections() {
                connection.look();
            }
        }
    }

    fn connections(&self) -> Vec<Arc<Connection>> {
        let mut state = self.state();
        state
            .connections
            .retain(|connection| connection.strong_count() > 0);
        state.connections.iter().filter_map(Weak::upgrade).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.inner.state)
    }

    fn touch(&self) {
        self.inner.changed.send_modify(|changes| *changes += 1);
    }

    fn now(&self) -> Duration {
        self.inner.timeline.now()
    }

    /// How long a packet takes that is sent now, losses and resends included.
    fn delay(&self, from: MachineId, to: MachineId) -> Duration {
        let mut state = self.state();
        let State {
            random,
            weather,
            links,
            counts,
            ..
        } = &mut *state;
        let special = links
            .get(&(from, to))
            .and_then(|link| link.weather.as_ref());
        let weather = special.unwrap_or(weather);
        let mut delay = random.time(weather.delay.clone());
        let mut again = RESEND_AFTER;
        counts.sent += 1;
        // A link that loses everything is cut, not bad weather: what is sent here arrives some time.
        while weather.lost_per_mille > 0 && random.chance(weather.lost_per_mille.min(900)) {
            counts.lost += 1;
            delay += again;
            again *= 2;
        }
        delay
    }

    /// Whether a call of a client arrives twice.
    pub(crate) fn doubles(&self, from: MachineId, to: MachineId) -> bool {
        let mut state = self.state();
        let special = state.links.get(&(from, to));
        let special = special.and_then(|link| link.weather.as_ref());
        let per_mille = special.unwrap_or(&state.weather).doubled_per_mille;
        per_mille > 0 && state.random.chance(per_mille)
    }

    /// How long after a link is healed the sender tries again.
    fn resend(&self) -> Duration {
        let range = Duration::ZERO..RESEND_AFTER * 2;
        self.state().random.time(range)
    }

    /// Returns once the link is whole.
    async fn whole(&self, from: MachineId, to: MachineId) {
        if !self.is_cut(from, to) {
            return;
        }
        let mut changed = self.inner.changed.subscribe();
        while self.is_cut(from, to) {
            if changed.changed().await.is_err() {
                return;
            }
            if !self.is_cut(from, to) {
                let resend = self.resend();
                tokio::time::sleep(resend).await;
            }
        }
    }

    /// One packet on its way, outside of any connection.
    pub(crate) async fn travel(&self, from: MachineId, to: MachineId) {
        let delay = self.delay(from, to);
        tokio::time::sleep(delay).await;
        self.whole(from, to).await;
    }
}

impl Wire for Net {
    fn dial(&self, from: &Machine, address: &str) -> Arc<dyn Dial> {
        Arc::new(Way::new(self.clone(), from.clone(), address))
    }

    fn serve(&self, address: &str, machine: &Machine, process: &Arc<Process>, answer: Answer) {
        let listener = Listener {
            machine: machine.clone(),
            process: process.clone(),
            answer,
        };
        self.state().listeners.insert(address.to_owned(), listener);
    }

    fn process_ended(&self, process: &Process, power_lost: bool) {
        // Its address still refuses connections, but nothing of it is kept.
        let mut former = Vec::new();
        for listener in self.state().listeners.values_mut() {
            if *listener.process == *process {
                former.push(std::mem::replace(&mut listener.answer, nobody()));
            }
        }
        drop(former);
        for connection in self.connections() {
            connection.process_ended(process, power_lost);
        }
    }
}
