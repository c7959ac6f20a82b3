//! Simulated clients: the real client crate, on a simulated machine, over simulated streams.
//!
//! A client has one process after the other on one machine. What it does there is `workload`'s
//! business.

mod clock;
mod stream;
mod words;

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ringfence_check::history::{Op, Outcome};
use ringfence_client::sim::{Host, Network};
use ringfence_client::{Client, ConnectError};
use ringfence_proto::Refusal;
use tokio::runtime::Handle;

pub use clock::ClientClock;

use crate::callers::Caller;
use crate::lock::lock;
use crate::machine::Machine;
use crate::net::{Connection, Side};
use crate::node;
use crate::observe::{Observation, Recorder};
use crate::world::World;
use stream::Streams;

/// What a refusal means to who asked for `op`, in the words of the history format.
#[must_use]
pub fn refused(op: &Op, refusal: Refusal) -> Outcome {
    words::refused(op, refusal.into())
}

/// How long a request of a simulated client is tried.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A client machine. Clones are the same.
#[derive(Clone)]
pub struct SimClient {
    shared: Arc<Shared>,
}

struct Shared {
    number: u32,
    caller: Caller,
    world: World,
    machine: Machine,
    clock: ClientClock,
    recorder: Recorder,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Its streams, as far as they are open.
    connections: Arc<Mutex<Vec<Weak<Connection>>>>,
    /// The process that runs, and how many there were.
    host: Option<Arc<Host>>,
    lives: u64,
    /// Since when it stands where it was stopped.
    stopped: Option<Duration>,
}

impl SimClient {
    /// A machine for client number `number`, which is not 0 and proves nothing. Nothing runs there
    /// yet.
    #[must_use]
    pub fn new(world: &World, number: u32, recorder: &Recorder) -> Self {
        Self::called(world, number, recorder, Caller::default())
    }

    /// The same for a client that proves who it is.
    #[must_use]
    pub fn called(world: &World, number: u32, recorder: &Recorder, caller: Caller) -> Self {
        if let Some(credential) = &caller.credential {
            recorder.see(Observation::Caller {
                client: number,
                principal: credential.principal().clone(),
            });
        }
        let machine = world.machine(&format!("c{number}"));
        let clock = ClientClock::new(world, &machine);
        Self {
            shared: Arc::new(Shared {
                number,
                caller,
                world: world.clone(),
                machine,
                clock,
                recorder: recorder.clone(),
                state: Mutex::default(),
            }),
        }
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.shared.number
    }

    /// Its machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.shared.machine
    }

    /// Where it tells what it sees.
    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        &self.shared.recorder
    }

    /// The run.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.shared.world
    }

    /// The true time at which its clock showed `moment`; the present if it has not yet.
    #[must_use]
    pub fn true_time_of(&self, moment: ringfence_client::Moment) -> Duration {
        self.shared.clock.true_time_of(moment)
    }

    /// Starts a process, unless one runs; `None` if one does.
    #[must_use]
    pub fn start(&self) -> Option<Arc<Host>> {
        let mut state = lock(&self.shared.state);
        if state.host.is_some() {
            return None;
        }
        state.lives += 1;
        let purpose = format!("client {} life {}", self.shared.number, state.lives);
        let seed = self.shared.world.random(&purpose).next();
        let host = Host::new(Handle::current(), seed);
        if self.shared.machine.is_paused() {
            host.freeze();
        }
        state.host = Some(Arc::clone(&host));
        drop(state);
        let client = self.shared.number;
        self.shared.recorder.see(Observation::ClientUp { client });
        Some(host)
    }

    /// Kills its process; says whether one ran.
    pub fn kill(&self) -> bool {
        let host = lock(&self.shared.state).host.take();
        let Some(host) = host else { return false };
        host.kill();
        self.shared.machine.end_process(false);
        // A process that stands does nothing by what it believes, however long it would.
        let stopped = lock(&self.shared.state).stopped;
        let since = stopped.unwrap_or_else(|| self.shared.world.now());
        self.shared.recorder.client_gone(self.shared.number, since);
        true
    }

    /// Stops its process where it stands; time goes on. With `asleep` the machine is suspended:
    /// its timers stand still with it.
    pub fn pause(&self, asleep: bool) {
        self.shared.machine.pause();
        if asleep {
            self.shared.clock.suspend(true);
        }
        let mut state = lock(&self.shared.state);
        state.stopped.get_or_insert_with(|| self.shared.world.now());
        if let Some(host) = &state.host {
            host.freeze();
        }
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.shared.clock.suspend(false);
        self.shared.machine.resume();
        let host = {
            let mut state = lock(&self.shared.state);
            state.stopped = None;
            state.host.clone()
        };
        if let Some(host) = host {
            host.thaw();
        }
    }

    /// Breaks its streams; both ends hear of it.
    pub fn reset(&self) {
        let connections = std::mem::take(&mut *lock(&lock(&self.shared.state).connections));
        for connection in connections.iter().filter_map(Weak::upgrade) {
            connection.close(Side::Caller);
        }
    }

    /// From now on its clocks run so many parts per million too fast.
    pub fn set_clock_rate(&self, ppm: i64) {
        self.shared.clock.set_rate(ppm);
    }

    /// Its way to the nodes, for those who do not use the client crate.
    #[must_use]
    pub fn network(&self) -> impl Network + use<> {
        self.streams()
    }

    fn streams(&self) -> Streams {
        let shared = &self.shared;
        Streams::new(
            &shared.world,
            &shared.machine,
            (shared.number, &shared.caller),
            &shared.recorder,
            &lock(&shared.state).connections,
        )
    }

    /// Connects the client of a process. To be called in a task of it.
    ///
    /// # Errors
    /// [`ConnectError`] if no node greets in time.
    pub async fn connect(&self, host: &Arc<Host>) -> Result<Client, ConnectError> {
        let shared = &self.shared;
        let nodes = shared.world.nodes();
        let addresses = nodes.iter().map(|node| node::client_address(node.index()));
        let streams = self.streams();
        Client::builder()
            .endpoints(addresses.map(|address| address.to_string()))
            .clock(Arc::new(shared.clock.clone()))
            .request_timeout(REQUEST_TIMEOUT)
            .simulated(Arc::clone(host), Arc::new(streams))
            .connect()
            .await
    }
}
