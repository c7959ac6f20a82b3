//! An election whose processes are stopped, cut off, and killed. A process that was stopped goes on
//! where it was, also when that is its rest between two renewals and its term has ended long since.

use std::time::Duration;

use tokio::time::sleep;

use super::Pace;
use super::elector::{Elector, Times};
use crate::machine::Machine;
use crate::observe::{Observation, Recorder};
use crate::random::Random;
use crate::world::World;

/// How long an election goes on undisturbed.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1_500), Duration::from_millis(6_000));
/// How long a process is stopped or cut off, in tenths of the time that the server keeps a term for.
const LENGTHS: [u32; 6] = [2, 5, 9, 11, 13, LONGEST];
/// Longer than that time and two durations: everything that counts from the loss of a term is over.
const LONGEST: u32 = 25;

/// The processes of one election.
pub struct Election {
    world: World,
    recorder: Recorder,
    machines: Vec<Machine>,
    lives: Vec<u64>,
    times: Times,
    random: Random,
}

impl Election {
    /// So many processes, each on a machine of its own and none started.
    #[must_use]
    pub fn new(world: &World, count: u32, pace: Pace, recorder: &Recorder) -> Self {
        let machines = (1..=count).map(|number| world.machine(&format!("e{number}")));
        let machines: Vec<Machine> = machines.collect();
        Self {
            world: world.clone(),
            recorder: recorder.clone(),
            lives: vec![0; machines.len()],
            machines,
            times: Times::of(pace),
            random: world.random("election"),
        }
    }

    /// Starts all of them, and disturbs one at a time, for ever. The first one is stopped for the
    /// longest time first.
    pub async fn disturb(mut self, pace: Pace) {
        for at in 0..self.machines.len() {
            self.start(at);
        }
        sleep(pace.of(PAUSE.1)).await;
        self.stop(0, self.times.ttl() * LONGEST / 10).await;
        loop {
            sleep(self.random.time(pace.of(PAUSE.0)..pace.of(PAUSE.1))).await;
            let count = self.machines.len() as u64;
            let at = usize::try_from(self.random.within(0..count)).unwrap_or_default();
            let tenths = self.random.pick(&LENGTHS).copied().unwrap_or(LONGEST);
            let length = self.times.ttl() * tenths / 10;
            match self.random.within(0..10) {
                0..=4 => self.stop(at, length).await,
                5..=7 => self.cut(at, length).await,
                _ => self.restart(at).await,
            }
        }
    }

    fn start(&mut self, at: usize) {
        self.lives[at] += 1;
        let number = u32::try_from(at).unwrap_or_default() + 1;
        let life = (number, self.lives[at]);
        let machine = &self.machines[at];
        let elector = Elector::new(&self.world, machine, &self.recorder, life, self.times);
        let _detached = machine.spawn(elector.run());
    }

    /// It stands still in the middle of what it does, and wakes into its old term.
    async fn stop(&self, at: usize, length: Duration) {
        let machine = &self.machines[at];
        machine.pause();
        sleep(length).await;
        machine.resume();
    }

    async fn cut(&self, at: usize, length: Duration) {
        let (net, own) = (self.world.net(), self.machines[at].id());
        let nodes = self.world.nodes();
        let nodes: Vec<_> = nodes.iter().map(|node| node.machine().id()).collect();
        for node in &nodes {
            net.cut(own, *node);
            net.cut(*node, own);
        }
        sleep(length).await;
        for node in &nodes {
            net.heal(own, *node);
            net.heal(*node, own);
        }
    }

    /// The process is killed, and another one begins in the same Pod.
    async fn restart(&mut self, at: usize) {
        self.machines[at].end_process(false);
        let elector = u32::try_from(at).unwrap_or_default() + 1;
        self.recorder.see(Observation::ElectorEnded { elector });
        sleep(self.random.time(Duration::ZERO..self.times.ttl())).await;
        self.start(at);
    }
}

impl Drop for Election {
    /// No client lives any more.
    fn drop(&mut self) {
        for (at, machine) in self.machines.iter().enumerate() {
            machine.end_process(false);
            let elector = u32::try_from(at).unwrap_or_default() + 1;
            self.recorder.see(Observation::ElectorEnded { elector });
        }
    }
}
