//! What is not known is called unknown, and what no recorder can have written is refused.

use std::cell::Cell;

use ringfence_check::blackbox::{self, Caps, coverage};
use ringfence_check::history::{
    Acquire, Header, Invoked, Op, Outcome, Queued, Reader, Record, Returned,
};
use ringfence_check::log::{DumpReader, DumpWriter, LogHeader, Logged};
use ringfence_check::{Recording, RecordingError, Verdict, witness};
use ringfence_core::{
    Called, Caller, ClusterTime, Command, Entry, Principal, Secret, SessionId, WallTime,
};

use crate::good::{by_log, recording};
use crate::world::{Play, Recorded, play};

fn some() -> Recorded {
    play(Play {
        seed: 3,
        clients: 5,
        leases: 2,
        calls: 300,
        trouble: true,
    })
}

#[test]
fn a_search_that_is_given_up_is_unknown() {
    let recording = recording(&some().records);
    let caps = Caps {
        states: 20,
        ..Caps::default()
    };

    let report = blackbox::check(&recording, caps);

    assert_eq!(report.verdict(), Verdict::Unknown);
    assert!(report.unknowns[0].contains("after 20 states"), "{report}");
}

#[test]
fn a_search_that_runs_out_of_time_is_unknown() {
    // Enough states for a look at the clock.
    let looks = Cell::new(0);
    let recording = recording(&crowd(9));
    let out_of_time = || {
        looks.set(looks.get() + 1);
        true
    };
    let caps = Caps {
        out_of_time: &out_of_time,
        ..Caps::default()
    };

    let report = blackbox::check(&recording, caps);

    assert_eq!(report.verdict(), Verdict::Unknown, "{report}");
    assert_eq!(looks.get(), 1);
}

/// So many acquires and releases under way at once that their order is anybody's guess.
fn crowd(clients: u64) -> Vec<Record> {
    let mut records = Vec::new();
    for id in 1..=clients {
        let ask = Acquire {
            lease: "db".to_owned(),
            wait_ms: Some(1_000),
            lock_delay_ms: 0,
        };
        let release = Op::Release {
            lease: "db".to_owned(),
            token: id,
            close: false,
        };
        let calls = [
            (Op::Acquire(ask), Outcome::Granted { token: id }),
            (release, Outcome::Released),
            (Op::Close, Outcome::Closed),
        ];
        for ((op, outcome), n) in calls.into_iter().zip(0..) {
            records.push(Record::Invoked(Invoked {
                id: 3 * id + n,
                t: 0,
                client: 1,
                session: Some(id),
                request: None,
                op,
            }));
            records.push(Record::Returned(Returned {
                id: 3 * id + n,
                t: 1_000 + 3 * (clients - id) + n,
                outcome,
                index: None,
            }));
        }
    }
    // The last grant returns first, so everything has to be considered at once.
    records.reverse();
    records.sort_by_key(|record| !matches!(record, Record::Invoked(_)));
    records
}

#[test]
fn a_log_without_its_beginning_is_unknown() {
    let recorded = some();
    let recording = recording(&recorded.records);
    let log = recorded.log[5..]
        .iter()
        .cloned()
        .map(Ok::<_, std::convert::Infallible>);

    let report = witness::check(&recording, log).unwrap();

    assert_eq!(report.verdict(), Verdict::Unknown);
    assert!(report.unknowns[0].contains("begins at entry 6"), "{report}");
}

#[test]
fn a_log_that_lacks_its_end_does_not_pass() {
    let mut recorded = some();
    let recording = recording(&recorded.records);
    recorded.log.truncate(recorded.log.len() / 2);

    assert_eq!(by_log(&recording, &recorded).verdict(), Verdict::Invalid);
}

