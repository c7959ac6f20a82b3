//! The format of a history: what is written is read, and what is broken is named.

use ringfence_check::history::{
    Acquire, Admission, Belief, BeliefEnd, Block, Checked, CutOff, Fault, Guard, GuardAct, Header,
    Invoked, KeepAlive, LINE_BYTES_MAX, NodeSeen, NodeState, Note, Op, Outcome, Queued, ReadError,
    Reader, Record, Returned, SessionCause, SessionEnded, WatchCause, WatchEvent, WatchKind,
    WatchProgress, WatchStarted, Writer,
};

fn lease() -> String {
    "db/main".to_owned()
}

fn acquire() -> Acquire {
    Acquire {
        lease: lease(),
        wait_ms: Some(5_000),
        lock_delay_ms: 0,
    }
}

fn ops() -> Vec<Op> {
    vec![
        Op::Open {
            ttl_ms: 2_000,
            open_id: Some("00ff".to_owned()),
            acquire: Some(acquire()),
        },
        Op::Acquire(acquire()),
        Op::Cancel { request: 2 },
        Op::Release {
            lease: lease(),
            token: 3,
            close: true,
        },
        Op::Transfer {
            lease: lease(),
            token: 3,
            to: None,
        },
        Op::Close,
        Op::Check {
            lease: lease(),
            token: 3,
        },
        Op::Get { lease: lease() },
        Op::Revoke {
            lease: lease(),
            token: 3,
            now: false,
        },
        Op::Evict { session: 7 },
    ]
}

fn outcomes() -> Vec<Outcome> {
    let reason = "STALE_REQUEST".to_owned();
    let error = "the stream broke".to_owned();
    vec![
        Outcome::Done,
        Outcome::Opened {
            session: 1,
            ttl_ms: 2_000,
            acquired: Some(Box::new(Outcome::Granted { token: 4 })),
        },
        Outcome::Granted { token: 4 },
        Outcome::Ended { token: 4 },
        Outcome::TimedOut,
        Outcome::Cancelled,
        Outcome::Removed,
        Outcome::StillGranted {
            lease: lease(),
            token: 4,
        },
        Outcome::Settled,
        Outcome::Voided,
        Outcome::Released,
        Outcome::Transferred { to: 2, token: 5 },
        Outcome::Closed,
        Outcome::Held {
            session: 2,
            token: 5,
            mine: false,
        },
        Outcome::Queued { waiters: Some(3) },
        Outcome::Blocked(Block::LockDelay),
        Outcome::StaleToken { current: None },
        Outcome::NotHolder,
        Outcome::NotWaiting,
        Outcome::SessionExpired,
        Outcome::Checked(Checked::Superseded(9)),
        Outcome::Checked(Checked::Current),
        Outcome::Lease {
            session: Some(2),
            token: Some(5),
            waiters: None,
        },
        Outcome::Refused { reason },
        Outcome::Unknown { error },
        Outcome::NotDone {
            error: String::new(),
        },
    ]
}

fn sights() -> Vec<Record> {
    vec![
        Record::Queued(Queued { id: 2, t: 5 }),
        Record::KeepAlive(KeepAlive {
            client: 1,
            session: 1,
            sent: 5,
            acked: 6,
            ttl_ms: 2_000,
        }),
        Record::SessionEnded(SessionEnded {
            client: 1,
            session: 1,
            t: 9,
            cause: Some(SessionCause::Expired),
        }),
        Record::Belief(Belief {
            client: 1,
            session: 1,
            lease: lease(),
            token: 4,
            from: 5,
            until: 8,
            why: BeliefEnd::Window,
        }),
        Record::Guard(Guard {
            store: "sqlite".to_owned(),
            client: 1,
            lease: lease(),
            token: 4,
            act: GuardAct::Write,
            begin: 6,
            end: 7,
            commit: Some(12),
            admission: Admission::Refused { mark: 5 },
            value: Some("41".to_owned()),
            guarded: true,
        }),
        Record::WatchStarted(WatchStarted {
            watcher: 1,
            client: 2,
            t: 3,
            prefix: String::new(),
            after: Some((12, 0)),
        }),
        Record::WatchEvent(WatchEvent {
            watcher: 1,
            t: 4,
            index: 13,
            n: 1,
            kind: WatchKind::Ended(WatchCause::Expired),
            lease: lease(),
            token: 4,
            session: Some(1),
            holder: Some("alice".to_owned()),
        }),
        Record::WatchProgress(WatchProgress {
            watcher: 1,
            t: 5,
            index: 14,
        }),
        Record::Fault(Fault {
            kind: "partition".to_owned(),
            target: "n1>n2".to_owned(),
            begin: 1,
            end: None,
            effects: 17,
            detail: String::new(),
        }),
        Record::Node(NodeSeen {
            node: "n1".to_owned(),
            t: 1,
            state: NodeState::Leader,
            term: Some(2),
        }),
        Record::Note(Note {
            t: None,
            text: "the network is healed".to_owned(),
        }),
    ]
}

