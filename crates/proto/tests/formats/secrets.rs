//! Nothing shows a secret.

use bytes::Bytes;
use ringfence_proto::{raft, v1};

const SECRET: &[u8] = b"AAAABBBBCCCCDDDD";

#[test]
fn no_debug_of_a_message_shows_a_secret() {
    let handle = v1::SessionHandle {
        session: 7,
        secret: Bytes::from_static(SECRET),
    };
    let open = v1::OpenRequest {
        secret: Bytes::from_static(SECRET),
        identity: "alice".into(),
        ..Default::default()
    };
    let acquire = v1::AcquireRequest {
        session: Some(handle),
        open: Some(open),
        ..Default::default()
    };
    let frame = v1::ClientMessage {
        frames: vec![v1::ClientFrame {
            id: 1,
            body: Some(v1::client_frame::Body::Acquire(acquire)),
            ..Default::default()
        }],
    };

    let shown = format!("{frame:?}");

    assert!(
        shown.contains("session: 7") && shown.contains("alice"),
        "{shown}"
    );
    assert!(
        !shown.contains("AAAA") && !shown.contains("65, 65"),
        "{shown}"
    );
}

#[test]
fn no_debug_between_nodes_shows_a_secret() {
    let proof = raft::keep_alive::Proof {
        session: 7,
        secret_high: 0xdead_beef,
        secret_low: 0xfeed,
    };
    let shown = format!("{proof:?}");
    assert_eq!(shown, "Proof { session: 7, .. }");
}
