//! Survivors: what is in their backup, and what a crash in the middle leaves.

use ringfence_core::{ClusterTime, Command, Form, Millis, Mode, Settings, WallTime};
use ringfence_proto::record::encode_command;
use ringfence_wal::sim::{Crash, Fault, SimFs};
use ringfence_wal::{EntryId, Options, Wal};

use super::*;
use crate::types::proposal::Proposal;

const CLUSTER: ClusterId = ClusterId::new([1; 16]);
const DATA: &str = "/data";

/// A stopped member whose log holds these commands behind each other, in term 3.
fn member(commands: &[Command]) -> SimFs {
    let fs = SimFs::with_dir(Path::new(DATA));
    let identity = Identity {
        seat: Some(Seat {
            cluster: CLUSTER,
            node_id: 3,
        }),
        ..Identity::unseated("n3")
    };
    identity.save(&fs, Path::new(DATA)).unwrap();
    let wal = Path::new(DATA).join(WAL_DIR);
    fs.make_dir(&wal).unwrap();
    fs.sync_dir(Path::new(DATA)).unwrap();
    let options = Options {
        segment_bytes: 64 << 10,
        ..Options::new(identity.file_header())
    };
    let (log, _) = Wal::open_in(Arc::new(fs.clone()), &wal, options).unwrap();
    let entries = (1..).zip(commands).map(|(index, command)| LogEntry {
        id: EntryId { term: 3, index },
        payload: {
            let command = encode_command(command);
            let proposal = Proposal::new(ClusterTime(index), WallTime(1_000), &command);
            codec::payload_to_bytes(&Payload::Normal(proposal))
        },
    });
    let (tell, done) = std::sync::mpsc::channel();
    let written = Box::new(move |result| tell.send(result).unwrap());
    log.append(entries.collect(), written);
    done.recv().unwrap().unwrap();
    log.close();
    fs
}

fn formed() -> Vec<Command> {
    let form = Form {
        cluster: CLUSTER,
        token_floor: Some(0),
        settings: Settings::STANDARD,
        mode: Mode::Off,
        quiet_time: Millis(0),
        restored: None,
    };
    let start = Command::TermStart { unix_seconds: None };
    vec![start, Command::Form(form), Command::DrawNodeId]
}

/// What [`recover`] does with the directory.
fn recovered(fs: &SimFs, accept_loss: ClusterId) -> Result<(u64, u64), RecoverError> {
    let files: Arc<dyn Fs> = Arc::new(fs.clone());
    let survivor = Survivor::find(files, Path::new(DATA), accept_loss)?;
    let (term, index, state) = survivor.load()?;
    survivor.retire()?;
    assert_eq!((state.cluster(), state.index()), (Some(CLUSTER), index));
    Ok((term, index))
}

fn is_retired(fs: &SimFs) -> bool {
    let identity = Identity::load(fs, Path::new(DATA)).unwrap();
    identity.is_some_and(|identity| identity.retired)
}

#[test]
fn a_survivor_is_retired_and_gives_all_of_its_log() {
    let fs = member(&formed());
    assert_eq!(recovered(&fs, CLUSTER).unwrap(), (3, 3));
    assert!(is_retired(&fs));
    assert_eq!(recovered(&fs, CLUSTER).unwrap(), (3, 3), "it is repeated");
}

#[test]
fn the_name_of_another_cluster_changes_nothing() {
    let fs = member(&formed());
    let refused = recovered(&fs, ClusterId::new([9; 16])).unwrap_err();
    assert!(matches!(refused, RecoverError::OtherCluster { found, .. } if found == CLUSTER));
    assert!(!is_retired(&fs));
}

/// Whether the cluster was never formed, or this member only lagged, its own log does not say.
#[test]
fn a_survivor_without_the_forming_is_left_and_claims_nothing_of_the_others() {
    let fs = member(&formed()[..1]);
    let refused = recovered(&fs, CLUSTER).unwrap_err();
    assert!(
        matches!(refused, RecoverError::NotFormed { term: 3, index: 1 }),
        "{refused}"
    );
    let why = refused.to_string();
    assert!(why.contains("recover another survivor"), "{why}");
    assert!(!is_retired(&fs));
}

#[test]
fn a_survivor_that_cannot_be_read_is_not_retired() {
    let fs = member(&formed());
    fs.empty_dir(&Path::new(DATA).join(WAL_DIR));
    recovered(&fs, CLUSTER).unwrap_err();
    assert!(!is_retired(&fs));
}

#[test]
fn a_node_that_lost_what_it_acknowledged_is_no_survivor() {
    let fs = member(&formed());
    let identity = Identity::load(&fs, Path::new(DATA)).unwrap().unwrap();
    let forgetful = Identity {
        forgot: Some((3, 9)),
        ..identity
    };
    forgetful.save(&fs, Path::new(DATA)).unwrap();
    let refused = recovered(&fs, CLUSTER).unwrap_err();
    assert!(
        matches!(
            refused,
            RecoverError::Forgot {
                term: 3,
                acknowledged: 9,
                ..
            }
        ),
        "{refused}"
    );
    assert!(!is_retired(&fs));
}

/// Either the node can start again and there is no backup, or it cannot and the backup can be made.
#[test]
fn a_crash_at_each_change_leaves_one_cluster_or_none() {
    let whole = member(&formed());
    let before = whole.changes();
    recovered(&whole.fork(), CLUSTER).unwrap();
    let crashes = [Crash::ProcessOnly, Crash::LoseAll, Crash::Subset(7)];
    let (mut left, mut retired) = (0, 0);
    for at in before..before + 20 {
        for crash in crashes {
            let fs = whole.fork();
            fs.plant(Fault::Stop(at));
            let done = recovered(&fs, CLUSTER);
            fs.crash(crash);
            match is_retired(&fs) {
                true => retired += 1,
                false => {
                    left += 1;
                    assert!(
                        done.is_err(),
                        "a backup of a node that goes on: change {at}, {crash:?}"
                    );
                }
            }
            assert_eq!(
                recovered(&fs, CLUSTER).unwrap(),
                (3, 3),
                "change {at}, {crash:?}"
            );
            assert!(is_retired(&fs), "change {at}, {crash:?}");
        }
    }
    assert!(left > 3 && retired > 3, "{left} left, {retired} retired");
}
