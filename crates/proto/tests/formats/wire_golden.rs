//! The public protocol's messages as bytes: clients of every version and language send and read
//! these, so what was said once must be said and understood in the same way for ever.

use std::time::Duration;

use prost::Message;
use ringfence_core::*;
use ringfence_proto::v1::{client_frame, server_frame};
use ringfence_proto::wire::*;
use ringfence_proto::{DecodeError, Refusal, v1};

use super::examples::{self, name, number, session, token};
use super::golden::check;

fn read<M: Message + Default>(bytes: &[u8]) -> Result<M, DecodeError> {
    M::decode(bytes).map_err(|source| DecodeError::Malformed {
        what: "a message",
        source,
    })
}

fn wire<M: Message + Default + PartialEq + std::fmt::Debug>(file: &str, examples: Vec<(&str, M)>) {
    let examples = examples.into_iter();
    let examples = examples.map(|(kind, message)| (kind.to_owned(), message));
    check(file, examples.collect(), M::encode_to_vec, read);
}

fn acquire() -> Acquire {
    Acquire {
        name: name("db/primary"),
        wait: Some(Millis(30_000)),
        data: HolderData::new(b"10.0.0.7:80").unwrap(),
        lock_delay: Millis(2_000),
    }
}

fn open() -> Open {
    Open {
        id: OpenId::new(*b"an id of sixteen"),
        secret: Secret::new(examples::SECRET),
        seen: Some(ClusterTime(70_000)),
        ttl: Millis(15_000),
        identity: Identity::parse("alice@host-1").unwrap(),
        acquire: None,
    }
}

fn asks() -> Vec<(&'static str, Ask)> {
    let (name, token) = (name("db/primary"), token(1_700_000_000_000_001));
    let release = |close| Ask::Release {
        name: name.clone(),
        token,
        close,
    };
    let transfer = |to| Ask::Transfer {
        name: name.clone(),
        token,
        to,
    };
    vec![
        ("acquire", Ask::Acquire(acquire())),
        ("cancel", Ask::Cancel { number: number(6) }),
        ("release", release(false)),
        ("release_and_close", release(true)),
        ("transfer", transfer(Some(session(301)))),
        ("transfer_to_the_head", transfer(None)),
    ]
}

#[test]
fn what_clients_say_is_written_and_read_as_ever() {
    use client_frame::Body;
    let handle = || session_handle_to_wire(session(300), &Secret::new(examples::SECRET));
    let with_acquire = Open {
        acquire: Some(acquire()),
        ..open()
    };
    let read = Some(v1::ReadOptions {
        max_staleness_ms: 500,
    });
    let mut bodies = vec![
        ("open", Body::Open(open_to_wire(&open()))),
        (
            "open_and_acquire",
            Body::Acquire(acquire_to_wire(&with_acquire).unwrap()),
        ),
        (
            "keep_alive",
            Body::KeepAlive(v1::KeepAliveRequest {
                id: 12,
                sessions: vec![handle()],
                acknowledged: vec![v1::Acknowledged {
                    session: 300,
                    token: 5,
                }],
            }),
        ),
        (
            "close",
            Body::Close(v1::CloseRequest {
                session: Some(handle()),
            }),
        ),
        (
            "get",
            Body::Get(v1::GetRequest {
                name: "db/primary".into(),
                read,
            }),
        ),
        (
            "check",
            Body::Check(v1::CheckRequest {
                name: "db/primary".into(),
                token: 5,
                read: None,
            }),
        ),
    ];
    for (kind, ask) in asks() {
        let request = Request {
            session: session(300),
            secret: Secret::new(examples::SECRET),
            number: number(7),
            lowest: number(3),
            ask,
        };
        bodies.push((kind, request_to_wire(&request)));
    }
    let frames = bodies.into_iter().map(|(kind, body)| {
        let body = Some(body);
        let frame = v1::ClientFrame {
            id: 9,
            body,
            ..Default::default()
        };
        (kind, frame)
    });
    wire("wire_client.txt", frames.collect());
}

fn granted() -> Granted {
    let outcome = examples::outcomes().into_iter().find_map(|(_, outcome)| {
        let Outcome::Acquired(Acquired::Granted(granted)) = outcome else {
            return None;
        };
        Some(granted)
    });
    outcome.unwrap()
}

fn lease() -> LeaseView {
    LeaseView {
        name: name("db/primary"),
        holder: Some(granted()),
        ttl: Millis(15_000),
        remaining: Millis(9_000),
        waiters: 3,
        floor: Some(token(1_700_000_000_000_001)),
        blocked: Millis(0),
    }
}

