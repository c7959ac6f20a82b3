//! Histories made by hand, each in a file whose first line says what is wrong with it.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};

use ringfence_check::blackbox::{self, Caps};
use ringfence_check::history::{self, Header, Invoked, Op, Reader, Record, Returned};
use ringfence_check::log::Logged;
use ringfence_check::{Recording, Report, Verdict, witness};
use ringfence_core::{
    Acquire, Ask, ClusterId, ClusterTime, Command, Entry, FencingToken, Form, HolderData, Identity,
    LeaseName, Millis, Open, OpenId, Renew, Request, RequestNumber, Revoke, Secret, SessionId,
    Settings, WallTime,
};

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    files
}

fn read(path: &Path) -> Recording {
    let recording = Recording::read(Reader::open(path).unwrap());
    recording.unwrap_or_else(|wrong| panic!("{}: {wrong}", path.display()))
}

/// The rule that is broken, as the first line says: its first word.
fn expected(recording: &Recording) -> String {
    let note = recording.header.note.as_deref().unwrap();
    note.split(':').next().unwrap().to_owned()
}

fn broken(report: &Report) -> Vec<String> {
    let rules = report.violations.iter().map(|violation| violation.rule);
    rules.map(|rule| format!("{rule:?}")).collect()
}

#[test]
fn what_is_wrong_with_a_history_is_found_by_what_clients_saw() {
    let files = files("bad");
    assert!(files.len() >= 20);
    for file in files {
        let recording = read(&file);

        let report = blackbox::check(&recording, Caps::default());

        let expected = expected(&recording);
        assert_eq!(report.verdict(), Verdict::Invalid, "{}", file.display());
        assert!(
            broken(&report).contains(&expected),
            "{}: expected {expected}, found\n{report}",
            file.display()
        );
    }
}

#[test]
fn what_is_strange_but_right_is_valid() {
    let files = files("tricky");
    assert!(files.len() >= 10);
    for file in files {
        let report = blackbox::check(&read(&file), Caps::default());

        assert_eq!(
            report.verdict(),
            Verdict::Valid,
            "{}\n{report}",
            file.display()
        );
    }
}

#[test]
fn what_is_wrong_with_a_history_is_found_by_the_log() {
    let files = files("bad_by_log");
    assert!(files.len() >= 10);
    for file in files {
        let recording = read(&file);

        let log = story().into_iter().map(Ok::<_, std::convert::Infallible>);
        let report = witness::check(&recording, log).unwrap();

        let expected = expected(&recording);
        if expected == "valid" {
            assert_eq!(
                report.verdict(),
                Verdict::Valid,
                "{}\n{report}",
                file.display()
            );
            continue;
        }
        assert_eq!(report.verdict(), Verdict::Invalid, "{}", file.display());
        assert!(
            broken(&report).contains(&expected),
            "{}: expected {expected}, found\n{report}",
            file.display()
        );
    }
}

fn session(id: u64) -> SessionId {
    SessionId::new(id).unwrap()
}

fn token(token: u64) -> FencingToken {
    FencingToken::new(token).unwrap()
}

fn db() -> LeaseName {
    LeaseName::parse("db").unwrap()
}

fn open(id: u8) -> Command {
    Command::Open(Open {
        id: OpenId::new([id; 16]),
        secret: Secret::new([id; 16]),
        seen: None,
        ttl: Millis(1_000),
        identity: Identity::parse("someone").unwrap(),
        acquire: None,
    })
}

fn request(id: u8, number: u64, ask: Ask) -> Command {
    let number = RequestNumber::new(number).unwrap();
    Command::Request(Request {
        session: session(id.into()),
        secret: Secret::new([id; 16]),
        number,
        lowest: number,
        ask,
    })
}

fn acquire(wait: Option<Millis>) -> Ask {
    Ask::Acquire(Acquire {
        name: db(),
        wait,
        data: HolderData::default(),
        lock_delay: Millis(0),
    })
}

