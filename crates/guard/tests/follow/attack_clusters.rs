//! A follower that is bound to no cluster and hears of another one for a moment.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use ringfence_guard::follow::{FloorFollower, News, Unheard};
use ringfence_guard::{ClusterId, Guard, LeaseName};

use crate::support::{fence, floor, impatient};

const OURS: ClusterId = ClusterId::new([1; 16]);
const OTHER: ClusterId = ClusterId::new([2; 16]);

fn hears(follower: &FloorFollower, cluster: ClusterId, floors: &[&str]) {
    follower.tell(News::Anew);
    follower.tell(News::Cluster(cluster));
    for text in floors {
        follower.tell(floor(text));
    }
    follower.tell(News::Reached);
}

/// I23: no guard refuses the current grant once it has advanced.
#[tokio::test]
async fn the_current_grant_is_not_refused_for_ever_after_a_word_of_another_cluster() {
    let follower = FloorFollower::new(impatient(Unheard::Plain));
    hears(&follower, OURS, &["db#8"]);
    follower.check(&fence("db#8")).await.unwrap();
    // An address that points elsewhere for a moment, or the old nodes behind the same name.
    hears(&follower, OTHER, &[]);
    // And back. The cluster says that #8 is the floor, and it is the grant in force.
    hears(&follower, OURS, &["db#8"]);
    let checked = follower.check(&fence("db#8")).await;
    let ends = checked.as_ref().err().map(|why| {
        why.refused()
            .is_some_and(|refused| refused.ends_the_grant())
    });
    assert!(
        checked.is_ok(),
        "the newest grant of our cluster is refused, finally: {ends:?}, {checked:?}, floor {:?}",
        follower.floor(&fence("db#8").name)
    );
}

/// The same word raises the mark in the store to a token that no cluster has granted.
#[tokio::test]
async fn a_store_that_is_fed_is_not_raised_to_a_token_that_was_never_granted() {
    let follower = FloorFollower::new(impatient(Unheard::Plain));
    let guard = Arc::new(Guard::new(LeaseName::parse("db").unwrap()));
    let (fed, of) = (guard.clone(), follower.clone());
    let task = tokio::spawn(async move {
        let name = fed.name().clone();
        let raise = |floor| {
            fed.advance_to(floor);
            ready(Ok::<(), Infallible>(()))
        };
        of.feed(&name, raise).await
    });
    hears(&follower, OURS, &["db#8"]);
    guard.admit(&fence("db#8")).unwrap();
    hears(&follower, OTHER, &[]);
    tokio::time::sleep(Duration::from_millis(50)).await;
    hears(&follower, OURS, &["db#8"]);
    task.abort();
    let admitted = guard.admit(&fence("db#8"));
    assert!(
        admitted.is_ok(),
        "the store refuses the holder of our cluster: {admitted:?}"
    );
}
