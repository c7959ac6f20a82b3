//! What a seed means: how large the cluster is, what its clients do, which faults come when, and what
//! that relaxes.

use std::time::Duration;

use ringfence_core::{Principal, Settings};
use ringfence_raft::Timing;

use crate::callers::Credential;
use crate::faults::{Fault, Frame, HANGS, Scheduled, schedule};
use crate::properties::{Bounds, PPM_MAX};
use crate::random::Random;
use crate::setup::Setup;
use crate::workload::Pace;
use crate::workload::administrator::{Course, Rights};
use crate::workload::elector::Times;

/// How far clocks are set off where the bound is not kept: 20 %.
const PPM_BEYOND: i32 = 200_000;
/// Between two heartbeats of a leader, in milliseconds: what nodes do by default, twice, and slower
/// ones. Election timeouts go with it.
const HEARTBEATS: [u64; 4] = [100, 50, 50, 200];
/// The nodes and the clients of a calm run.
const CALM: (usize, u32) = (3, 10);
/// How long the faults of a long run come and go.
const HOURS: (Duration, Duration) = (Duration::from_secs(1_800), Duration::from_secs(5_400));
/// Of a thousand brisk runs in so many a leader's disk hangs for minutes.
const HANGING: u64 = 120;
/// When the first fault may come.
const CALM_FIRST: Duration = Duration::from_secs(3);
/// How long all is well before the clients go, behind a long time of faults and behind a short one.
const WELL: (Duration, Duration) = (Duration::from_secs(25), Duration::from_secs(8));
/// What a long time is.
const LONG: Duration = Duration::from_secs(30);

/// A run in all its parts.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it was drawn from.
    pub seed: u64,
    /// The cluster.
    pub setup: Setup,
    /// How many client machines there are.
    pub clients: u32,
    /// How many watchers there are.
    pub watchers: u32,
    /// How many processes run client-go's election at the Lease endpoint.
    pub electors: u32,
    /// The leases.
    pub leases: Vec<String>,
    /// The TTLs of sessions.
    pub ttls: Vec<Duration>,
    /// Of a thousand holders so many do not listen.
    pub zombies_per_mille: u64,
    /// Whether half of the acquires are sealed, and stores hang, answer late and are set back.
    pub seals: bool,
    /// How fast all of them live, and how densely faults come.
    pub pace: Pace,
    /// Whether the operator revokes without waiting for the holder.
    pub revoke_now: bool,
    /// The faults, in the order of their beginnings.
    pub faults: Vec<Scheduled>,
    /// How long faults come and go.
    pub safety: Duration,
    /// How long all is well behind that.
    pub well: Duration,
    /// How long no client is there at the end.
    pub quiet: Duration,
    /// Who clients are, and how their rights go on; none means that no client proves anything.
    pub rights: Option<Rights>,
    /// What the faults relax.
    pub bounds: Bounds,
}

impl Plan {
    /// The run of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let safety = Random::new(seed)
            .fork("length")
            .time(Duration::from_secs(40)..Duration::from_secs(90));
        Self::with(seed, safety)
    }

    /// The long run of a seed, at an easy pace: about an hour, in which clocks drift apart, TTLs and
    /// faults last up to a minute, and most of the time nothing happens.
    #[must_use]
    pub fn long(seed: u64) -> Self {
        let safety = Random::new(seed).fork("hours").time(HOURS.0..HOURS.1);
        Self::drawn(seed, safety, Pace::EASY)
    }

    /// The same without faults, and of the size by which the simulation's speed is measured: three
    /// nodes and ten clients.
    #[must_use]
    pub fn calm(mut self) -> Self {
        self.setup.nodes = CALM.0;
        self.setup.timing = Timing::default();
        self.clients = CALM.1;
        self.electors = 0;
        self.faults.clear();
        self.rights = None;
        self.bounds = bounds(&self.faults, &self.setup.timing);
        self
    }

    /// The run of a seed whose faults come and go for this long.
    #[must_use]
    pub fn with(seed: u64, safety: Duration) -> Self {
        Self::drawn(seed, safety, Pace::BRISK)
    }

    fn drawn(seed: u64, safety: Duration, pace: Pace) -> Self {
        let chance = Random::new(seed);
        let mut random = chance.fork("plan");
        let hangs = safety >= LONG && chance.fork("hangs").chance(pace.per_mille(HANGING));
        // Minutes are more than a brisk run has.
        let safety = safety + if hangs { HANGS.1 } else { Duration::ZERO };
        let nodes = match random.within(0..20) {
            0..=12 => 3,
            13..=15 => 5,
            16..=17 => 4,
            _ => 7,
        };
        let clients = 3 + u32::try_from(random.within(0..8)).unwrap_or_default();
        let frame = Frame {
            nodes,
            clients: clients as usize,
            from: CALM_FIRST,
            until: safety,
            pace,
            ppm: if random.chance(150) {
                PPM_BEYOND
            } else {
                PPM_MAX.cast_signed()
            },
            rollback: random.chance(300),
            // Ids can only be taken twice where there are some of them.
            joins: random.chance(300) || nodes > 3,
            hangs,
        };
        let faults = schedule(&frame, &mut chance.fork("faults"));
        let timing = timing(&mut chance.fork("heartbeats"));
        let setup = setup(nodes, timing, &mut random);
        let ttls: Vec<_> = ttls(&mut random)
            .into_iter()
            .map(|ttl| pace.of(ttl))
            .collect();
        let longest = ttls.iter().max().copied().unwrap_or_default();
        let longest = longest.max(Times::of(pace).ttl());
        Self {
            seed,
            bounds: bounds(&faults, &setup.timing),
            setup,
            clients,
            watchers: u32::try_from(random.within(0..3)).unwrap_or_default(),
            electors: electors(&mut chance.fork("electors")),
            leases: leases(&mut random),
            zombies_per_mille: random.within(0..600),
            // With half of the acquires there, a quarter of all.
            seals: chance.fork("seals").chance(500),
            pace,
            revoke_now: random.chance(300),
            faults,
            rights: rights(&mut chance.fork("rights")),
            safety,
            well: if safety < LONG { WELL.1 } else { WELL.0 },
            // Two TTLs and a second by cluster time, and then some more.
            quiet: 2 * longest + Duration::from_secs(5),
            ttls,
        }
    }
}

