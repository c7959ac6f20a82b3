//! What is remembered, and how many wait.

use std::time::Duration;

use ringfence_guard::follow::{FollowError, News, Options, Unheard};

use crate::support::{Followed, fence, floor, impatient, now, patient, settle};

#[tokio::test]
async fn the_names_granted_last_are_known_and_new_ones_become_so() {
    for unheard in [Unheard::Plain, Unheard::Refuse] {
        let followed = Followed::start(Options {
            names_max: 2,
            ..impatient(unheard)
        });
        let told = (0..1_000).map(|at| floor(&format!("db/{at}#{}", at + 1)));
        followed.tell(told.chain([News::Reached])).await;
        assert_eq!(followed.follower.names(), (2, true));

        // Those that are known are judged as ever.
        let stale = followed.follower.check(&fence("db/999#2")).await;
        assert_eq!(stale.unwrap_err().reason(), "STALE_TOKEN");
        let forged = followed.follower.check(&fence("db/999#5001")).await;
        assert_eq!(forged.unwrap_err().reason(), "UNKNOWN_TOKEN");

        // Forgotten ones are as configured, at once.
        match now(followed.follower.check(&fence("db/500#501"))).unwrap() {
            Ok(()) => assert_eq!(unheard, Unheard::Plain),
            Err(refused) => {
                assert_eq!(unheard, Unheard::Refuse);
                assert_eq!(refused.reason(), "FORGOTTEN_FLOOR", "{refused}");
            }
        }

        // A new name, and a forgotten one that is granted again, are known from then on.
        for shown in ["new#5000", "db/500#5001"] {
            let unknown = followed.follower.check(&fence(shown)).await.unwrap_err();
            assert_eq!(unknown.reason(), "UNKNOWN_TOKEN");
            followed.tell([floor(shown)]).await;
            assert_eq!(followed.follower.check(&fence(shown)).await, Ok(()));
        }
        assert_eq!(followed.follower.names(), (2, true));
    }
}

#[tokio::test]
async fn a_wait_for_a_name_that_is_forgotten_is_answered() {
    let followed = Followed::start(Options {
        names_max: 1,
        ..patient(Unheard::Refuse)
    });
    followed.tell([floor("db#8"), News::Reached]).await;
    let follower = followed.follower.clone();
    let waits = tokio::spawn(async move { follower.check(&fence("db#9")).await });
    settle().await;
    // As long as the stream may still tell of it, it waits.
    followed.tell([floor("other#20")]).await;
    assert!(!waits.is_finished());
    followed.tell([floor("another#21")]).await;
    let refused = waits.await.unwrap().unwrap_err();
    assert_eq!(refused.reason(), "FORGOTTEN_FLOOR");
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
