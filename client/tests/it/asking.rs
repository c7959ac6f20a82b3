//! Only keep-alives stretch belief: no other answer tells of losses.

use std::time::Duration;

use crate::support::{
    Act, Cluster, client, eventually, is_acquire, is_keep_alive, served, session, within,
};

#[tokio::test]
async fn no_answer_but_a_keep_alives_moves_the_window() {
    let ttl = Duration::from_secs(60);
    let cluster = Cluster::new();
    let node = cluster.node().await;
    node.script(is_keep_alive, Act::Swallow, usize::MAX);
    let client = client(&[&node]).await;
    let session = session(&client, ttl).await;
    let waiting = self::session(&client, ttl).await;
    let opened = session.valid_until();

    let lease = session.acquire("db").send().await.unwrap();
    assert_eq!(session.valid_until(), opened, "by a grant");
    lease.release().await.unwrap();
    assert_eq!(session.valid_until(), opened, "by a release");

    // No caller waits for the answer, so the request is taken back.
    node.script(is_acquire, Act::HoldReply, 1);
    let acquiring = tokio::spawn(session.acquire("db").send());
    eventually("the grant", || node.holds() == 1).await;
    acquiring.abort();
    eventually("nothing is left", || cluster.model().is_quiet()).await;
    assert_eq!(session.valid_until(), opened, "by a cancel");

    let lease = session.acquire("db").send().await.unwrap();
    let next = tokio::spawn(waiting.acquire("db").wait(ttl).send());
    eventually("the waiter", || !cluster.model().queue.is_empty()).await;
    within("the hand-over", lease.transfer_to(None))
        .await
        .unwrap();
    assert_eq!(session.valid_until(), opened, "by a transfer");
    let next = within("the next grant", next).await.unwrap().unwrap();
    assert!(next.is_valid());
}

#[tokio::test]
async fn whoever_asks_all_the_time_does_not_outlive_a_revoke_in_belief() {
    let ttl = Duration::from_millis(900);
    let (cluster, _node, client) = served().await;
    let session = session(&client, ttl).await;
    let revoked = session.acquire("db").send().await.unwrap();

    cluster.change(|model| model.revoke("db"));
    // From then on the cluster may grant it to another client.
    let end = client.now() + ttl;
    while client.now() < end {
        // Refused only on a machine so slow that the session is lost, and with it the lease.
        if let Ok(other) = session.acquire("other").send().await {
            other.release().await.ok();
        }
    }

    assert!(!revoked.is_valid(), "believes in what was revoked");
}
