//! Which acknowledgements of losses are logged, and what becomes of the others.

use ringfence_core::{
    Acquire, Acquired, Ask, HolderData, Identity, LeaseName, Millis, Open, OpenId, Opened, Renew,
    Request, RequestNumber, Revoke,
};

use super::test_state::TestState;
use super::*;

const NOW: ClusterTime = ClusterTime(0);

fn secret() -> Secret {
    Secret::new([1; 16])
}

/// A session that holds a lease; the grant.
async fn holder(state: &mut TestState, n: u8) -> Acknowledgement {
    let open = Open {
        id: OpenId::new([n; 16]),
        secret: secret(),
        seen: None,
        ttl: Millis::from_secs(15),
        identity: Identity::parse("").unwrap(),
        acquire: None,
    };
    let session = match state.apply(NOW, Command::Open(open)).await {
        Outcome::Opened(Opened { session, .. }) => session,
        other => panic!("{other:?}"),
    };
    let first = RequestNumber::new(1).unwrap();
    let acquire = Command::Request(Request {
        session,
        secret: secret(),
        number: first,
        lowest: first,
        ask: Ask::Acquire(Acquire {
            name: lease(session),
            wait: None,
            data: HolderData::default(),
            lock_delay: Millis(0),
        }),
    });
    match state.apply(NOW, acquire).await {
        Outcome::Acquired(Acquired::Granted(granted)) => (session, granted.token),
        other => panic!("{other:?}"),
    }
}

fn lease(session: SessionId) -> LeaseName {
    LeaseName::parse(&format!("lease/{session}")).unwrap()
}

async fn revoke(state: &mut TestState, (session, token): Acknowledgement) {
    let revoke = Revoke {
        name: lease(session),
        token,
        now: false,
        reason: String::new(),
        operator: String::new(),
    };
    state.apply(NOW, Command::Revoke(revoke)).await;
    assert_eq!(state.state.machine().lost(session).len(), 1);
}

fn keep_alive(sessions: &[SessionId], acknowledged: &[Acknowledgement]) -> KeepAlive {
    KeepAlive {
        sessions: sessions.iter().map(|id| (*id, secret())).collect(),
        acknowledged: acknowledged.to_vec(),
        caller: None,
    }
}

#[tokio::test]
async fn what_the_state_has_as_lost_is_logged_and_nothing_else() {
    let mut state = TestState::formed().await;
    let (lost, other) = (holder(&mut state, 1).await, holder(&mut state, 2).await);
    let held = holder(&mut state, 3).await;
    revoke(&mut state, lost).await;
    revoke(&mut state, other).await;
    let invented = (1..=1_000).map(|n| (lost.0, FencingToken::new(n << 20).unwrap()));
    let mut acknowledged: Vec<Acknowledgement> = invented.collect();
    // Of the other session, which this message does not name, and of a session that was never opened.
    let never = SessionId::new(1 << 40).unwrap();
    acknowledged.extend([lost, lost, held, other, (lost.0, other.1), (never, lost.1)]);
    let batch = state.check(vec![
        keep_alive(&[lost.0, held.0, never], &acknowledged),
        keep_alive(&[other.0], &[]),
    ]);
    let logged: Vec<Renew> = entries(&batch.checked);
    let logged: Vec<Acknowledgement> = logged
        .into_iter()
        .flat_map(|one| one.acknowledged)
        .collect();
    assert_eq!(logged, [lost]);

    let kept = state.log(NOW, batch).await;
    assert!(kept[0].lost.is_empty() && kept[0].untold.is_empty());
    assert_eq!(kept[1].lost[0].0, other.0, "no session has acknowledged it");
}

#[tokio::test]
async fn an_acknowledgement_that_overtakes_its_loss_is_asked_for_again() {
    let mut state = TestState::formed().await;
    let (lost, other) = (holder(&mut state, 1).await, holder(&mut state, 2).await);
    // Another node has applied the revoke, so that the client knows of it; the leader is about to.
    let batch = state.check(vec![keep_alive(&[lost.0, other.0], &[lost, other])]);
    revoke(&mut state, lost).await;
    let kept = state.log(NOW, batch).await.remove(0);
    assert_eq!(kept.untold, [lost.0], "nothing was heard of it");
    assert_eq!(kept.lost, [], "its client would take that for heard");

    let request = vec![keep_alive(&[lost.0, other.0], &[lost, other])];
    let kept = state.keep_alive(NOW, request).await.remove(0);
    assert_eq!((kept.untold, kept.lost), (Vec::new(), Vec::new()));
    assert!(state.state.machine().lost(lost.0).is_empty());
}
