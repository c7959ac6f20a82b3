//! What is remembered, and how many wait.

use std::time::Duration;

use ringfence_guard::follow::{FollowError, News, Options, Unheard};

use crate::support::{Followed, fence, floor, impatient, now, patient, settle, token};

#[tokio::test]
async fn names_beyond_the_limit_are_not_kept_and_count_as_unheard() {
    for unheard in [Unheard::Plain, Unheard::Refuse] {
        let followed = Followed::start(Options {
            names_max: 2,
            ..impatient(unheard)
        });
        let told = (0..1_000).map(|at| floor(&format!("db/{at}#{}", at + 1)));
        followed.tell(told.chain([News::Reached])).await;
        assert_eq!(followed.follower.names(), (2, true));

        // Those that are known are judged as ever.
        followed.tell([floor("db/1#5000")]).await;
        assert_eq!(
            followed.follower.floor(&fence("db/1#1").name),
            Some(token(5000))
        );
        let stale = followed.follower.check(&fence("db/1#2")).await;
        assert_eq!(stale.unwrap_err().reason(), "STALE_TOKEN");
        let forged = followed.follower.check(&fence("db/1#5001")).await;
        assert_eq!(forged.unwrap_err().reason(), "UNKNOWN_TOKEN");

        match followed.follower.check(&fence("db/500#501")).await {
            Ok(()) => assert_eq!(unheard, Unheard::Plain),
            Err(refused) => {
                assert_eq!(unheard, Unheard::Refuse);
                assert!(matches!(refused, FollowError::NoFloors { .. }), "{refused}");
            }
        }
    }
}

#[tokio::test]
async fn one_waiter_too_many_is_refused_at_once_and_the_true_holder_is_not() {
    let followed = Followed::start(Options {
        waiters_max: 10,
        patience: Duration::from_secs(2),
        ..patient(Unheard::Plain)
    });
    followed.tell([floor("db#8"), News::Reached]).await;
    let forged = (0..10).map(|at| {
        let follower = followed.follower.clone();
        let fence = fence(&format!("db#{}", 100 + at));
        tokio::spawn(async move { follower.check(&fence).await })
    });
    let forged: Vec<_> = forged.collect();
    settle().await;

    let crowded = now(followed.follower.check(&fence("db#9"))).unwrap();
    assert_eq!(crowded, Err(FollowError::Crowded { max: 10 }));
    assert_eq!(now(followed.follower.check(&fence("db#8"))), Some(Ok(())));

    for one in forged {
        assert_eq!(one.await.unwrap().unwrap_err().reason(), "UNKNOWN_TOKEN");
    }
    // Their places are free again.
    let unknown = followed.follower.check(&fence("db#9")).await.unwrap_err();
    assert_eq!(unknown.reason(), "UNKNOWN_TOKEN");
}
