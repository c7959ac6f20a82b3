//! Making a schedule from a seed.
//!
//! Faults of the cluster follow each other, so that a majority is always whole and connected;
//! faults of clients run beside them. With `break_quorum` two trains of faults run side by side,
//! and some hit all nodes at once.

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::{Direction, Fault, Planned, Schedule, ScheduleError, Shape, VERSION, Victim};
use crate::plan::{Kind, Plan};

/// Before the first fault the cluster works undisturbed.
const CALM_BEFORE_MS: u64 = 2_500;
/// After the last one it shows that it works again.
const CALM_AFTER_MS: u64 = 6_000;
/// Between two faults of the cluster.
const GAP_MS: std::ops::Range<u64> = 1_200..2_500;
/// The least that a fault and the gap behind it take.
const LEAST_MS: u64 = 3_000;
/// Between two faults of clients.
const CLIENT_GAP_MS: std::ops::Range<u64> = 1_000..4_000;
/// How long a client is disturbed: often longer than its session's TTL.
const CLIENT_LASTS_MS: std::ops::Range<u64> = 800..6_000;

/// What this machine can do, beside the kinds themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Means {
    /// Disks can lose their power.
    pub(crate) power: bool,
    /// Disks can be filled.
    pub(crate) full: bool,
    /// Clients can be cut off.
    pub(crate) network: bool,
}

impl Schedule {
    /// The schedule that the plan's seed makes.
    ///
    /// # Errors
    /// [`ScheduleError::TooShort`] if a kind would not have its turn.
    pub(crate) fn make(plan: &Plan, kinds: &[Kind], means: Means) -> Result<Self, ScheduleError> {
        let duration_ms = u64::try_from(plan.duration.as_millis()).unwrap_or(u64::MAX);
        let least_ms = CALM_BEFORE_MS + CALM_AFTER_MS + LEAST_MS * kinds.len() as u64;
        if !kinds.is_empty() && duration_ms < least_ms {
            return Err(ScheduleError::TooShort {
                offered_ms: duration_ms,
                kinds: kinds.len(),
                least_ms,
            });
        }
        let mut maker = Maker {
            rng: StdRng::seed_from_u64(plan.seed),
            nodes: plan.nodes as usize,
            clients: plan.clients,
            break_quorum: plan.break_quorum,
            means,
            end_ms: duration_ms.saturating_sub(CALM_AFTER_MS),
            hooked: plan.target.is_some(),
            turns: 0,
            hit: BTreeSet::new(),
        };
        let mut faults = maker.train(kinds);
        if plan.break_quorum {
            faults.extend(maker.train(kinds));
        }
        if plan.target.is_none() {
            faults.extend(maker.of_clients(kinds));
        }
        faults.sort_by_key(|planned| planned.begin_ms);
        for (planned, id) in faults.iter_mut().zip(1..) {
            planned.id = id;
        }
        Ok(Self {
            version: VERSION,
            seed: plan.seed,
            nodes: plan.nodes,
            clients: plan.clients,
            duration_ms,
            faults,
        })
    }
}

struct Maker {
    rng: StdRng,
    nodes: usize,
    clients: u32,
    break_quorum: bool,
    means: Means,
    end_ms: u64,
    hooked: bool,
    /// How often disks had their turn.
    turns: usize,
    /// Kinds that have hit the leader.
    hit: BTreeSet<Kind>,
}

impl Maker {
    /// One fault after the other, all kinds once before any comes again.
    fn train(&mut self, kinds: &[Kind]) -> Vec<Planned> {
        let mut faults = Vec::new();
        if kinds.is_empty() {
            return faults;
        }
        // In a short run every kind gets its share of the time.
        let share = (self.end_ms - CALM_BEFORE_MS) / kinds.len() as u64;
        let mut at = CALM_BEFORE_MS;
        loop {
            let mut round = kinds.to_vec();
            round.shuffle(&mut self.rng);
            for kind in round {
                let gap = self.rng.random_range(GAP_MS);
                let wanted = self.lasts(kind);
                let lasts_ms = match faults.len() < kinds.len() {
                    true => wanted.min(share.saturating_sub(gap)),
                    false => wanted,
                };
                if at + lasts_ms > self.end_ms {
                    return faults;
                }
                let fault = self.fault(kind);
                faults.push(planned(kind, at, lasts_ms, fault));
                at += lasts_ms + gap;
            }
        }
    }

