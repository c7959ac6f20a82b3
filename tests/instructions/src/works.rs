//! The work that is counted. Each begins with a fixed part, which a difference of two runs removes.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use prost::Message;
use ringfence_core::{Ask, Command, FencingToken, LeaseName, Millis, Outcome, Renew, SessionId};
use ringfence_proto::record::{decode_command, encode_command};
use ringfence_proto::v1::{self, ClientFrame, ClientMessage, client_frame};
use ringfence_wal::sim::SimFs;
use ringfence_wal::{EntryId, LogEntry, Options, Wal};

use crate::world::{World, acquire, ask};

pub(crate) struct Work {
    pub(crate) name: &'static str,
    /// Does it so often.
    pub(crate) run: fn(u64),
}

pub(crate) const WORKS: [Work; 7] = [
    Work {
        name: "apply-acquire-release",
        run: acquire_and_release,
    },
    Work {
        name: "apply-hand-over",
        run: hand_over,
    },
    Work {
        name: "apply-open",
        run: open,
    },
    Work {
        name: "apply-renew-1000",
        run: renew,
    },
    Work {
        name: "codec-command",
        run: command,
    },
    Work {
        name: "codec-message-64",
        run: message,
    },
    Work {
        name: "wal-append",
        run: append,
    },
];

/// Of those that are there before: so many that every map has some depth.
const SESSIONS: u64 = 2_000;

fn populated() -> (World, Vec<SessionId>) {
    let mut world = World::new();
    let sessions: Vec<_> = (0..SESSIONS).map(|n| world.open(n)).collect();
    for (n, session) in sessions.iter().enumerate() {
        world.apply(ask(*session, 1, acquire(&name(n as u64), None)));
    }
    (world, sessions)
}

fn name(n: u64) -> LeaseName {
    LeaseName::parse(&format!("instructions/lease-{n:08}")).unwrap()
}

fn release(world: &World, name: &LeaseName) -> Ask {
    Ask::Release {
        name: name.clone(),
        token: FencingToken::new(world.machine.summary().last_token).unwrap(),
        close: false,
    }
}

/// A lease of its own each time.
fn acquire_and_release(times: u64) {
    let (mut world, sessions) = populated();
    for n in 0..times {
        let session = sessions[(n % SESSIONS) as usize];
        let number = 2 + 2 * (n / SESSIONS);
        let name = name(SESSIONS + n % SESSIONS);
        let outcome = world.apply(ask(session, number, acquire(&name, None)));
        assert!(matches!(outcome, Outcome::Acquired(_)), "{outcome:?}");
        let release = release(&world, &name);
        world.apply(ask(session, number + 1, release));
    }
}

/// Two sessions in turn: one waits, the other one releases.
fn hand_over(times: u64) {
    let (mut world, sessions) = populated();
    let name = name(SESSIONS);
    world.apply(ask(sessions[0], 2, acquire(&name, None)));
    for n in 0..times {
        let (holder, waiter) = ((n % 2) as usize, ((n + 1) % 2) as usize);
        let number = 3 + n;
        let wait = Some(Millis(60_000));
        world.apply(ask(sessions[waiter], number, acquire(&name, wait)));
        let release = release(&world, &name);
        let outcome = world.apply(ask(sessions[holder], number, release));
        assert!(matches!(outcome, Outcome::Released { .. }), "{outcome:?}");
    }
}

fn open(times: u64) {
    let (mut world, _) = populated();
    for n in 0..times {
        world.open(SESSIONS + n);
    }
}

/// A thousand sessions in one entry.
fn renew(times: u64) {
    let (mut world, sessions) = populated();
    for _ in 0..times {
        world.time += 1;
        world.apply(Command::Renew(Renew {
            sessions: sessions[..1_000].to_vec(),
            acknowledged: Vec::new(),
        }));
    }
}

/// What the log holds: to bytes and back.
fn command(times: u64) {
    let session = World::new().open(0);
    let command = ask(session, 1, acquire(&name(0), None));
    for _ in 0..times {
        let bytes = encode_command(black_box(&command));
        black_box(decode_command(black_box(&bytes)).unwrap());
    }
}

/// What callers send: 64 acquires in one message, to bytes and back.
fn message(times: u64) {
    let frame = |id| {
        let acquire = v1::AcquireRequest {
            session: Some(v1::SessionHandle {
                session: 1 << 20,
                secret: vec![7; 16].into(),
            }),
            number: id,
            lowest: id,
            name: name(id).to_string(),
            wait_ms: Some(30_000),
            ..Default::default()
        };
        let body = Some(client_frame::Body::Acquire(acquire));
        ClientFrame {
            id,
            body,
            ..Default::default()
        }
    };
    let message = ClientMessage {
        frames: (1..=64).map(frame).collect(),
    };
    for _ in 0..times {
        let bytes: Bytes = black_box(&message).encode_to_vec().into();
        black_box(ClientMessage::decode(black_box(bytes)).unwrap());
    }
}

/// Each is durable before the next one is given. The files are simulated and there is no thread: what the
/// kernel does is not counted, and how threads meet is another number each time.
fn append(times: u64) {
    let dir = Path::new("/wal");
    let files = Arc::new(SimFs::with_dir(dir));
    let options = Options::new(*b"instructions");
    let (wal, mut steps, _) = Wal::open_stepped(files, dir, options, Box::new(|| {})).unwrap();
    let payload = Bytes::from(vec![0x5A; 100]);
    let durable = Arc::new(AtomicU64::new(0));
    for index in 1..=times {
        let id = EntryId { term: 1, index };
        let payload = payload.clone();
        let durable_now = Arc::clone(&durable);
        let done = Box::new(move |result: Result<(), _>| {
            result.unwrap();
            durable_now.store(index, Relaxed);
        });
        wal.append(vec![LogEntry { id, payload }], done);
        assert!(steps.write());
        steps.sync();
        assert_eq!(durable.load(Relaxed), index);
    }
}
