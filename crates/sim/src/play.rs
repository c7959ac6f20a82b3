//! The run of a seed: faults, then peace, then silence, and all promises on the way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringfence_core::LeaseName;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::callers::{Caller, Loot};
use crate::census;
use crate::checked::{self, Checked};
use crate::client::SimClient;
use crate::faults::Stage;
use crate::guards::Store;
use crate::observe::{Counts, Observation, Phase, Recorder, Violation};
use crate::plan::Plan;
use crate::runner;
use crate::trace::Trace;
use crate::workload::administrator::{Administrator, Course};
use crate::workload::election::Election;
use crate::workload::object_watcher::ObjectWatcher;
use crate::workload::operator::Operator;
use crate::workload::sealing::STORES;
use crate::workload::thief::Thief;
use crate::workload::watcher::Watcher;
use crate::workload::{Work, session};
use crate::world::World;

/// The number of the thief among clients.
const THIEF: u32 = 3_000;

/// What a run brought.
pub struct Played {
    /// How much time was simulated.
    pub simulated: Duration,
    /// What was counted.
    pub counts: Counts,
    /// How often a task was let run: what the run costs.
    pub turns: u64,
    /// What the checkers looked at; nothing if a promise was broken.
    pub checked: Checked,
    /// A number over everything that happened.
    pub hash: u64,
    /// The promise that was broken, if one was, with the newest observations.
    pub broken: Option<(Violation, String)>,
    /// What was seen, for the checkers.
    pub recorder: Recorder,
}

/// Runs a seed and says what became of it.
#[must_use]
pub fn scenario(seed: u64, trace: Trace) -> Verdict {
    verdict(&Plan::of(seed), trace)
}

/// Runs a seed without its faults, see [`Plan::calm`].
#[must_use]
pub fn calm(seed: u64, trace: Trace) -> Verdict {
    verdict(&Plan::of(seed).calm(), trace)
}

/// Runs a seed at an easy pace for a long time and without faults, see [`Plan::calm`].
#[must_use]
pub fn calm_long(seed: u64, trace: Trace) -> Verdict {
    verdict(&Plan::long(seed).calm(), trace)
}

/// Runs a seed at an easy pace for a long time, see [`Plan::long`].
#[must_use]
pub fn long(seed: u64, trace: Trace) -> Verdict {
    verdict(&Plan::long(seed), trace)
}

fn verdict(plan: &Plan, trace: Trace) -> Verdict {
    let played = play(plan, trace);
    let counts = named(&played);
    let broken = played
        .broken
        .map(|(violation, newest)| format!("{violation}\n{newest}"));
    Verdict {
        simulated: played.simulated,
        counts,
        hash: played.hash,
        broken,
    }
}

/// Runs a plan.
#[must_use]
pub fn play(plan: &Plan, trace: Trace) -> Played {
    let recorder = Recorder::new(plan.bounds);
    let (own, drawn) = (recorder.clone(), plan.clone());
    let plan = plan.clone();
    let (seed, setup) = (plan.seed, plan.setup.clone());
    let listener = Arc::new(recorder.clone());
    let report = runner::run(seed, setup, listener, trace, move |world| async move {
        // Sets the recorder's time to the world's.
        let _begun = own.now();
        let whole = run(&world, &plan, &own);
        let verdict = tokio::select! {
            biased;
            violation = own.broken() => Err(violation),
            verdict = whole => verdict,
        };
        verdict.and_then(|()| own.end())
    });
    let checked = report
        .value
        .and_then(|()| checked::check(&drawn, &recorder, report.simulated));
    let looked_at = checked.as_ref().copied().unwrap_or_default();
    let broken = checked.err();
    Played {
        simulated: report.simulated,
        counts: recorder.counts(),
        turns: report.turns,
        checked: looked_at,
        hash: report.hash ^ recorder.hash(),
        broken: broken.map(|violation| (violation, recorder.newest())),
        recorder,
    }
}

