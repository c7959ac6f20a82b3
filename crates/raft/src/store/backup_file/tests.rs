//! Backups as files: what is in them, what is never in them, and damage.

use std::fs;

use ringfence_core::*;

use super::*;
use crate::store::backup_output::BackupOutput;

const SECRET: [u8; 16] = *b"a session secret";
const TOKEN_DIGEST: [u8; 32] = *b"the digest of a token, 32 bytes.";

fn name(raw: &str) -> LeaseName {
    LeaseName::parse(raw).unwrap()
}

fn acquire(raw: &str) -> Acquire {
    Acquire {
        name: name(raw),
        wait: None,
        data: HolderData::new(b"").unwrap(),
        lock_delay: Millis(0),
    }
}

fn open(id: u8, ttl: u64, acquires: &str) -> Command {
    Command::Open(Open {
        id: OpenId::new([id; 16]),
        secret: Secret::new(SECRET),
        seen: None,
        ttl: Millis(ttl),
        identity: Identity::parse("alice").unwrap(),
        acquire: Some(acquire(acquires)),
    })
}

fn pod() -> Pod {
    let text = PodText {
        namespace: "shop",
        name: "controller-0",
        uid: "6f1c9a52-7d3e-4a8f-9b21-0c5d8e7f6a34",
        container: "",
    };
    Pod::parse(text).unwrap()
}

/// A cluster with two holders with TTLs, one bound to a Pod, a rule and a cluster token.
fn machine() -> StateMachine {
    let pattern = PrincipalPattern::parse("token:ci").unwrap();
    let rule = Rule {
        principals: pattern,
        verb: Verb::Backup,
        names: None,
    };
    let token = ClusterToken {
        principal: Principal::parse("token:ci").unwrap(),
        digest: TOKEN_DIGEST,
        expires: None,
    };
    let for_pod = OpenForPod {
        id: OpenId::new([3; 16]),
        secret: Secret::new(SECRET),
        seen: None,
        identity: Identity::parse("controller-0").unwrap(),
        pod: pod(),
    };
    let mut commands = vec![
        Command::TermStart {
            unix_seconds: Some(1_700_000_000),
        },
        Command::Form(Form {
            cluster: ClusterId::new([1; 16]),
            token_floor: None,
            settings: Settings::STANDARD,
            mode: Mode::Off,
            quiet_time: Millis(0),
            restored: None,
        }),
        Command::RaiseLevel { level: 5 },
        open(1, 20_000, "b/one"),
        open(2, 30_000, "a/two"),
        Command::OpenForPod(for_pod),
        Command::Request(Request {
            session: SessionId::new(3).unwrap(),
            secret: Secret::new(SECRET),
            number: RequestNumber::FIRST,
            lowest: RequestNumber::FIRST,
            ask: Ask::Acquire(acquire("c/pod")),
        }),
    ];
    commands.push(Command::ChangeAccess(ChangeAccess {
        cluster: ClusterId::new([1; 16]),
        based_on: 0,
        changes: vec![AccessChange::AddRule(rule), AccessChange::AddToken(token)],
    }));
    let mut machine = StateMachine::new();
    for (index, command) in (1..).zip(commands) {
        let entry = Entry {
            index,
            term: 1,
            time: ClusterTime(index),
            wall: WallTime(1_700_000_000_000 + index),
            command,
        };
        let outcome = machine.apply(&entry, &mut Vec::new());
        let refused = matches!(outcome, Outcome::Rejected(_));
        assert!(!refused, "{:?}: {outcome:?}", entry.command);
    }
    machine
}