#[test]
fn a_dump_is_read_as_it_was_written_but_for_secrets() {
    let recorded = some();
    let header = LogHeader {
        version: 1,
        node: "n1".to_owned(),
        committed: Some(9),
    };
    let mut writer = DumpWriter::new(Vec::new(), &header).unwrap();
    for logged in &recorded.log {
        writer.append(logged).unwrap();
    }
    let bytes = writer.finish().unwrap();

    let mut reader = DumpReader::new(&bytes[..]).unwrap();
    assert_eq!(*reader.header(), header);
    let log: Vec<Logged> = reader.by_ref().collect::<Result<_, _>>().unwrap();
    assert_eq!(log.len(), recorded.log.len());
    assert_ne!(log, recorded.log, "no secret was replaced");

    let recording = recording(&recorded.records);
    let report = by_log(&recording, &Recorded { log, ..recorded });
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");

    let cut_off = DumpReader::new(&bytes[..bytes.len() - 3]).unwrap();
    assert!(cut_off.last().unwrap().is_err());
}

#[test]
fn a_dump_shows_no_secret_of_what_a_principal_asks() {
    let (session, secret) = (SessionId::new(1).unwrap(), Secret::new([0x5E; 16]));
    let shown = "5e".repeat(16);
    for command in [
        Command::Close { session, secret },
        Command::Adopt { session, secret },
    ] {
        let caller = Caller {
            principal: Principal::local(),
            token: None,
            node: 1,
        };
        let entry = Entry {
            index: 1,
            term: 1,
            time: ClusterTime(0),
            wall: WallTime(0),
            command: Command::Called(Box::new(Called { caller, command })),
        };
        let header = LogHeader {
            version: 1,
            node: "n1".to_owned(),
            committed: Some(1),
        };
        let mut writer = DumpWriter::new(Vec::new(), &header).unwrap();
        writer.append(&Logged::from(entry)).unwrap();
        let text = String::from_utf8(writer.finish().unwrap()).unwrap();
        assert!(!text.contains(&shown), "{text}");
    }
}

#[test]
fn a_run_that_shows_nothing_is_not_covered() {
    let full = recording(&some().records);
    let missing = coverage(&full);
    assert!(
        !missing.iter().any(|why| why.contains("acquire")),
        "{missing:?}"
    );

    let empty = recording(&[]);
    assert_eq!(
        blackbox::check(&empty, Caps::default()).verdict(),
        Verdict::Valid
    );
    assert_eq!(
        coverage(&empty),
        ["no operation of the kind `acquire` succeeded"]
    );

    let mut untested = full.clone();
    untested.guards.retain(|guard| {
        !matches!(
            guard.admission,
            ringfence_check::history::Admission::Refused { .. }
        )
    });
    let missing = coverage(&untested);
    assert!(
        missing.iter().any(|why| why.contains("stale write")),
        "{missing:?}"
    );
}

#[test]
fn what_no_recorder_can_have_written_is_refused() {
    let invoked = |id, op| {
        Record::Invoked(Invoked {
            id,
            t: 10,
            client: 1,
            session: Some(1),
            request: None,
            op,
        })
    };
    let returned = |id, t, outcome| {
        Record::Returned(Returned {
            id,
            t,
            outcome,
            index: None,
        })
    };
    let cases = [
        vec![returned(1, 20, Outcome::Closed)],
        vec![invoked(1, Op::Close), invoked(1, Op::Close)],
        vec![invoked(1, Op::Close), returned(1, 5, Outcome::Closed)],
        vec![invoked(1, Op::Close), returned(1, 20, Outcome::Released)],
        vec![
            invoked(1, Op::Close),
            returned(1, 20, Outcome::Closed),
            returned(1, 20, Outcome::Closed),
        ],
        vec![Record::Queued(Queued { id: 4, t: 1 })],
    ];
    for records in cases {
        let refused = Recording::of(Header::new("test"), records.clone());
        assert!(
            matches!(refused, Err(RecordingError::Recorder { .. })),
            "{records:?}"
        );
    }
}

#[test]
fn what_was_cut_off_is_named() {
    let text = "{\"header\":{\"version\":1,\"recorder\":\"a\",\"rate_bound_ppm\":0}}\n{\"note";
    let recording = Recording::read(Reader::new(text.as_bytes()).unwrap()).unwrap();
    assert_eq!(recording.cut_off.unwrap().line, 2);
}