/// A record of every kind, with every operation and every outcome.
fn every_record() -> Vec<Record> {
    let invoked = ops().into_iter().zip(1..).map(|(op, id)| {
        Record::Invoked(Invoked {
            id,
            t: 10 * id,
            client: 1,
            session: (id > 1).then_some(1),
            request: (id > 1).then_some(id),
            op,
        })
    });
    let returned = outcomes().into_iter().zip(1..).map(|(outcome, id)| {
        Record::Returned(Returned {
            id,
            t: 10 * id + 5,
            outcome,
            index: Some(id),
        })
    });
    invoked.chain(returned).chain(sights()).collect()
}

fn written(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &Header::new("test")).unwrap();
    for record in records {
        writer.append(record).unwrap();
    }
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<(Vec<Record>, Option<CutOff>), ReadError> {
    let mut reader = Reader::new(bytes)?;
    let records = reader.by_ref().collect::<Result<_, _>>()?;
    Ok((records, reader.cut_off()))
}

#[test]
fn what_is_written_is_read() {
    let records = every_record();

    let bytes = written(&records);

    assert_eq!(read(&bytes).unwrap(), (records, None));
}

#[test]
fn a_cut_off_line_is_named_wherever_it_was_cut() {
    let records = every_record();
    let bytes = written(&records);
    let last = bytes[..bytes.len() - 1]
        .iter()
        .rposition(|&byte| byte == b'\n')
        .unwrap()
        + 1;

    for end in last + 1..bytes.len() - 1 {
        let (found, cut_off) = read(&bytes[..end]).unwrap();
        assert_eq!(found, records[..records.len() - 1]);
        let line = records.len() as u64 + 1;
        let bytes = end - last;
        assert_eq!(cut_off, Some(CutOff { line, bytes }));
    }

    // Only the end of the line is missing.
    let (found, cut_off) = read(&bytes[..bytes.len() - 1]).unwrap();
    assert_eq!((found, cut_off), (records, None));
}

#[test]
fn a_broken_line_in_the_middle_is_an_error_that_names_it() {
    let mut bytes = written(&[]);
    bytes.extend(b"{\"invoked\":{\"id\":1\n{\"note\":{\"text\":\"more\"}}\n");

    let error = read(&bytes).unwrap_err();

    assert!(matches!(error, ReadError::Line { line: 2, .. }), "{error}");
}

#[test]
fn what_is_not_known_is_not_passed_over() {
    for line in [
        "{\"note\":{\"text\":\"a\",\"colour\":\"red\"}}\n",
        "{\"rumour\":{\"text\":\"a\"}}\n",
        "{\"returned\":{\"id\":1,\"t\":1,\"outcome\":\"perhaps\"}}\n",
        "{\"invoked\":{\"id\":1,\"t\":1,\"client\":1,\"op\":{\"get\":{\"lease\":\"a\",\"stale\":true}}}}\n",
    ] {
        let mut bytes = written(&[]);
        bytes.extend(line.bytes());
        let error = read(&bytes).unwrap_err();
        assert!(matches!(error, ReadError::Line { line: 2, .. }), "{error}");
    }
}

#[test]
fn a_history_begins_with_a_header_of_its_version() {
    type Right = fn(&ReadError) -> bool;
    let cases: [(&str, Right); 5] = [
        ("", |e| matches!(e, ReadError::NoHeader)),
        ("{\"note\":{\"text\":\"a\"}}\n", |e| {
            matches!(e, ReadError::NoHeader)
        }),
        ("once upon a time\n", |e| matches!(e, ReadError::NoHeader)),
        (
            "{\"header\":{\"version\":99,\"recorder\":\"a\",\"rate_bound_ppm\":0}}\n",
            |e| matches!(e, ReadError::Version { offered: 99 }),
        ),
        (
            "{\"header\":{\"version\":1,\"recorder\":\"a\",\"rate_bound_ppm\":1000000}}\n",
            |e| matches!(e, ReadError::RateBound { .. }),
        ),
    ];
    for (text, right) in cases {
        let error = read(text.as_bytes()).unwrap_err();
        assert!(right(&error), "{text}: {error}");
    }
}

#[test]
fn a_line_has_a_limit_for_writers_and_readers() {
    let long = Record::Note(Note {
        t: None,
        text: "x".repeat(LINE_BYTES_MAX),
    });
    let mut writer = Writer::new(Vec::new(), &Header::new("test")).unwrap();

    let refused = writer.append(&long).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    let mut bytes = writer.finish().unwrap();
    assert_eq!(read(&bytes).unwrap().0, []);

    serde_json::to_writer(&mut bytes, &long).unwrap();
    bytes.push(b'\n');
    let error = read(&bytes).unwrap_err();
    assert!(matches!(error, ReadError::LongLine { line: 2 }), "{error}");
}
