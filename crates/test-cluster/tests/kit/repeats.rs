//! Equal seeds make equal stories.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_client::{Elector, Leading};
use ringfence_test_cluster::{TestCluster, explore};

/// Electors, whose campaigns draw more than a plain lock does, under all faults.
async fn electors_in_trouble(world: &TestCluster) {
    let table = world.guarded_store("jobs/nightly", 0_u64);
    for name in ["alice", "bob", "carol"] {
        let client = world.client(name).await;
        let table = table.connect(&client);
        let elector = Elector::new(&client);
        world.spawn(&client, async move {
            let campaign = elector.campaign("jobs/nightly");
            let leading = |leading: Leading| {
                let table = table.clone();
                async move {
                    let fence = leading.fence();
                    if table.advance(&fence).await.is_err() {
                        return;
                    }
                    loop {
                        let next = table.read().await + 1;
                        if table.write(&fence, next).await.is_err() {
                            return;
                        }
                        tokio::time::sleep(Duration::from_millis(300)).await;
                    }
                }
            };
            campaign.run(leading).await.ok();
        });
    }
    world.trouble(Duration::from_secs(60)).await;
}

fn story_of(seed: u64) -> String {
    let story = Arc::new(Mutex::new(String::new()));
    let passed = explore([seed], |world| {
        let story = story.clone();
        async move {
            electors_in_trouble(&world).await;
            world.assert_no_stale_write();
            *story.lock().unwrap() = world.story();
        }
    });
    passed.unwrap();
    story.lock().unwrap().clone()
}

#[test]
fn equal_seeds_make_equal_stories_and_others_make_others() {
    let stories: Vec<String> = (0..8).map(story_of).collect();
    for (seed, story) in (0..).zip(&stories) {
        assert!(story.lines().count() > 50, "nothing happened:\n{story}");
        assert_eq!(story_of(seed), *story, "seed {seed} does not repeat");
    }
    assert_ne!(stories[0], stories[1]);
}

#[test]
fn a_finding_is_found_again_by_its_seed() {
    let scenario = |world: TestCluster| async move {
        let alice = world.client("alice").await;
        let lease = alice.lock("a").await.unwrap();
        world.kill_leader();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(lease.token().get() > 1, "token {}", lease.token());
    };
    let found = explore(5..9, scenario).unwrap_err();
    assert_eq!((found.seed, found.failure.as_str()), (5, "token 1"));
    assert_eq!(explore([5], scenario).unwrap_err(), found);
    assert!(format!("{found:?}").contains("alice is granted a with token 1"));
}

#[test]
#[should_panic = "outside of a paused clock"]
fn a_world_in_real_time_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime
        .unwrap()
        .block_on(async { drop(TestCluster::new(1)) });
}

#[test]
fn a_panic_of_a_process_fails_the_scenario() {
    let found = explore(0..3, |world| async move {
        let alice = world.client("alice").await;
        world.spawn(&alice, async { panic!("no balance") });
        tokio::time::sleep(Duration::from_secs(1)).await;
    });
    let found = found.unwrap_err();
    assert_eq!(found.failure, "alice panicked: no balance");
}
