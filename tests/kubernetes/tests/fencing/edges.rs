//! Tokens at the edges of what numbers can be, and texts that are none.

use ringfence_kube::policy::{Carrier, STAMP};

use crate::stand::{CURRENT, Stand, until, with_every_carrier};
use crate::verdict::Verdict;
use crate::writer::Op;

/// The greatest token there can be.
const MAX: u64 = (1 << 63) - 1;

/// No tokens, that a header can carry.
const PLAIN: [&str; 15] = [
    "0",
    "01",
    "+7",
    "-7",
    "0x10",
    "1e3",
    "7.0",
    "7,0",
    "abc",
    "7a",
    "7 8",
    "",
    "9223372036854775808",
    "18446744073709551617",
    "99999999999999999999",
];
/// No tokens, that only a stamp can carry.
const ODD: [&str; 8] = [
    " 7",
    "7 ",
    "7\n",
    "\u{0667}",
    "7\u{200b}",
    "７",
    "NaN",
    "null",
];

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_compared_as_whole_numbers_up_to_the_greatest() {
    let Some(stand) = Stand::start(Carrier::Sequence, CURRENT).await else {
        return;
    };
    // As floating-point numbers these two are the same.
    let pairs = [(CURRENT - 1, CURRENT), (MAX - 1, MAX), (9, 10)];
    for (at, (older, newer)) in pairs.into_iter().enumerate() {
        let name = format!("prices-{at}");
        let floor = newer.max(CURRENT);
        stand.raise(floor).await;
        until("the floor is raised", || async {
            stand.would_create(floor - 1).await == Ok(Verdict::Stale)
        })
        .await;
        if newer < CURRENT {
            // As texts the first would be the greater.
            assert_eq!(stand.would_create(newer).await, Ok(Verdict::Stale));
            continue;
        }
        let (older, newer) = (stand.fence(older), stand.fence(newer));
        let (older, newer) = (stand.writer(Some(&older)), stand.writer(Some(&newer)));
        assert_eq!(newer.write(Op::Create, &name).await, Ok(Verdict::Admitted));
        assert_eq!(older.write(Op::Update, &name).await, Ok(Verdict::Stale));
        assert_eq!(newer.write(Op::Update, &name).await, Ok(Verdict::Admitted));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_is_no_token_is_refused_by_every_carrier() {
    with_every_carrier(async |carrier| {
        let Some(stand) = Stand::start(carrier, 2).await else {
            return;
        };
        let lease = stand.fencing.lease();
        let odd = ODD.iter().filter(|_| carrier == Carrier::Sequence);
        for text in PLAIN.iter().chain(odd) {
            let fence = format!("{lease}#{text}");
            let writer = stand.writer(Some(&fence)).dry();
            let verdict = writer.write(Op::Create, "probe").await;
            assert_eq!(verdict, Ok(Verdict::Malformed), "{carrier} {text:?}");
        }
        for fence in [
            format!("{lease}#7#7"),
            format!("x{lease}#7"),
            format!("{lease}x#7"),
        ] {
            let writer = stand.writer(Some(&fence)).dry();
            let verdict = writer.write(Op::Create, "probe").await;
            let refused = matches!(verdict, Ok(Verdict::Malformed | Verdict::Foreign));
            assert!(refused, "{carrier} {fence:?}: {verdict:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_fences_are_none() {
    let Some(stand) = Stand::start(Carrier::Impersonate, 2).await else {
        return;
    };
    let fence = stand.fence(CURRENT);
    let twice = stand.writer(Some(&format!("{fence}\n{fence}"))).dry();
    for op in [Op::Create, Op::MergePatch, Op::Delete] {
        let name = stand.fencing.canary_floor();
        assert_eq!(twice.write(op, &name).await, Ok(Verdict::Several), "{op:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_policy_that_stamps_nothing_is_written() {
    let Some(stand) = Stand::start(Carrier::Impersonate, CURRENT).await else {
        return;
    };
    let name = format!("stamp.leader.{}.ringfence.io", stand.namespace);
    stand.remove("mutatingadmissionpolicybinding", &name);
    until("the current holder is refused", || async {
        stand.would_create(CURRENT).await == Ok(Verdict::Unstamped)
    })
    .await;
    let stale = stand.would_create(CURRENT - 1).await;
    assert!(
        matches!(stale, Ok(Verdict::Stale | Verdict::Unstamped)),
        "{stale:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_a_stamp_grows_with_every_write() {
    let Some(stand) = Stand::start(Carrier::Sequence, CURRENT).await else {
        return;
    };
    let fence = stand.fence(CURRENT);
    let holder = stand.writer(Some(&fence));
    assert_eq!(
        holder.write(Op::Create, "prices").await,
        Ok(Verdict::Admitted)
    );
    let stored = holder.read("prices").await;
    let number = |object: &serde_json::Value| -> u64 {
        let stamp = object["metadata"]["annotations"][STAMP].as_str().unwrap();
        stamp.rsplit_once('.').unwrap().1.parse().unwrap()
    };
    assert_eq!(
        holder.write(Op::MergePatch, "prices").await,
        Ok(Verdict::Admitted)
    );
    assert!(number(&holder.read("prices").await) > number(&stored));
    let again = holder.put(&stored).await;
    assert_eq!(
        Verdict::of(&again),
        Ok(Verdict::Outdated),
        "it names an old version"
    );
    let mut stored = stored;
    stored["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    let again = holder.put(&stored).await;
    assert_eq!(Verdict::of(&again), Ok(Verdict::Inherited));
}