async fn run(world: &World, plan: &Plan, recorder: &Recorder) -> Result<(), Violation> {
    recorder.see(Observation::Phase(Phase::Safety));
    world.form().await;
    let names: Vec<LeaseName> = plan
        .leases
        .iter()
        .map(|lease| LeaseName::parse(lease).expect("plans name leases as they are named"))
        .collect();
    let each = if plan.seals { STORES } else { 1 };
    let stores = |name| (0..each).map(move |number| Store::new(world, name, number, recorder));
    let stores: BTreeMap<String, Vec<Store>> = names
        .iter()
        .map(|name| (name.to_string(), stores(name).collect()))
        .collect();
    let work = Work::new(stores, plan.ttls.clone(), plan.zombies_per_mille, plan.pace);
    let work = Arc::new(work);
    let loot = Loot::default();
    let clients = (1..=plan.clients).map(|number| {
        let caller = Caller {
            credential: plan.rights.as_ref().and_then(|all| all.of_client(number)),
            loot: Some(loot.clone()),
            hostile: false,
        };
        SimClient::called(world, number, recorder, caller)
    });
    let clients: Vec<SimClient> = clients.collect();
    let administrator = plan.rights.as_ref();
    let administrator = administrator.map(|rights| Administrator::new(world, rights));
    let operator = Operator::new(world, recorder).under(administrator.as_ref());
    let stage = Stage::new(world, clients.clone(), &work, &operator, recorder);
    // Before the clients write anything.
    stage.begin(&plan.faults).await;
    let mut ruled = JoinSet::new();
    let mut robbed = JoinSet::new();
    if let (Some(rights), Some(administrator)) = (&plan.rights, administrator) {
        if !administrator.begin().await {
            return Err(Violation::of("rights", "no first rules could be made"));
        }
        let pace = plan.pace;
        ruled.spawn(async move { administrator.govern(pace).await });
        if let Some(credential) = rights.of_client(THIEF) {
            let principal = credential.principal().clone();
            let caller = Caller {
                credential: Some(credential),
                loot: None,
                hostile: true,
            };
            let machine = SimClient::called(world, THIEF, recorder, caller);
            let thief = Thief::new(&machine, &loot, &principal, rights.course);
            robbed.spawn(thief.steal(pace));
        }
    }
    clients
        .iter()
        .for_each(|client| session::begin(client, &work));

    let mut beside = JoinSet::new();
    let mut election = JoinSet::new();
    if plan.electors > 0 {
        let of = Election::new(world, plan.electors, plan.pace, recorder);
        election.spawn(of.disturb(plan.pace));
        beside.spawn(ObjectWatcher::new(world, recorder).watch(plan.pace));
    }
    for number in 1..=plan.watchers {
        beside.spawn(Watcher::new(world, number, "", recorder).watch());
    }
    beside.spawn(census::watch(world.clone(), recorder.clone(), plan.pace));
    let interfering = operator.clone();
    let (revoke_now, pace) = (plan.revoke_now, plan.pace);
    beside.spawn(async move { interfering.interfere(names, revoke_now, pace).await });

    let until = plan.safety.saturating_sub(world.now());
    let _in_time = timeout(until, async {
        stage.disturb(&plan.faults).await;
        std::future::pending::<()>().await;
    })
    .await;
    stage.heal().await?;

    recorder.see(Observation::Phase(Phase::Liveness));
    let mut probing = JoinSet::new();
    probing.spawn(async move { operator.probe().await });
    sleep(Duration::from_secs(5)).await;
    probing.abort_all();
    sleep(plan.well).await;

    work.stop();
    if plan
        .rights
        .as_ref()
        .is_some_and(|rights| rights.course == Course::Rolling)
    {
        robbed.abort_all();
    }
    election.shutdown().await;
    recorder.see(Observation::Phase(Phase::Quiet));
    for client in &clients {
        client.kill();
    }
    sleep(plan.quiet).await;
    recorder.see(Observation::Remains(census::remains(world).await));
    beside.abort_all();
    ruled.abort_all();
    robbed.abort_all();
    Ok(())
}

fn named(played: &Played) -> BTreeMap<String, u64> {
    let counts = &played.counts;
    let mut named: BTreeMap<String, u64> = [
        ("entries", counts.entries),
        ("asked", counts.asked),
        ("answered", counts.answered),
        ("unknown", counts.unknown),
        ("not done", counts.not_done),
        ("grants", counts.grants),
        ("expiries", counts.expiries),
        ("leaders", counts.leaders),
        ("snapshots", counts.snapshots),
        ("admitted", counts.admitted),
        ("refused", counts.refused),
        ("beliefs", counts.beliefs),
        ("sealed", counts.sealed),
        ("held unsealed", counts.held_unsealed),
        ("stores restored", counts.stores_restored),
        ("turns", played.turns),
        ("unchecked seconds", played.checked.unchecked.as_secs()),
        ("verdicts partial", played.checked.partial),
        ("verdicts unknown", played.checked.unknown),
    ]
    .into_iter()
    .map(|(name, count)| (name.to_owned(), count))
    .collect();
    for (row, count) in &counts.faults {
        named.insert(format!("fault {row}"), *count);
    }
    for (row, count) in &counts.took {
        named.insert(format!("took {row}"), *count);
    }
    for (case, count) in &counts.cases {
        named.insert(format!("case: {case}"), *count);
    }
    named
}

/// What became of one seed.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// How much time was simulated.
    pub simulated: Duration,
    /// What happened how often: operations, faults by kind, changes of leader, ends by time.
    pub counts: BTreeMap<String, u64>,
    /// A number over the trace: the same for every run of the seed.
    pub hash: u64,
    /// Which promise was broken, and how.
    pub broken: Option<String>,
}