fn timing(random: &mut Random) -> Timing {
    let heartbeat = random.pick(&HEARTBEATS).copied().unwrap_or(50);
    Timing {
        heartbeat: Duration::from_millis(heartbeat),
        election_min: Duration::from_millis(4 * heartbeat),
        election_max: Duration::from_millis(6 * heartbeat),
        ..Timing::default()
    }
}

fn setup(nodes: usize, timing: Timing, random: &mut Random) -> Setup {
    Setup {
        nodes,
        settings: Settings::STANDARD,
        token_floor: random.chance(200).then_some(0),
        timing,
        // From the least that there is.
        wal_segment_bytes: ringfence_raft::WAL_SEGMENT_BYTES_MIN << random.within(0..2),
        // A batch takes a page at least.
        snapshot_log_bytes: 1 << random.within(13..20),
        snapshot_log_keep: random.within(0..200),
    }
}

fn ttls(random: &mut Random) -> Vec<Duration> {
    let count = random.within(1..4);
    let ttl = |_| Duration::from_millis(random.within(1_000..7_000));
    (0..count).map(ttl).collect()
}

/// In most runs there is an election, in some with one candidate: what it lost is still free when it
/// wakes.
fn electors(random: &mut Random) -> u32 {
    u32::try_from(random.within(0..5)).unwrap_or_default()
}

fn leases(random: &mut Random) -> Vec<String> {
    let count = random.within(1..5);
    let name = |number| match number % 2 {
        0 => format!("a/{number}"),
        _ => format!("b/{number}"),
    };
    (0..count).map(name).collect()
}

fn rights(random: &mut Random) -> Option<Rights> {
    let course = match random.within(0..100) {
        0..20 => return None,
        20..60 => Course::Rolling,
        _ => Course::Bound,
    };
    let principal = |text: &str| Principal::parse(text).expect("a principal as it is named");
    let mut callers = vec![
        Credential::Proven(principal("cert:cn:a")),
        Credential::Proven(principal("jwt:idp:b")),
        Credential::ClusterToken(principal("token:c")),
    ];
    callers.truncate(2 + usize::try_from(random.within(0..2)).unwrap_or_default());
    Some(Rights { callers, course })
}

/// What the faults relax, as far as the contract says so.
fn bounds(faults: &[Scheduled], timing: &Timing) -> Bounds {
    let mut bounds = Bounds {
        node_ppm: PPM_MAX,
        client_ppm: PPM_MAX,
        election_max: timing.election_max,
        round_trip: Duration::from_millis(30),
    };
    for one in faults {
        match one.fault {
            Fault::NodeRate { ppm, .. } => {
                bounds.node_ppm = bounds.node_ppm.max(ppm.unsigned_abs());
            }
            Fault::ClientRate { ppm, .. } => {
                bounds.client_ppm = bounds.client_ppm.max(ppm.unsigned_abs());
            }
            _ => {}
        }
    }
    bounds
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::faults::ROWS;

    #[test]
    fn a_seed_means_the_same_each_time() {
        for seed in 0..50 {
            assert_eq!(
                format!("{:?}", Plan::of(seed)),
                format!("{:?}", Plan::of(seed))
            );
        }
    }

    #[test]
    fn half_of_the_runs_have_the_heartbeats_of_a_node_by_default() {
        let standard = |seed: &u64| Plan::of(*seed).setup.timing == Timing::default();
        let standard = (0..1_000).filter(standard).count();
        assert!((400..600).contains(&standard), "{standard}");
    }

    #[test]
    fn every_fault_is_planned_in_the_seeds_that_are_run_by_default() {
        let rows: BTreeSet<_> = (1..=100)
            .flat_map(|seed| Plan::of(seed).faults)
            .map(|one| one.fault.row())
            .collect();
        for row in ROWS {
            assert!(rows.contains(row), "{row} is in none of them");
        }
    }

    #[test]
    fn a_node_joins_first_with_every_number_of_first_members() {
        let joins = |plan: &Plan| matches!(plan.faults.first(), Some(one) if one.at.is_zero());
        let plans = (1..=100).map(Plan::of);
        let sizes: BTreeSet<_> = plans.filter(joins).map(|plan| plan.setup.nodes).collect();
        assert_eq!(sizes, [3, 4, 5, 7].into());
    }

    #[test]
    fn a_disk_hangs_for_minutes_where_there_is_time_for_it() {
        let hangs = |plan: &Plan| plan.faults.iter().any(|one| one.fault.row() == "D11");
        assert!((1..=100).any(|seed| hangs(&Plan::of(seed))));
        assert!((1..=10).any(|seed| hangs(&Plan::long(seed))));
        let short = |seed| Plan::with(seed, Duration::from_secs(12));
        assert!((1..=100).all(|seed| !hangs(&short(seed))));
    }

    #[test]
    fn most_runs_keep_the_bound_of_clocks_and_some_do_not() {
        let beyond = |seed: &u64| !Plan::of(*seed).bounds.beliefs_are_exclusive();
        let beyond = (0..1_000).filter(beyond).count();
        assert!((10..300).contains(&beyond), "{beyond}");
    }
}