    fn lasts(&mut self, kind: Kind) -> u64 {
        let range = match kind {
            Kind::Partition | Kind::Oneway | Kind::Isolate | Kind::Pause => 1_500..5_000,
            Kind::Kill => 500..3_500,
            Kind::Disk => 2_500..5_000,
            Kind::Slow => 3_000..6_000,
            Kind::Membership => 5_000..8_000,
        };
        self.rng.random_range(range)
    }

    /// First the leader, then any node.
    fn victim(&mut self, kind: Kind) -> Victim {
        let first = self.hit.insert(kind);
        match self.rng.random_bool(0.6) || first {
            true => Victim::Leader,
            false => Victim::Node(self.rng.random_range(0..self.nodes)),
        }
    }

    /// One victim; where the quorum may break, sometimes every node.
    fn victims(&mut self, kind: Kind) -> Vec<Victim> {
        if self.break_quorum && self.rng.random_bool(0.4) {
            return (0..self.nodes).map(Victim::Node).collect();
        }
        vec![self.victim(kind)]
    }

    fn direction(&mut self) -> Direction {
        match self.rng.random_bool(0.5) {
            true => Direction::Out,
            false => Direction::In,
        }
    }

    fn fault(&mut self, kind: Kind) -> Fault {
        if self.hooked {
            return Fault::Hook;
        }
        match kind {
            Kind::Partition => self.partition(),
            Kind::Oneway => Fault::Oneway {
                victim: self.victim(kind),
                direction: self.direction(),
                clients_too: self.rng.random_bool(0.3),
            },
            Kind::Isolate => Fault::Isolate {
                victim: self.victim(kind),
                clients_too: self.rng.random_bool(0.3),
            },
            Kind::Kill => Fault::Kill {
                victims: self.victims(kind),
            },
            Kind::Pause => Fault::Pause {
                victims: self.victims(kind),
            },
            Kind::Disk => self.disk(),
            Kind::Slow => self.slow(),
            Kind::Membership => match self.rng.random_bool(0.5) {
                true => Fault::Grow,
                false => Fault::Replace {
                    victim: Victim::Node(self.rng.random_range(0..self.nodes)),
                },
            },
        }
    }

    fn partition(&mut self) -> Fault {
        let mut order: Vec<usize> = (0..self.nodes).collect();
        order.shuffle(&mut self.rng);
        let shape = match self.rng.random_range(0..4) {
            0 => Shape::Bridge,
            // With three nodes a ring is whole.
            1 if self.nodes >= 5 => Shape::Ring,
            _ => Shape::Sides,
        };
        Fault::Partition {
            shape,
            order,
            clients_too: self.rng.random_bool(0.5),
        }
    }

    /// In turn what this machine can do.
    fn disk(&mut self) -> Fault {
        let victim = self.victim(Kind::Disk);
        let torn = Fault::TornTail {
            victim,
            bytes: self.rng.random_range(1..8_192),
        };
        let mut ways = vec![torn, Fault::FullLog { victim }];
        if self.means.full {
            ways.push(Fault::FullDisk { victim });
        }
        if self.means.power {
            ways.push(Fault::PowerLoss { victim });
        }
        self.turns += 1;
        let last = ways.len();
        ways.swap_remove((last - self.turns % last) % last)
    }

    fn slow(&mut self) -> Fault {
        let rng = &mut self.rng;
        let some = |rng: &mut StdRng, range: std::ops::Range<u32>| match rng.random_bool(0.5) {
            true => rng.random_range(range),
            false => 0,
        };
        Fault::Slow {
            victim: match rng.random_range(0..3) {
                0 => None,
                1 => Some(Victim::Leader),
                _ => Some(Victim::Node(rng.random_range(0..self.nodes))),
            },
            delay_ms: rng.random_range(5..80),
            jitter_ms: some(rng, 5..60),
            loss_percent: some(rng, 1..20),
            duplicate_percent: some(rng, 1..20),
            reorder_percent: some(rng, 1..20),
            bytes_per_second: rng
                .random_bool(0.2)
                .then(|| rng.random_range(20_000..200_000)),
        }
    }