fn backup() -> Vec<u8> {
    let mut bytes = Vec::new();
    write_backup(&machine().freeze(), &mut bytes).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> Result<Backup, BackupError> {
    Backup::read_from(Path::new("b"), bytes)
}

fn holds(bytes: &[u8], secret: &[u8]) -> bool {
    bytes.windows(secret.len()).any(|window| window == secret)
}

/// Whether there is a half of the secret, as it is or in the order in which records have its bytes.
fn holds_half(bytes: &[u8], secret: &[u8; 16]) -> bool {
    secret.chunks(8).any(|half| {
        let reversed: Vec<u8> = half.iter().rev().copied().collect();
        holds(bytes, half) || holds(bytes, &reversed)
    })
}

#[test]
fn what_is_no_regular_file_is_refused_before_it_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    for path in [dir.path(), &fifo] {
        match Backup::read(path) {
            Err(BackupError::Io { source, .. }) => {
                assert!(source.to_string().contains("no regular file"), "{source}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_backup_says_what_the_state_says() {
    let machine = machine();
    let mut bytes = Vec::new();
    let digest = write_backup(&machine.freeze(), &mut bytes).unwrap();
    let backup = read(&bytes).unwrap();
    assert_eq!((backup.digest, backup.bytes), (digest, bytes.len() as u64));
    let BackupContents {
        header,
        access,
        floors,
        pods,
    } = backup.contents;
    assert_eq!(header.cluster, ClusterId::new([1; 16]));
    assert_eq!((header.index, header.term), (8, 1));
    assert_eq!(header.wall, WallTime(1_700_000_000_008));
    assert_eq!(header.tokens.granted(), (1_700_000_000 << 20) + 3);
    // The session for life counts for nothing here.
    assert_eq!(header.ttl_greatest, Millis(30_000));
    assert_eq!(header.next_session, 4);
    assert_eq!(floors, 3);
    let held = HeldByPod {
        name: name("c/pod"),
        token: FencingToken::new((1_700_000_000 << 20) + 3).unwrap(),
        pod: pod(),
    };
    assert_eq!(pods, [held]);
    let rules = access
        .iter()
        .filter(|part| matches!(part, AccessRecord::Rule(_)));
    assert_eq!((access.len(), rules.count()), (2, 1));
}

#[test]
fn no_secret_and_no_token_digest_gets_into_a_backup() {
    let machine = machine();
    let mut snapshot = Vec::new();
    for record in machine.records() {
        ringfence_proto::record::encode_record(&record, &mut snapshot);
    }
    // The same bytes are found where they are expected.
    assert!(holds_half(&snapshot, &SECRET) && holds(&snapshot, &TOKEN_DIGEST));
    let backup = backup();
    assert!(holds(&backup, b"token:ci"), "the rule is there");
    assert!(!holds_half(&backup, &SECRET));
    assert!(!holds(&backup, &TOKEN_DIGEST));
}

#[test]
fn a_flipped_or_missing_byte_anywhere_in_a_backup_is_noticed() {
    let bytes = backup();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(read(&damaged).is_err(), "byte {at} flipped");
        assert!(read(&bytes[..at]).is_err(), "cut at byte {at}");
    }
    let longer = read(&[&bytes[..], b"x"].concat()).unwrap_err().to_string();
    assert!(longer.contains("bytes behind the end"), "{longer}");
}

#[test]
fn a_backup_with_another_digest_is_not_the_one_that_was_meant() {
    let read = read(&backup()).unwrap();
    let (digest, path) = (read.digest, Path::new("b"));
    assert_eq!(read.clone().expect(path, digest).unwrap(), read);
    let other = read.expect(path, BackupDigest::new([7; 32])).unwrap_err();
    assert!(other.to_string().contains(&digest.to_string()), "{other}");
    assert!(other.to_string().contains("do not restore"), "{other}");
}

#[test]
fn a_state_that_belongs_to_no_cluster_has_no_backup() {
    let refused = write_backup(&StateMachine::new().freeze(), io::sink()).unwrap_err();
    assert!(refused.to_string().contains("no cluster"), "{refused}");
}

#[test]
fn a_backup_is_there_as_a_whole_or_not_at_all() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("b");
    let files = || {
        let mut names: Vec<_> = fs::read_dir(temp.path()).unwrap().collect();
        names
            .pop()
            .map(|last| (names.len() + 1, last.unwrap().file_name()))
    };
    let mut broken_off = BackupOutput::create(&path, false).unwrap();
    broken_off.write_all(b"half").unwrap();
    assert!(!path.exists());
    drop(broken_off);
    assert_eq!(files(), None, "what was broken off leaves nothing");

    let mut output = BackupOutput::create(&path, false).unwrap();
    let digest = write_backup(&machine().freeze(), &mut output).unwrap();
    assert_eq!(output.finish().unwrap(), digest);
    assert_eq!(files(), Some((1, "b".into())));
    assert_eq!(Backup::read(&path).unwrap().digest, digest);
    #[cfg(unix)]
    {
        let mode = fs::metadata(&path).unwrap().permissions();
        let mode = std::os::unix::fs::PermissionsExt::mode(&mode);
        assert_eq!(mode & 0o777, 0o600);
    }

    let again = BackupOutput::create(&path, false).err().unwrap();
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    let mut output = BackupOutput::create(&path, true).unwrap();
    output.write_all(b"another").unwrap();
    output.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"another");
}

#[test]
fn a_backup_that_comes_first_is_not_overwritten() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("b");
    let output = BackupOutput::create(&path, false).unwrap();
    fs::write(&path, "the first").unwrap();
    let refused = output.finish().unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).unwrap(), b"the first");
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
}
