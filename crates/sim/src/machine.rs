//! Machines and the processes on them: what is paused, what is dead, what their clocks show.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ringfence_raft::place::{self, Answer, Dial, Place};
use tokio::task::{AbortHandle, JoinHandle};

use crate::clock::MachineClock;
use crate::disk::Disk;
use crate::lock::lock;
use crate::random::Random;
use crate::timeline::Timeline;

/// What machines are plugged into: the network, as they see it.
pub(crate) trait Wire: Send + Sync {
    /// A way from this machine to the listener at an address.
    fn dial(&self, from: &Machine, address: &str) -> Arc<dyn Dial>;

    /// From now on this process answers at an address.
    fn serve(&self, address: &str, machine: &Machine, process: &Arc<Process>, answer: Answer);

    /// Breaks the connections of a process that ended. Whether the other ends hear of it at once
    /// depends on whether its machine still has power.
    fn process_ended(&self, process: &Process, power_lost: bool);
}

/// Names a machine in the network. Nodes come first, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(pub usize);

/// One simulated machine. Clones are the same machine.
#[derive(Clone)]
pub struct Machine {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) id: MachineId,
    name: String,
    timeline: Timeline,
    net: Arc<dyn Wire>,
    /// For everything that processes draw.
    random: Mutex<Random>,
    clock: Mutex<MachineClock>,
    state: Mutex<State>,
    disk: Disk,
    /// How often a task was let run.
    turns: AtomicU64,
}

struct State {
    paused: bool,
    /// False while the machine is without power: it does not even refuse connections.
    powered: bool,
    /// Tasks that had something to do while the machine was paused.
    parked: Vec<Waker>,
    /// The process that runs.
    process: Arc<Process>,
}

/// One life of a machine's process: from its start to its end, however it comes.
pub struct Process {
    /// Counts the lives of all machines.
    number: u64,
    dead: AtomicBool,
    tasks: Mutex<Vec<AbortHandle>>,
}

static PROCESSES: AtomicU64 = AtomicU64::new(0);

impl Process {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            number: PROCESSES.fetch_add(1, Ordering::Relaxed),
            dead: AtomicBool::new(false),
            tasks: Mutex::default(),
        })
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Ends it: none of its tasks runs again.
    fn end(&self) {
        self.dead.store(true, Ordering::Relaxed);
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.iter().for_each(AbortHandle::abort);
    }
}

impl PartialEq for Process {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Machine {
    pub(crate) fn new(
        id: MachineId,
        name: &str,
        timeline: Timeline,
        net: Arc<dyn Wire>,
        clock: MachineClock,
        random: Random,
    ) -> Self {
        let disk = Disk::new(timeline, random.fork("disk"));
        let state = State {
            paused: false,
            powered: true,
            parked: Vec::new(),
            process: Process::new(),
        };
        Self {
            inner: Arc::new(Inner {
                id,
                name: name.to_owned(),
                timeline,
                net,
                random: Mutex::new(random),
                clock: Mutex::new(clock),
                state: Mutex::new(state),
                disk,
                turns: AtomicU64::new(0),
            }),
        }
    }

    /// Its number in the network.
    #[must_use]
    pub fn id(&self) -> MachineId {
        self.inner.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its disk.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.inner.disk
    }

    /// Stops everything on it where it stands, as SIGSTOP, a suspend or a stalled hypervisor do.
    /// Its clocks go on.
    pub fn pause(&self) {
        self.inner.state().paused = true;
    }

    /// Lets everything on it go on.
    pub fn resume(&self) {
        let parked = {
            let mut state = self.inner.state();
            state.paused = false;
            std::mem::take(&mut state.parked)
        };
        parked.into_iter().for_each(Waker::wake);
    }

    /// Whether it is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.inner.state().paused
    }

    /// From now on its clocks run `ppm` parts per million too fast, or too slow.
    pub fn set_clock_rate(&self, ppm: i64) {
        lock(&self.inner.clock).set_rate(self.inner.timeline.now(), ppm);
    }

    /// Sets its wall clock forward or back, in milliseconds.
    pub fn step_wall_clock(&self, millis: i64) {
        lock(&self.inner.clock).step_wall(millis);
    }

    /// How often a task on it was let run: what a simulation's speed depends on.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.inner.turns.load(Ordering::Relaxed)
    }

    /// What its boot clock shows now.
    #[must_use]
    pub fn since_boot(&self) -> Duration {
        lock(&self.inner.clock).boot(self.inner.timeline.now())
    }

    /// Runs a task in the process that runs now; it ends with it.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        place::spawn(&self.place(), future)
    }

    /// Does something in the process that runs now, at once.
    pub fn visit<T>(&self, work: impl FnOnce() -> T) -> T {
        place::visit(&self.place(), work)
    }

    /// The process that runs now.
    #[must_use]
    pub fn process(&self) -> Arc<Process> {
        self.inner.state().process.clone()
    }

    pub(crate) fn place(&self) -> Arc<dyn Place> {
        self.place_of(&self.process())
    }

    pub(crate) fn place_of(&self, process: &Arc<Process>) -> Arc<dyn Place> {
        Arc::new(Here {
            process: process.clone(),
            machine: self.clone(),
        })
    }

    /// Ends the process: nothing it would do at its end is done. The other ends of its connections
    /// are notified, unless the machine has lost power.
    pub(crate) fn end_process(&self, power_lost: bool) {
        let process = {
            let mut state = self.inner.state();
            state.powered = !power_lost;
            state.paused = false;
            state.parked.clear();
            std::mem::replace(&mut state.process, Process::new())
        };
        process.end();
        self.inner.net.process_ended(&process, power_lost);
    }

    /// The machine is switched on again, if it was off.
    pub(crate) fn power_on(&self) {
        self.inner.state().powered = true;
    }

    pub(crate) fn is_powered(&self) -> bool {
        self.inner.state().powered
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// A process on its machine.
struct Here {
    process: Arc<Process>,
    machine: Machine,
}

impl Place for Here {
    fn admit(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.process.is_dead() {
            return Poll::Pending;
        }
        let mut state = self.machine.inner.state();
        if state.paused {
            state.parked.push(context.waker().clone());
            return Poll::Pending;
        }
        self.machine.inner.turns.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(())
    }

    fn began(&self, task: AbortHandle) {
        if self.process.is_dead() {
            task.abort();
            return;
        }
        let mut tasks = lock(&self.process.tasks);
        if tasks.len() == tasks.capacity() {
            tasks.retain(|task| !task.is_finished());
        }
        tasks.push(task);
    }

    fn since_boot(&self) -> Duration {
        self.machine.since_boot()
    }

    fn wall_millis(&self) -> u64 {
        let now = self.machine.inner.timeline.now();
        lock(&self.machine.inner.clock).wall_millis(now)
    }

    fn random(&self) -> u64 {
        lock(&self.machine.inner.random).next()
    }

    fn dial(&self, address: &str) -> Arc<dyn Dial> {
        self.machine.inner.net.dial(&self.machine, address)
    }

    fn serve(&self, address: &str, answer: Answer) {
        let net = &self.machine.inner.net;
        net.serve(address, &self.machine, &self.process, answer);
    }

    fn disk_time(&self) -> Duration {
        self.machine.inner.disk.next_sync_takes()
    }

    fn disk_stalls(&self) -> Duration {
        self.machine.inner.disk.stalls()
    }
}