#[test]
fn what_servers_say_is_written_and_read_as_ever() {
    use server_frame::Body;
    let at = || read_point_to_wire(42, ClusterTime(70_000), Duration::from_millis(3));
    let cluster = ClusterId::new(*b"the cluster's id");
    let opened = Opened {
        session: session(300),
        ttl: Millis(15_000),
        acquired: None,
        repeated: false,
    };
    let cause = Some(SessionEnd::Expired);
    let ended = [
        (session(1), Rejection::SessionExpired { cause }),
        (session(2), Rejection::WrongSecret),
    ];
    let lost = LostGrant {
        name: name("db/primary"),
        token: token(5),
        cause: EndCause::Expired,
    };
    let lost = [(session(3), vec![lost])];
    let kept = kept_alive_to_wire(12, ClusterTime(70_000), &ended, &lost, &[session(4)]);
    let refusal = Refusal::wait_timeout(&name("db/primary"));
    let cancelled = Cancelled::Granted {
        name: name("db/primary"),
        token: token(5),
    };
    let greeting = v1::Greeting {
        cluster_id: cluster_id_to_wire(&cluster),
        node_id: 2,
        cluster_time_ms: 70_000,
        leader_id: 3,
        leader_client_address: "10.0.0.3:7420".into(),
        term: 8,
    };
    let bodies = vec![
        ("greeting", Body::Greeting(greeting)),
        ("refusal", Body::Refusal(refusal.into())),
        (
            "open",
            Body::Open(opened_to_wire(&opened, ClusterTime(70_000), &cluster)),
        ),
        ("keep_alive", Body::KeepAlive(kept)),
        (
            "keep_alive_refused",
            Body::KeepAlive(keep_alive_refused_to_wire(
                12,
                Refusal::unavailable("no leader", Some("10.0.0.3:7420"), Duration::from_secs(1)),
            )),
        ),
        (
            "close",
            Body::Close(closed_to_wire(
                Some(&SessionEnd::Closed),
                ClusterTime(70_000),
            )),
        ),
        (
            "acquire",
            Body::Acquire(v1::AcquireResponse {
                grant: Some(grant_to_wire(&granted())),
                ..Default::default()
            }),
        ),
        (
            "cancel",
            Body::Cancel(cancelled_to_wire(&cancelled, ClusterTime(70_000))),
        ),
        (
            "get",
            Body::Get(v1::GetResponse {
                lease: Some(lease_to_wire(&lease())),
                at: Some(at()),
            }),
        ),
        (
            "check",
            Body::Check(verdict_to_wire(
                Verdict::Superseded { newest: token(9) },
                at(),
            )),
        ),
        (
            "going_away",
            Body::GoingAway(v1::GoingAway {
                leader_client_address: "10.0.0.3:7420".into(),
            }),
        ),
    ];
    let frames = bodies.into_iter().map(|(kind, body)| {
        let body = Some(body);
        (kind, v1::ServerFrame { id: 9, body })
    });
    wire("wire_server.txt", frames.collect());
}

#[test]
fn what_watchers_are_told_is_written_and_read_as_ever() {
    let position = position_to_wire(WirePosition {
        cluster: ClusterId::new(*b"the cluster's id"),
        index: 42,
        n: 2,
        term: None,
    });
    let with_term = v1::Position {
        term: 3,
        ..position.clone()
    };
    let mut told = vec![
        (
            "present".to_owned(),
            present_to_wire(&lease(), position.clone()),
        ),
        (
            "present_in_a_term".to_owned(),
            present_to_wire(&lease(), with_term),
        ),
    ];
    for (kind, event) in examples::events() {
        told.extend(event_to_wire(&event, position.clone()).map(|event| (kind, event)));
    }
    check("wire_watch.txt", told, Message::encode_to_vec, read);
}

/// As programs in other languages meet it: the bytes of `grpc-status-details-bin`.
#[test]
fn refusals_are_written_and_read_as_ever() {
    let rejections = examples::rejections().into_iter();
    let refusals = rejections.map(|(kind, why)| {
        let refusal = Refusal::from_rejection(&why);
        // A map has no order of its own on the wire; one entry has.
        let first = refusal.metadata.iter().next();
        let first = first.map(|(key, value)| (key.clone(), value.clone()));
        let metadata = first.into_iter().collect();
        (
            kind.to_owned(),
            Refusal {
                metadata,
                ..refusal
            },
        )
    });
    check(
        "wire_statuses.txt",
        refusals.collect(),
        |refusal| {
            let status = tonic::Status::from(refusal.clone());
            [&[status.code() as u8][..], status.details()].concat()
        },
        |bytes| {
            let (code, details) = bytes.split_first().unwrap();
            let code = tonic::Code::from_i32(i32::from(*code));
            // The message stands in the details too, where other languages find it.
            let details = bytes::Bytes::copy_from_slice(details);
            let inner: tonic_types::pb::Status = read(&details)?;
            let status = tonic::Status::with_details(code, inner.message, details);
            Refusal::from_status(&status).ok_or(DecodeError::Missing { field: "refusal" })
        },
    );
}