    /// Clients that are stopped or cut off, one at a time.
    fn of_clients(&mut self, kinds: &[Kind]) -> Vec<Planned> {
        let mut ways: Vec<Kind> = kinds
            .iter()
            .copied()
            .filter(|kind| matches!(kind, Kind::Pause | Kind::Isolate | Kind::Oneway))
            .collect();
        if !self.means.network {
            ways.retain(|kind| !kind.needs_network());
        }
        let mut faults = Vec::new();
        let mut at = CALM_BEFORE_MS;
        while !ways.is_empty() {
            let kind = ways[self.rng.random_range(0..ways.len())];
            let lasts_ms = self.rng.random_range(CLIENT_LASTS_MS);
            if at + lasts_ms > self.end_ms {
                break;
            }
            let client = self.rng.random_range(1..=self.clients);
            let fault = match kind {
                Kind::Pause => Fault::PauseClient { client },
                Kind::Oneway => Fault::CutClient {
                    client,
                    direction: self.direction(),
                },
                _ => Fault::CutClient {
                    client,
                    direction: Direction::Both,
                },
            };
            faults.push(planned(kind, at, lasts_ms, fault));
            at += lasts_ms + self.rng.random_range(CLIENT_GAP_MS);
        }
        faults
    }
}

fn planned(kind: Kind, begin_ms: u64, lasts_ms: u64, fault: Fault) -> Planned {
    Planned {
        id: 0,
        kind,
        begin_ms,
        lasts_ms,
        fault,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ALL: Means = Means {
        power: true,
        full: true,
        network: true,
    };

    fn plan(seed: u64, seconds: u64) -> Plan {
        Plan {
            program: "ringfence".into(),
            nodes: 5,
            clients: 8,
            foreign: Vec::new(),
            duration: Duration::from_secs(seconds),
            seed,
            faults: Kind::ALL.to_vec(),
            named: true,
            report: "report".into(),
            schedule: None,
            break_quorum: false,
            control: true,
            target: None,
            open_guard: false,
        }
    }

    fn make(seed: u64, seconds: u64) -> Schedule {
        Schedule::make(&plan(seed, seconds), &Kind::ALL, ALL).expect("long enough")
    }

    #[test]
    fn a_seed_makes_one_schedule_and_another_another() {
        assert_eq!(make(42, 60), make(42, 60));
        assert_ne!(make(42, 60), make(43, 60));
    }

    #[test]
    fn every_kind_has_its_turn_and_faults_of_the_cluster_never_overlap() {
        for seed in 0..200 {
            let schedule = make(seed, 33 + seed % 60);
            let of_cluster = schedule.faults.iter();
            let of_cluster: Vec<_> = of_cluster
                .filter(|planned| !planned.fault.is_of_clients())
                .collect();
            for kind in Kind::ALL {
                let found = of_cluster.iter().any(|planned| planned.kind == kind);
                assert!(found, "{kind} with seed {seed}: {schedule:?}");
            }
            for pair in of_cluster.windows(2) {
                let end = pair[0].begin_ms + pair[0].lasts_ms;
                assert!(end < pair[1].begin_ms, "{pair:?} with seed {seed}");
            }
            let last = of_cluster[of_cluster.len() - 1];
            let end = last.begin_ms + last.lasts_ms;
            assert!(end + CALM_AFTER_MS <= schedule.duration_ms, "{last:?}");
        }
    }

    #[test]
    fn a_run_too_short_for_its_faults_is_refused_with_the_time_they_need() {
        let refused = Schedule::make(&plan(1, 20), &Kind::ALL, ALL);
        let Err(ScheduleError::TooShort { least_ms, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(make(1, least_ms / 1_000 + 1).seed, 1);
    }

    #[test]
    fn a_schedule_survives_its_file() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("schedule.json");
        let schedule = make(7, 90);
        schedule.write(&path).expect("written");
        assert_eq!(Schedule::read(&path).expect("read"), schedule);

        let mut wrong = schedule;
        wrong.faults[0].fault = Fault::Isolate {
            victim: Victim::Node(5),
            clients_too: false,
        };
        wrong.write(&path).expect("written");
        let error = Schedule::read(&path).expect_err("no such node").to_string();
        assert!(error.contains("place 5"), "{error}");
    }
}
