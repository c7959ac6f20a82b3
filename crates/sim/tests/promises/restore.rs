//! A cluster that is lost as a whole, and restored from a backup while its old clients live on.

use std::time::Duration;

use ringfence_core::Millis;
use ringfence_sim::faults::{Fault, Scheduled, Who};
use ringfence_sim::play::{Played, play};
use ringfence_sim::properties::PPM_MAX;
use ringfence_sim::trace::Trace;

use super::plan;

const SECOND: Duration = Duration::from_secs(1);
/// When the backup is taken.
const BACKUP: Duration = Duration::from_secs(5);
/// `max-ttl` of the cluster, and the TTL of its sessions.
const TTL: Duration = Duration::from_secs(10);
/// `max-ttl` and a minute.
const QUIET: Duration = Duration::from_secs(70);

/// Clients that fight for one lease. Most of them cannot reach the restored cluster until their windows
/// are over, so that they do not hear from it that their grants have ended.
fn restored(seed: u64, fault: impl Fn(Duration) -> Fault) -> Played {
    let mut plan = plan(seed, 110);
    plan.setup.nodes = 3;
    plan.setup.token_floor = None;
    plan.setup.settings.ttl_max = Millis(TTL.as_millis() as u64);
    plan.clients = 4;
    plan.leases.truncate(1);
    plan.ttls = vec![TTL];
    plan.quiet = 25 * SECOND;
    plan.rights = None;
    plan.revoke_now = false;
    plan.bounds.node_ppm = PPM_MAX;
    plan.bounds.client_ppm = PPM_MAX;
    let age = Duration::from_millis(500 + 700 * (seed % 10));
    let fault = fault(age);
    let begins = match fault {
        Fault::Restore { .. } => BACKUP,
        _ => BACKUP + age,
    };
    let lost = BACKUP + age;
    let mut faults = vec![Scheduled {
        at: begins,
        lasts: Duration::from_millis(200),
        fault,
    }];
    faults.extend((0..3).map(|client| Scheduled {
        at: lost - SECOND / 4,
        lasts: TTL + 4 * SECOND,
        fault: Fault::CutClient { client },
    }));
    faults.sort_by_key(|one| one.at);
    plan.faults = faults;
    play(&plan, Trace::new(false))
}

fn keeps_every_promise(row: &str, fault: impl Fn(Duration) -> Fault) {
    for seed in 1..=3 {
        let played = restored(seed, &fault);
        if let Some((violation, newest)) = played.broken {
            panic!("seed {seed}: {violation}\n{newest}");
        }
        // A client was granted a lease in the restored cluster.
        assert_eq!(played.counts.took.get(row), Some(&1), "seed {seed}");
        let simulated = played.simulated;
        assert!(simulated > BACKUP + QUIET, "seed {seed}: {simulated:?}");
    }
}

#[test]
fn a_restored_cluster_repeats_no_token_and_waits_for_old_holders() {
    keeps_every_promise("R3", |age| Fault::Restore { age });
}

#[test]
fn so_does_one_that_goes_on_from_a_survivor() {
    keeps_every_promise("R4", |_| Fault::Recover(Who::Behind(1)));
}