fn renew(sessions: &[u64]) -> Command {
    Command::Renew(Renew {
        sessions: sessions.iter().copied().map(session).collect(),
        acknowledged: Vec::new(),
    })
}

/// The log that the histories in `bad_by_log` are held against: session 1 holds `db` and releases
/// it to session 2, which waits; session 1 falls silent and runs out of time; an operator revokes
/// the grant of session 2, which then closes.
fn story() -> Vec<Logged> {
    let form = Command::Form(Form {
        cluster: ClusterId::new([1; 16]),
        token_floor: Some(0),
        settings: Settings::STANDARD,
        mode: ringfence_core::Mode::Off,
        quiet_time: Millis(0),
        restored: None,
    });
    let release = Ask::Release {
        name: db(),
        token: token(1),
        close: false,
    };
    let revoke = Command::Revoke(Revoke {
        name: db(),
        token: token(2),
        now: false,
        reason: String::new(),
        operator: String::new(),
    });
    let close = Command::Close {
        session: session(2),
        secret: Secret::new([2; 16]),
    };
    let commands = [
        (0, Command::TermStart { unix_seconds: None }),
        (0, form),
        (100, open(1)),
        (110, open(2)),
        (120, request(1, 1, acquire(None))),
        (130, request(2, 1, acquire(Some(Millis(5_000))))),
        (400, renew(&[1, 2])),
        (500, request(1, 2, release)),
        (510, request(1, 3, acquire(None))),
        (900, renew(&[2])),
        (1_600, Command::RaiseLevel { level: 3 }),
        (1_650, renew(&[2])),
        (1_700, revoke),
        (1_800, close),
    ];
    let blank = Logged {
        index: 1,
        term: 1,
        entry: None,
    };
    let entries = commands
        .into_iter()
        .zip(2..)
        .map(|((time, command), index)| {
            Logged::from(Entry {
                index,
                term: 1,
                time: ClusterTime(time),
                wall: WallTime(0),
                command,
            })
        });
    std::iter::once(blank).chain(entries).collect()
}

/// Of seeds 16, 48 and 63 of the simulation: the second revoke was held to be the first one's entry,
/// and so was everything that came before and after it.
#[test]
fn a_repeated_revoke_stands_where_its_answer_says() {
    let mut log = story();
    let again = 1 + log.len() as u64;
    let revoke = log[13].entry.as_ref().unwrap().command.clone();
    log.push(Logged::from(Entry {
        index: again,
        term: 1,
        time: ClusterTime(2_000),
        wall: WallTime(0),
        command: revoke,
    }));
    let revoked = |id: u64, t: u64, index: Option<u64>| {
        let op = Op::Revoke {
            lease: "db".to_owned(),
            token: 2,
            now: false,
        };
        let invoked = Invoked {
            id,
            t: t * 1_000_000,
            client: 9,
            session: None,
            request: None,
            op,
        };
        let returned = Returned {
            id,
            t: (t + 10) * 1_000_000,
            outcome: history::Outcome::Done,
            index,
        };
        [Record::Invoked(invoked), Record::Returned(returned)]
    };
    for told in [Some(again), None] {
        let first = revoked(1, 1_695, Some(14));
        let records = first.into_iter().chain(revoked(2, 1_995, told));
        let recording = Recording::of(Header::new("hand"), records).unwrap();
        let report = witness::check(&recording, log.clone().into_iter().map(Ok::<_, Infallible>));
        assert_eq!(broken(&report.unwrap()), [""; 0], "{told:?}");
    }
    // Neither is in the log where it is said to be.
    let elsewhere = revoked(1, 1_695, Some(13));
    let recording = Recording::of(Header::new("hand"), elsewhere.to_vec()).unwrap();
    let report = witness::check(&recording, log.into_iter().map(Ok::<_, Infallible>));
    assert!(!broken(&report.unwrap()).is_empty());
}
