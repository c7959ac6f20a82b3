//! A follower that is bound to clusters.

use ringfence_guard::ClusterId;
use ringfence_guard::follow::{Ended, FollowError, News, Options, Unheard};

use crate::support::{Followed, fence, floor, impatient};

const OURS: ClusterId = ClusterId::new([1; 16]);
const OTHER: ClusterId = ClusterId::new([2; 16]);

fn bound(unheard: Unheard) -> Options {
    Options {
        clusters: vec![OURS],
        ..impatient(unheard)
    }
}

#[tokio::test]
async fn floors_of_another_cluster_are_not_taken() {
    for unheard in [Unheard::Plain, Unheard::Refuse] {
        let mut followed = Followed::start(bound(unheard));
        let ours = [News::Cluster(OURS), floor("db#8"), News::Reached];
        followed.tell(ours).await;
        assert!(followed.follower.is_live());
        followed
            .tell([News::Anew, News::Cluster(OTHER), floor("db#900")])
            .await;
        let ended = followed.ended().await;
        assert!(
            matches!(ended, Ended::OtherCluster(other) if other == OTHER),
            "{ended:?}"
        );
        assert!(!followed.follower.is_live());
        // The holder at our cluster goes on, and the floor of the other cluster shuts no holder out.
        followed.follower.check(&fence("db#8")).await.unwrap();
        match followed.follower.check(&fence("db#9")).await {
            Ok(()) => assert_eq!(unheard, Unheard::Plain),
            Err(refused) => assert_eq!(refused.reason(), "NO_FLOORS"),
        }
    }
}

#[tokio::test]
async fn a_stream_that_names_no_cluster_is_not_taken() {
    let followed = Followed::start(bound(Unheard::Refuse));
    followed.tell([floor("db#8"), News::Reached]).await;
    assert!(!followed.follower.is_live());
    assert_eq!(followed.follower.names(), (0, false));
}

#[tokio::test]
async fn each_stream_has_to_name_its_cluster() {
    let mut followed = Followed::start(bound(Unheard::Refuse));
    followed
        .tell([News::Cluster(OURS), floor("db#8"), News::Reached])
        .await;
    assert!(matches!(followed.end(None).await, Ended::Over));
    followed.connect();
    followed.tell([floor("db#900"), News::Reached]).await;
    assert!(!followed.follower.is_live());
    followed.tell([News::Cluster(OURS), News::Reached]).await;
    assert!(followed.follower.is_live());
    followed.follower.check(&fence("db#8")).await.unwrap();
}

#[tokio::test]
async fn a_caller_that_names_another_cluster_is_refused() {
    let followed = Followed::start(bound(Unheard::Refuse));
    followed
        .tell([News::Cluster(OURS), floor("db#8"), News::Reached])
        .await;
    let follower = &followed.follower;
    follower.check_of(OURS, &fence("db#8")).await.unwrap();
    let refused = follower.check_of(OTHER, &fence("db#8")).await.unwrap_err();
    assert!(
        matches!(&refused, FollowError::OtherCluster { cluster, .. } if *cluster == OTHER),
        "{refused}"
    );
    assert!(!refused.is_retryable() && refused.refused().is_none());
}

#[tokio::test]
async fn a_follower_that_is_bound_to_nothing_takes_any_cluster() {
    let followed = Followed::start(impatient(Unheard::Refuse));
    let told = [News::Cluster(OURS), floor("db#8"), News::Reached];
    followed.tell(told).await;
    let told = [
        News::Anew,
        News::Cluster(OTHER),
        floor("db#9"),
        News::Reached,
    ];
    followed.tell(told).await;
    assert!(followed.follower.is_live());
    followed
        .follower
        .check_of(OURS, &fence("db#9"))
        .await
        .unwrap();
}
