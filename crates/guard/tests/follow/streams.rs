//! Streams that are late, silent, broken, or begin again.

use std::time::Duration;

use ringfence_guard::follow::{Ended, FollowError, News, Options, Unheard};

use crate::support::{Followed, LONG, fence, floor, impatient, now, patient, settle};

#[tokio::test]
async fn before_everything_was_told_a_plain_follower_lets_pass_what_is_not_below_a_floor() {
    let followed = Followed::start(patient(Unheard::Plain));
    followed.tell([floor("db#8")]).await;
    assert!(!followed.follower.is_live());

    // Not even a wait: the store's own mark decides.
    assert_eq!(now(followed.follower.check(&fence("db#9"))), Some(Ok(())));
    assert_eq!(now(followed.follower.check(&fence("new#1"))), Some(Ok(())));
    let stale = now(followed.follower.check(&fence("db#7"))).unwrap();
    assert_eq!(stale.unwrap_err().reason(), "STALE_TOKEN");
}

#[tokio::test]
async fn before_everything_was_told_a_refusing_follower_waits_for_it() {
    let followed = Followed::start(impatient(Unheard::Refuse));
    let refused = followed.follower.check(&fence("db#9")).await.unwrap_err();
    assert!(matches!(refused, FollowError::NoFloors { .. }), "{refused}");
    assert!(refused.is_retryable());

    let followed = Followed::start(patient(Unheard::Refuse));
    let follower = followed.follower.clone();
    let waiting = tokio::spawn(async move { follower.check(&fence("db#9")).await });
    settle().await;
    followed.tell([floor("db#9"), News::Reached]).await;
    waiting.await.unwrap().unwrap();
}

/// Waits until the stream is live, or is not.
async fn until_live(followed: &Followed, live: bool) {
    let turn = async {
        while followed.follower.is_live() != live {
            if live {
                followed.tell([News::Reached]).await;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LONG, turn).await.unwrap();
}

#[tokio::test]
async fn a_silent_stream_is_not_live_until_it_speaks_again() {
    for unheard in [Unheard::Plain, Unheard::Refuse] {
        let followed = Followed::start(Options {
            silence: Duration::from_millis(100),
            ..impatient(unheard)
        });
        followed.tell([floor("db#8")]).await;
        until_live(&followed, true).await;

        until_live(&followed, false).await;

        followed.follower.check(&fence("db#8")).await.unwrap();
        let stale = followed.follower.check(&fence("db#7")).await;
        assert_eq!(stale.unwrap_err().reason(), "STALE_TOKEN");
        match followed.follower.check(&fence("db#9")).await {
            Ok(()) => assert_eq!(unheard, Unheard::Plain),
            Err(refused) => {
                assert_eq!(unheard, Unheard::Refuse);
                assert!(matches!(refused, FollowError::NoFloors { .. }), "{refused}");
            }
        }

        until_live(&followed, true).await;
    }
}

#[tokio::test]
async fn who_waits_when_the_stream_breaks_is_judged_without_it() {
    let mut followed = Followed::start(patient(Unheard::Plain));
    followed.tell([floor("db#8"), News::Reached]).await;
    let follower = followed.follower.clone();
    let waiting = tokio::spawn(async move { follower.check(&fence("db#9")).await });
    settle().await;
    assert!(!waiting.is_finished());

    let ended = followed.end(Some("cut")).await;

    assert!(matches!(ended, Ended::Failed("cut")), "{ended:?}");
    assert!(!followed.follower.is_live());
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn floors_survive_the_end_of_a_stream_and_never_go_back_on_the_next() {
    let mut followed = Followed::start(impatient(Unheard::Refuse));
    followed.tell([floor("db#8"), News::Reached]).await;
    assert!(matches!(followed.end(None).await, Ended::Over));
    assert!(!followed.follower.is_live());
    let stale = followed.follower.check(&fence("db#7")).await;
    assert_eq!(stale.unwrap_err().reason(), "STALE_TOKEN");

    // The next node lags: it tells an older floor first.
    followed.connect();
    followed.tell([floor("db#6"), News::Reached]).await;
    assert!(followed.follower.is_live());
    let stale = followed.follower.check(&fence("db#7")).await;
    assert_eq!(stale.unwrap_err().reason(), "STALE_TOKEN");
    followed.follower.check(&fence("db#8")).await.unwrap();
}

#[tokio::test]
async fn a_stream_that_begins_anew_behind_a_compaction_is_live_when_all_was_told() {
    let followed = Followed::start(Options {
        patience: Duration::from_secs(2),
        ..patient(Unheard::Refuse)
    });
    followed
        .tell([floor("a#8"), floor("b#9"), News::Reached])
        .await;

    followed.tell([News::Anew, floor("a#18")]).await;
    assert!(!followed.follower.is_live());
    // What is known stays true: the old holders are refused, the known one passes.
    let stale = followed.follower.check(&fence("a#8")).await;
    assert_eq!(stale.unwrap_err().reason(), "STALE_TOKEN");
    followed.follower.check(&fence("b#9")).await.unwrap();
    let follower = followed.follower.clone();
    let waiting = tokio::spawn(async move { follower.check(&fence("b#19")).await });
    settle().await;

    followed.tell([floor("b#19"), News::Reached]).await;

    waiting.await.unwrap().unwrap();
    assert!(followed.follower.is_live());
    let unknown = followed.follower.check(&fence("b#20")).await.unwrap_err();
    assert_eq!(unknown.reason(), "UNKNOWN_TOKEN");
}

#[tokio::test]
async fn a_dropped_stream_is_not_live() {
    let mut followed = Followed::start(patient(Unheard::Plain));
    followed.tell([News::Reached]).await;
    assert!(followed.follower.is_live());
    followed.abort().await;
    assert!(!followed.follower.is_live());
}
