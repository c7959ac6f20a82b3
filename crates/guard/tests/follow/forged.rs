//! Tokens below, at and above the floor.

use std::sync::Arc;

use ringfence_guard::follow::{FollowError, News, Unheard};
use ringfence_guard::{Guard, Refused};

use crate::support::{Followed, fence, floor, impatient, now, patient, settle, token};

#[tokio::test]
async fn a_stale_holder_is_refused_before_the_new_one_writes() {
    let followed = Followed::start(patient(Unheard::Plain));
    let guard = Guard::new(fence("db#8").name);
    followed.tell([floor("db#8"), News::Reached]).await;
    followed
        .follower
        .admit(&guard, &fence("db#8"))
        .await
        .unwrap();

    followed.tell([floor("db#9")]).await;

    let refused = followed.follower.admit(&guard, &fence("db#8")).await;
    let refused = refused.unwrap_err();
    let expected = Refused::StaleToken {
        name: fence("db#8").name,
        offered: token(8),
        mark: token(9),
    };
    assert_eq!(refused, FollowError::Refused(expected));
    assert!(!refused.is_retryable());
    assert_eq!(guard.mark(), Some(token(8)), "no client has shown 9 yet");
    followed
        .follower
        .admit(&guard, &fence("db#9"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_fed_guard_refuses_the_old_holder_by_its_own_mark() {
    let followed = Followed::start(patient(Unheard::Plain));
    let guard = Arc::new(Guard::new(fence("db#8").name));
    let (fed, follower) = (Arc::clone(&guard), followed.follower.clone());
    let feeding = tokio::spawn(async move {
        let name = fed.name().clone();
        let raise = |floor| {
            fed.advance_to(floor);
            let enough = floor == token(12);
            std::future::ready(if enough { Err("enough") } else { Ok(()) })
        };
        follower.feed(&name, raise).await
    });

    followed
        .tell([floor("db#8"), floor("other#500"), News::Reached])
        .await;
    guard.admit(&fence("db#8")).unwrap();
    followed.tell([floor("db#9")]).await;
    assert!(guard.admit(&fence("db#8")).unwrap_err().ends_the_grant());
    assert_eq!(guard.mark(), Some(token(9)));

    // Rises that come together are one; an error ends it.
    followed.tell([floor("db#11"), floor("db#12")]).await;
    assert_eq!(feeding.await.unwrap().unwrap_err(), "enough");
    assert_eq!(guard.mark(), Some(token(12)));
}

#[tokio::test]
async fn a_forged_token_waits_and_is_refused_and_raises_no_mark() {
    let followed = Followed::start(impatient(Unheard::Plain));
    let guard = Guard::new(fence("db#8").name);
    followed.tell([floor("db#8"), News::Reached]).await;
    for (forged, newest) in [("db#9", Some(8)), ("db#9223372036854775807", Some(8))] {
        let offered = fence(forged);
        assert!(
            now(followed.follower.admit(&guard, &offered)).is_none(),
            "it waits"
        );
        let refused = followed.follower.admit(&guard, &offered).await;
        let refused = refused.unwrap_err();
        assert!(refused.is_retryable());
        assert_eq!(
            refused,
            FollowError::UnknownToken {
                name: fence(forged).name,
                offered: fence(forged).token,
                floor: newest.map(token),
            }
        );
        assert_eq!(guard.mark(), None);
    }
    followed
        .follower
        .admit(&guard, &fence("db#8"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_token_of_a_name_without_a_floor_waits_also_below_a_forgotten_one() {
    let followed = Followed::start(impatient(Unheard::Plain));
    let forgotten = News::Forgotten(token(100));
    followed
        .tell([forgotten, floor("other#7"), News::Reached])
        .await;
    for offered in ["db#50", "db#101"] {
        let refused = followed.follower.check(&fence(offered)).await.unwrap_err();
        assert!(
            matches!(refused, FollowError::UnknownToken { floor: None, .. }),
            "{refused}"
        );
    }
    followed.follower.check(&fence("other#7")).await.unwrap();
}

#[tokio::test]
async fn a_true_token_passes_a_late_stream_however_busy_other_names_are() {
    let followed = Followed::start(patient(Unheard::Plain));
    followed.tell([floor("db#8"), News::Reached]).await;
    let follower = followed.follower.clone();
    let admitted = tokio::spawn(async move { follower.check(&fence("db#1000500")).await });

    for grant in 0..500 {
        followed
            .tell([floor(&format!("busy#{}", 1_000_000 + grant))])
            .await;
        assert!(!admitted.is_finished());
    }
    followed.tell([floor("db#1000500")]).await;

    admitted.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_token_that_was_overtaken_while_it_waited_is_stale() {
    let followed = Followed::start(patient(Unheard::Plain));
    followed.tell([floor("db#8"), News::Reached]).await;
    let follower = followed.follower.clone();
    let waiting = tokio::spawn(async move { follower.check(&fence("db#9")).await });
    settle().await;

    followed.tell([floor("db#12")]).await;

    let refused = waiting.await.unwrap().unwrap_err();
    assert_eq!(refused.reason(), "STALE_TOKEN");
}

#[tokio::test]
async fn a_fence_of_another_lease_is_not_waited_for() {
    let followed = Followed::start(patient(Unheard::Plain));
    followed.tell([News::Reached]).await;
    let guard = Guard::new(fence("db#8").name);
    let fence = fence("other#9");
    let refused = now(followed.follower.admit(&guard, &fence)).unwrap();
    assert_eq!(refused.unwrap_err().reason(), "WRONG_LEASE");
}
