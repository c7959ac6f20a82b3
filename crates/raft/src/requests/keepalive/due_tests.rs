//! More sessions come due at once than one entry ends: what is reported of those that it did not
//! reach.

use ringfence_core::{ENDS_PER_ENTRY_MAX, Identity, Millis, Open, OpenId, SessionEnd};

use super::test_state::TestState;
use super::*;

/// One more than an entry ends.
const DUE: u64 = ENDS_PER_ENTRY_MAX as u64 + 1;
const TTL: Millis = Millis::from_secs(15);
/// When all of them are due.
const STORM: ClusterTime = ClusterTime(20_000);

fn secret(n: u64) -> Secret {
    Secret::new(u128::from(n).to_be_bytes())
}

fn session(n: u64) -> (SessionId, Secret) {
    (SessionId::new(n).unwrap(), secret(n))
}

/// The state of a node whose sessions all come due at one time.
async fn storm() -> TestState {
    let mut storm = TestState::formed().await;
    for n in 1..=DUE {
        let open = Open {
            id: OpenId::new(u128::from(n).to_be_bytes()),
            secret: secret(n),
            seen: None,
            ttl: TTL,
            identity: Identity::parse("").unwrap(),
            acquire: None,
        };
        storm.apply(ClusterTime(0), Command::Open(open)).await;
    }
    storm
}

async fn keep_alive(storm: &mut TestState, n: u64) -> KeptAlive {
    let request = KeepAlive {
        sessions: vec![session(n)],
        ..KeepAlive::default()
    };
    storm.keep_alive(STORM, vec![request]).await.remove(0)
}

#[tokio::test]
async fn the_end_of_a_session_is_told_only_when_it_has_ended() {
    let mut storm = storm().await;
    let (last, _) = session(DUE);

    // The entry ends all that it may, and does not come to the last one.
    let kept = keep_alive(&mut storm, DUE).await;
    assert_eq!(kept.ended, [], "nothing is told that is not so yet");
    assert_eq!(kept.untold, [last], "nothing is acknowledged to it either");

    let kept = keep_alive(&mut storm, DUE).await;
    let cause = Some(SessionEnd::Expired);
    assert_eq!(
        kept.ended,
        [(last, Rejection::SessionExpired { cause })],
        "the next entry has ended it"
    );
    assert_eq!(kept.untold, []);
}

#[tokio::test]
async fn a_session_that_a_new_term_saves_was_not_told_to_be_over() {
    let mut storm = storm().await;
    let (last, secret) = session(DUE);
    let kept = keep_alive(&mut storm, DUE).await;
    assert_eq!(kept.ended, []);

    // The leader dies before anything else is logged.
    storm.new_term().await;
    let kept = keep_alive(&mut storm, DUE).await;
    assert_eq!((kept.ended, kept.untold), (Vec::new(), Vec::new()));
    assert_eq!(
        storm.state.machine().authenticate(last, &secret),
        Ok(()),
        "the fresh TTL of the new term is its own"
    );
}
