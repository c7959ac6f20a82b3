//! The gates with a real file of marks.
#![allow(clippy::unwrap_used)]

use std::pin::pin;

use tempfile::TempDir;
use tokio::time::timeout;

use super::*;

const DRAIN: Duration = Duration::from_millis(1_500);

fn fence(token: u64) -> Fence {
    Fence::parse(&format!("bank/x#{token}")).unwrap()
}

fn passages(folder: &TempDir, undrained: Undrained) -> Passages {
    let marks = Marks::open(&folder.path().join("marks.db")).unwrap();
    let options = Options {
        upstream: crate::Upstream::parse("http://127.0.0.1:1").unwrap(),
        prefix: String::new(),
        routes: ringfence_guard::tower::Routes::default(),
        safe_methods: false,
        drain: DRAIN,
        undrained,
        request_max: DRAIN * 2,
        limits: crate::Limits::default(),
    };
    let inherited = marks.begin(options.quiet()).unwrap();
    Passages::new(marks, &options, inherited)
}

fn reason<T>(result: Result<T, TurnedAway>) -> &'static str {
    result.map(drop).unwrap_err().reason()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_holder_waits_for_the_older_one_which_is_shut_out_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let passages = passages(&folder, Undrained::Refuse);
    let (first, second) = (
        passages.enter(&fence(8)).await.unwrap(),
        passages.enter(&fence(8)).await.unwrap(),
    );
    let newer = fence(9);
    let mut newer = pin!(passages.enter(&newer));
    assert!(timeout(DRAIN / 3, &mut newer).await.is_err());
    assert_eq!(reason(passages.enter(&fence(8)).await), "STALE_TOKEN");
    drop(first);
    assert!(timeout(DRAIN / 6, &mut newer).await.is_err());
    drop(second);
    drop(newer.await.unwrap());
    assert_eq!(reason(passages.enter(&fence(8)).await), "STALE_TOKEN");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_wait_for_the_older_one_enter_once_it_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let passages = Arc::new(passages(&folder, Undrained::Refuse));
    let older = passages.enter(&fence(8)).await.unwrap();
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let passages = Arc::clone(&passages);
            tokio::spawn(async move { passages.enter(&fence(9)).await.map(drop) })
        })
        .collect();
    tokio::time::sleep(DRAIN / 3).await;
    drop(older);
    for one in waiting {
        one.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_waits_is_stale_once_a_third_one_comes() {
    let folder = tempfile::tempdir().unwrap();
    let passages = Arc::new(passages(&folder, Undrained::Refuse));
    let older = passages.enter(&fence(8)).await.unwrap();
    let waits = Arc::clone(&passages);
    let waiting = tokio::spawn(async move { waits.enter(&fence(9)).await.map(drop) });
    tokio::time::sleep(DRAIN / 6).await;
    let third = fence(10);
    let mut third = pin!(passages.enter(&third));
    assert!(timeout(DRAIN / 6, &mut third).await.is_err());
    assert_eq!(reason(waiting.await.unwrap()), "STALE_TOKEN");
    drop(older);
    drop(third.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_end_is_a_reason_to_refuse_or_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let refusing = passages(&folder, Undrained::Refuse);
    let older = refusing.enter(&fence(8)).await.unwrap();
    assert_eq!(reason(refusing.enter(&fence(9)).await), "DRAINING");
    // It has raised the mark nevertheless.
    assert_eq!(reason(refusing.enter(&fence(8)).await), "STALE_TOKEN");
    drop(older);
    drop(refusing.enter(&fence(9)).await.unwrap());
    drop(refusing);

    let folder = tempfile::tempdir().unwrap();
    let cutting = passages(&folder, Undrained::Cut);
    let older = cutting.enter(&fence(8)).await.unwrap();
    let inside = tokio::spawn(async move {
        older.cut().await;
        drop(older);
    });
    let newer = cutting.enter(&fence(9)).await.unwrap();
    inside.await.unwrap();
    assert!(timeout(DRAIN / 6, newer.cut()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_process_that_was_killed_all_wait_and_behind_one_that_has_stopped_none() {
    let folder = tempfile::tempdir().unwrap();
    let before = passages(&folder, Undrained::Refuse);
    drop(before.enter(&fence(8)).await.unwrap());
    let taken = Marks::open(&folder.path().join("marks.db"));
    assert!(matches!(taken.map(drop), Err(crate::MarksError::InUse(_))));
    drop(before);

    let killed = passages(&folder, Undrained::Cut);
    assert_eq!(reason(killed.enter(&fence(7)).await), "STALE_TOKEN");
    // Also the holder of the mark: whether it had been let in is not known.
    assert_eq!(reason(killed.enter(&fence(8)).await), "DRAINING");
    // Nothing was inside under a lease without a mark.
    let other = Fence::parse("bank/y#5").unwrap();
    drop(
        timeout(DRAIN / 3, killed.enter(&other))
            .await
            .unwrap()
            .unwrap(),
    );
    assert!(!killed.are_quiet());
    drop(killed.enter(&fence(9)).await.unwrap());
    assert!(killed.are_quiet());
    killed.marks().end().await.unwrap();
    drop(killed);

    let stopped = passages(&folder, Undrained::Refuse);
    for token in [9, 10] {
        let entered = timeout(DRAIN / 3, stopped.enter(&fence(token))).await;
        drop(entered.unwrap().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_gives_way_in_memory_only_when_nothing_of_it_can_be_inside() {
    let folder = tempfile::tempdir().unwrap();
    let mut passages = passages(&folder, Undrained::Refuse);
    passages.leases_max = 1;
    let mut unseen = passages.enter(&fence(8)).await.unwrap();
    unseen.begin(DRAIN * 2 / 3);
    drop(unseen);
    let other = Fence::parse("bank/y#5").unwrap();
    assert_eq!(reason(passages.enter(&other).await), "TOO_MANY_LEASES");
    let newer = fence(9);
    let mut newer = pin!(passages.enter(&newer));
    assert!(timeout(DRAIN / 3, &mut newer).await.is_err());
    drop(newer.await.unwrap());
    drop(passages.enter(&other).await.unwrap());
    assert_eq!(reason(passages.enter(&fence(8)).await), "STALE_TOKEN");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_lease_has_not_all_the_room() {
    let folder = tempfile::tempdir().unwrap();
    let mut passages = passages(&folder, Undrained::Refuse);
    passages.of_lease_max = 2;
    let first = passages.enter(&fence(8)).await.unwrap();
    let second = passages.enter(&fence(8)).await.unwrap();
    assert_eq!(reason(passages.enter(&fence(8)).await), "TOO_MANY_REQUESTS");
    let other = Fence::parse("bank/y#5").unwrap();
    drop(passages.enter(&other).await.unwrap());
    drop(first);
    drop(passages.enter(&fence(8)).await.unwrap());
    drop(second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raise_whose_caller_leaves_is_in_the_file_and_here() {
    let folder = tempfile::tempdir().unwrap();
    let passages = passages(&folder, Undrained::Refuse);
    for token in 1..200 {
        let newer = fence(token);
        let mut newer = Box::pin(passages.enter(&newer));
        // It leaves at some moment of it.
        for _ in 0..token % 4 {
            let polled = timeout(Duration::ZERO, &mut newer).await;
            if polled.is_ok() {
                break;
            }
        }
        drop(newer);
        let name = fence(1).name;
        let deadline = now() + DRAIN;
        loop {
            let in_file = passages.marks.read(&name).await.unwrap();
            let (lease, _) = passages.lease(&name).unwrap();
            let _writing = lease.writing.lock().await;
            let needed = in_file.and_then(|mark| lease.gate.lock().needs(mark));
            if needed.is_none() {
                break;
            }
            assert!(now() < deadline, "the file has {in_file:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_removed_or_replaced_shuts_the_door() {
    for replaces in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let passages = passages(&folder, Undrained::Refuse);
        drop(passages.enter(&fence(8)).await.unwrap());
        let path = folder.path().join("marks.db");
        std::fs::rename(&path, folder.path().join("away.db")).unwrap();
        if replaces {
            std::fs::copy(folder.path().join("away.db"), &path).unwrap();
        }
        assert_eq!(reason(passages.enter(&fence(9)).await), "MARKS_UNAVAILABLE");
        // For those of the mark, too, and for ever.
        std::fs::rename(folder.path().join("away.db"), &path).unwrap();
        assert_eq!(reason(passages.enter(&fence(8)).await), "MARKS_UNAVAILABLE");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_made_up_raises_no_mark() {
    let folder = tempfile::tempdir().unwrap();
    let passages = passages(&folder, Undrained::Refuse);
    assert_eq!(
        reason(passages.enter(&fence(1 << 62)).await),
        "TOKEN_TOO_HIGH"
    );
    drop(passages.enter(&fence(8)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_callers_that_have_left_wanted_of_the_file_is_not_done() {
    let folder = tempfile::tempdir().unwrap();
    let passages = Arc::new(passages(&folder, Undrained::Refuse));
    let names = || (0..400).map(|number| LeaseName::parse(&format!("gone/{number}")).unwrap());
    let callers: Vec<_> = names()
        .map(|name| {
            let passages = Arc::clone(&passages);
            tokio::spawn(async move {
                let fence = Fence::parse(&format!("{name}#1")).unwrap();
                passages.enter(&fence).await.map(drop)
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(10)).await;
    for caller in &callers {
        caller.abort();
    }
    let mut entered = 0;
    for caller in callers {
        entered += usize::from(caller.await.is_ok());
    }
    tokio::time::sleep(DRAIN * 2).await;
    let mut written = 0;
    for name in names() {
        written += usize::from(passages.marks().read(&name).await.unwrap().is_some());
    }
    assert!(
        written <= entered + 1,
        "{entered} have entered, {written} marks"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_for_the_file_is_as_long_as_that_for_the_older_holder() {
    let folder = tempfile::tempdir().unwrap();
    let passages = passages(&folder, Undrained::Refuse);
    let busy = Arc::clone(&passages.file).lock_owned().await;
    let entered = timeout(DRAIN * 2, passages.enter(&fence(8))).await;
    assert_eq!(reason(entered.unwrap()), "MARKS_UNAVAILABLE");
    drop(busy);
    drop(passages.enter(&fence(8)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn older_requests_that_take_all_the_room_of_a_lease_keep_no_newer_holder_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut passages = passages(&folder, Undrained::Refuse);
    passages.of_lease_max = 2;
    let older = [
        passages.enter(&fence(8)).await.unwrap(),
        passages.enter(&fence(8)).await.unwrap(),
    ];
    let (ninth, tenth) = (fence(9), fence(10));
    let mut newer = Box::pin(passages.enter(&ninth));
    assert!(timeout(DRAIN / 6, &mut newer).await.is_err());
    // Its token is the mark; a second one under it is too many.
    assert_eq!(reason(passages.enter(&ninth).await), "TOO_MANY_REQUESTS");
    let mut newest = Box::pin(passages.enter(&tenth));
    assert!(timeout(DRAIN / 6, &mut newest).await.is_err());
    assert_eq!(reason(newer.await), "STALE_TOKEN");
    drop(older);
    drop(newest.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_another_hand_writes_shuts_the_door() {
    for truncates in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let passages = passages(&folder, Undrained::Refuse);
        drop(passages.enter(&fence(8)).await.unwrap());
        let path = folder.path().join("marks.db");
        let before = std::fs::read(&path).unwrap();
        drop(passages.enter(&fence(9)).await.unwrap());
        assert!(passages.marks().look().await);
        // A file system notes the time of a change by its clock, which has some milliseconds.
        tokio::time::sleep(DRAIN / 10).await;
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        if truncates {
            file.set_len(0).unwrap();
        } else {
            std::os::unix::fs::FileExt::write_all_at(&file, &before, 0).unwrap();
        }
        assert_eq!(
            reason(passages.enter(&fence(10)).await),
            "MARKS_UNAVAILABLE"
        );
        assert!(!passages.marks().look().await);
        assert_eq!(reason(passages.enter(&fence(9)).await), "MARKS_UNAVAILABLE");
    }
}
