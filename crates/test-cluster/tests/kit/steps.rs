use std::time::Duration;

use ringfence_test_cluster::TestCluster;

#[tokio::test(start_paused = true)]
async fn a_paused_holder_has_lost_its_lease_when_it_goes_on() {
    let world = TestCluster::new(1);
    let alice = world.client("alice").await;
    let lease = alice.lock("bank/interest").await.unwrap();
    world.pause(&alice);
    tokio::time::sleep(Duration::from_secs(20)).await; // the TTL is 15 s
    world.resume(&alice);
    assert!(!lease.is_valid(), "{}", world.story());
}
