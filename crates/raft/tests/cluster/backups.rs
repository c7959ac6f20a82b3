//! What a backup shows, whichever node makes it.

use ringfence_core::Millis;

use crate::harness::{Cluster, acquired, open};

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_follower_has_all_that_was_acknowledged_before_it() {
    let cluster = Cluster::formed(&["n1", "n2", "n3"]).await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let follower = cluster.nodes[&cluster.a_follower().await].clone();
    let session = open(&leader, 1, Millis::from_secs(300)).await;
    for n in 1..=100 {
        let token = acquired(&leader, session, n, &format!("lease/{n}")).await;
        let state = follower.backup().await.unwrap();
        let newest = state.summary().last_token;
        assert!(
            newest >= token,
            "grant {n}: token {token} is not in it, {newest} is"
        );
    }
}
