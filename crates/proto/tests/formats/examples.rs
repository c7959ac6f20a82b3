//! One value of each kind, the same at every run.

mod access;
mod backups;
mod commands;
mod events;
mod objects;
mod outcomes;
mod records;
pub(crate) mod restored;

use ringfence_core::*;

pub(crate) use backups::backups;
pub(crate) use commands::{acquire, commands};
pub(crate) use events::{events, session_ends};
pub(crate) use outcomes::{outcomes, rejections};
pub(crate) use records::records;

/// The secret of all examples. No refusal and no `Debug` may show it.
pub(crate) const SECRET: [u8; 16] = *b"\xf0\xe1\xd2\xc3sixteen byte";

pub(crate) fn name(raw: &str) -> LeaseName {
    LeaseName::parse(raw).unwrap()
}

pub(crate) fn token(raw: u64) -> FencingToken {
    FencingToken::new(raw).unwrap()
}

pub(crate) fn session(raw: u64) -> SessionId {
    SessionId::new(raw).unwrap()
}

pub(crate) fn number(raw: u64) -> RequestNumber {
    RequestNumber::new(raw).unwrap()
}

fn identity() -> Identity {
    Identity::parse("alice@host-1").unwrap()
}

fn data() -> HolderData {
    HolderData::new(b"10.0.0.7:80").unwrap()
}

fn cluster() -> ClusterId {
    ClusterId::new(*b"the cluster's id")
}

fn pod() -> Pod {
    let text = PodText {
        namespace: "shop",
        name: "controller-0",
        uid: "6f1c9a52-7d3e-4a8f-9b21-0c5d8e7f6a34",
        container: "main",
    };
    Pod::parse(text).unwrap()
}

fn by_hand() -> (String, String) {
    ("carol".into(), "disk full".into())
}

fn granted() -> Granted {
    Granted {
        name: name("db/primary"),
        token: token(1_700_000_000_000_001),
        session: session(300),
        identity: identity(),
        data: data(),
        request: number(7),
        index: 42,
        since: WallTime(1_700_000_000_123),
    }
}
