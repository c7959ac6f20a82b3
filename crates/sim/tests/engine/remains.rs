//! A run leaves nothing behind: a campaign of hours would end for lack of memory.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_client::SessionOptions;
use ringfence_sim::client::SimClient;
use ringfence_sim::listener::Deaf;
use ringfence_sim::observe::Recorder;
use ringfence_sim::plan::Plan;
use ringfence_sim::play;
use ringfence_sim::runner;
use ringfence_sim::setup::Setup;
use ringfence_sim::trace::Trace;
use ringfence_sim::world::World;

/// What is still there of a run when it is over.
fn left<F, R>(scenario: F) -> Vec<String>
where
    F: FnOnce(World) -> R,
    R: Future<Output = ()>,
{
    let remains = Arc::new(Mutex::new(None));
    let told = remains.clone();
    let run = |world: World| async move {
        scenario(world.clone()).await;
        *told.lock().unwrap() = Some(world.remains());
    };
    runner::run(1, Setup::default(), Arc::new(Deaf), Trace::new(false), run);
    let remains = remains.lock().unwrap().take().unwrap();
    remains()
}

async fn lead(world: World) {
    let recorder = Recorder::new(Plan::of(1).bounds);
    let client = SimClient::new(&world, 1, &recorder);
    let host = client.start().unwrap();
    let (own, process) = (client.clone(), host.clone());
    let holding = host.spawn(async move {
        let connected = own.connect(&process).await.unwrap();
        let options = SessionOptions {
            ttl: Duration::from_secs(2),
            identity: "c1".to_owned(),
        };
        let session = connected.open_session(options).await.unwrap();
        let lease = session.acquire("a").send().await.unwrap();
        std::future::pending::<()>().await;
        drop((session, lease));
    });
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!holding.is_finished());
    client.kill();
}

#[test]
fn a_cluster_leaves_nothing_behind() {
    let scenario = |world: World| async move {
        world.form().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    };
    assert_eq!(left(scenario), Vec::<String>::new());
}

#[test]
fn a_holder_that_is_killed_leaves_nothing_behind() {
    let scenario = |world: World| async move {
        world.form().await;
        lead(world).await;
    };
    assert_eq!(left(scenario), Vec::<String>::new());
}

#[test]
fn a_run_with_faults_leaves_nothing_behind() {
    let played = play::play(&Plan::with(1, Duration::from_secs(12)), Trace::new(false));
    assert!(played.broken.is_none());
    assert_eq!(played.recorder.holders(), 1);
}
