//! A data directory that the first version wrote: every later one opens it, for ever.
//!
//! `RECORD=1 cargo test -p ringfence-raft --test cluster data_v1` writes a new one. Do so under a
//! new name: this one stays, since an operator's node may have been written like it.

use std::path::{Path, PathBuf};
use std::{env, fs};

use ringfence_core::{
    Acquire, Acquired, Ask, Command, EndCause, FencingToken, Millis, Outcome, Rejection, Revoke,
    Secret, SessionEnd, SessionId, Verdict,
};
use ringfence_raft::{KeepAlive, Node};

use crate::harness::{
    Cluster, Session, acquire, acquired, eventually, holder, name, open, propose, request,
};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/data-v1")
}

/// Small segments, and snapshots that do not take the whole log with them.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&["n1"]);
    cluster.adjust = |config| {
        config.wal_segment_bytes = 64 * 1024;
        config.snapshot_log_bytes = 4_096;
        config.snapshot_log_keep = 5;
    };
    cluster
}

const TTL: Millis = Millis::from_secs(300);

/// The sessions of the fixture: numbers and secrets as [`open`] makes them.
fn session(n: u8) -> Session {
    Session {
        id: SessionId::new(u64::from(n)).unwrap(),
        secret: Secret::new([n; 16]),
    }
}

fn token(raw: u64) -> FencingToken {
    FencingToken::new(raw).unwrap()
}

fn release(token_: u64) -> Ask {
    Ask::Release {
        name: name("done/once"),
        token: token(token_),
        close: false,
    }
}

fn dirty() -> Ask {
    Ask::Acquire(Acquire {
        name: name("revoked"),
        wait: None,
        data: ringfence_core::HolderData::new(b"10.0.0.7:80").unwrap(),
        lock_delay: Millis::from_secs(60),
    })
}

/// What the fixture's node received.
async fn live(node: &Node) {
    let alice = open(node, 1, TTL).await;
    let bob = open(node, 2, TTL).await;
    let carol = open(node, 3, TTL).await;
    assert_eq!(
        [alice.id, bob.id, carol.id],
        [1, 2, 3].map(|n| session(n).id)
    );
    assert_eq!(acquired(node, alice, 1, "held/by/alice").await, 1);
    assert_eq!(acquired(node, bob, 1, "done/once").await, 2);
    propose(node, request(bob, 2, release(2))).await;
    let waiting = acquire(bob, 3, "held/by/alice", Some(Millis::from_secs(3_600)));
    propose(node, waiting).await;
    propose(node, request(carol, 1, dirty())).await;
    let close = Command::Close {
        session: carol.id,
        secret: carol.secret,
    };
    for n in 4..=60 {
        assert_eq!(acquired(node, alice, n, &format!("many/{n}")).await, n);
    }
    eventually("a snapshot", || node.metrics().snapshot_index > 20).await;
    // Behind the snapshot, in the log alone.
    propose(
        node,
        Command::Revoke(Revoke {
            name: name("revoked"),
            token: token(3),
            now: false,
            reason: "for the record".into(),
            operator: "dave".into(),
        }),
    )
    .await;
    propose(node, close).await;
    assert_eq!(acquired(node, bob, 4, "last").await, 61);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = (
            entry.as_ref().unwrap().path(),
            to.join(entry.unwrap().file_name()),
        );
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

async fn record() {
    let mut cluster = cluster();
    cluster.start_all().await;
    let node = cluster.nodes["n1"].clone();
    live(&node).await;
    node.shutdown().await;
    assert!(
        !fixture().exists(),
        "remove the old one by hand, if it was never released"
    );
    copy(&cluster.data_dir("n1"), &fixture());
    // Derived, and made again where it is missing.
    fs::remove_dir_all(fixture().join("history")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_of_the_first_version_opens_with_all_that_is_in_it() {
    if env::var_os("RECORD").is_some() {
        record().await;
    }
    let mut cluster = cluster();
    copy(&fixture(), &cluster.data_dir("n1"));
    let node = cluster.start("n1").await;
    cluster.serving("n1").await;
    let (alice, bob, carol) = (session(1), session(2), session(3));

    // Leases, floors and the queue, from snapshot and log.
    assert_eq!(holder(&node, "held/by/alice"), Some((alice.id, 1)));
    assert_eq!(holder(&node, "many/60"), Some((alice.id, 60)));
    assert_eq!(holder(&node, "last"), Some((bob.id, 61)));
    assert_eq!(holder(&node, "revoked"), None);
    node.read(|machine| {
        assert_eq!(machine.get(&name("held/by/alice")).unwrap().waiters, 1);
        assert_eq!(machine.check(&name("done/once"), token(2)), Verdict::Ended);
        assert_eq!(machine.check(&name("many/9"), token(9)), Verdict::Current);
        assert_eq!(machine.check(&name("last"), token(62)), Verdict::Unknown);
        assert!(machine.get(&name("revoked")).unwrap().blocked > Millis(0));
        assert_eq!(machine.token_floor(), Some(0));
        assert!(machine.session(carol.id).is_none());
    });
    let expired = node.read(|machine| machine.authenticate(carol.id, &carol.secret));
    let cause = Some(SessionEnd::Closed);
    assert_eq!(expired, Err(Rejection::SessionExpired { cause }));

    // Sessions, their secrets, and what they remember of their requests.
    let kept = node.keep_alive(KeepAlive {
        sessions: vec![(alice.id, alice.secret), (bob.id, Secret::new([9; 16]))],
        ..KeepAlive::default()
    });
    let wrong = vec![(bob.id, Rejection::WrongSecret)];
    assert_eq!(kept.await.unwrap().ended, wrong);
    assert_eq!(acquired(&node, alice, 60, "many/60").await, 60, "a repeat");
    let again = propose(&node, request(bob, 2, release(2))).await;
    assert!(matches!(again, Outcome::Released { .. }), "{again:?}");

    // It goes on: tokens grow, and the queue is served.
    let free = Ask::Release {
        name: name("held/by/alice"),
        token: token(1),
        close: false,
    };
    propose(&node, request(alice, 61, free)).await;
    assert_eq!(holder(&node, "held/by/alice"), Some((bob.id, 62)));
    let waited = acquire(bob, 3, "held/by/alice", Some(Millis::from_secs(3_600)));
    match propose(&node, waited).await {
        Outcome::Acquired(Acquired::Granted(granted)) => assert_eq!(granted.token, token(62)),
        other => panic!("{other:?}"),
    }
    let ended = acquire(alice, 1, "held/by/alice", None);
    match propose(&node, ended).await {
        Outcome::Acquired(Acquired::Ended { cause, .. }) => {
            assert_eq!(cause, Some(EndCause::Released));
        }
        other => panic!("{other:?}"),
    }
}
