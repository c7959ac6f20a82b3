//! A rehearsed write is answered as the write itself, also where none is done.

use ringfence_core::{
    BackupDigest, ClusterId, ClusterTime, Command, Entry, Event, Form, LEVEL_RESTORE, LeaseName,
    Millis, Mode, ObjectSpec, Outcome, Rejection, Restored, Settings, StateMachine, WallTime,
    WriteObject,
};

use crate::bench::{Bench, ONE, TWO, put, written};

fn write(bench: &mut Bench, name: &str, spec: ObjectSpec) -> Command {
    let name = LeaseName::parse(name).unwrap();
    let version = bench
        .world
        .machine
        .object(&name)
        .map(|object| object.version);
    Command::WriteObject(Box::new(WriteObject {
        name,
        version,
        pod: None,
        watched: None,
        write: put(Some(spec)),
    }))
}

#[test]
fn the_id_of_another_open_is_known_to_a_rehearsal() {
    let mut bench = Bench::at(LEVEL_RESTORE);
    let spec = bench.spec(ONE.identity);
    let version = bench.version();
    written(&bench.write_at(version, ONE, put(Some(spec.clone()))));
    let again = write(&mut bench, "k8s/shop/api", spec);
    let rehearsed = bench.world.machine.rehearse_object_write(&again);
    assert_eq!(rehearsed, Outcome::Rejected(Rejection::OpenIdUsed));
    assert_eq!(bench.world.apply(again), rehearsed);
}

#[test]
fn a_rehearsal_waits_for_the_cluster_and_for_its_restored_state() {
    let mut bench = Bench::at(LEVEL_RESTORE);
    let spec = bench.spec(TWO.identity);
    let asked = write(&mut bench, "k8s/shop/web", spec);
    let mut machine = StateMachine::new();
    let mut index = 0;
    let mut apply = |machine: &mut StateMachine, command: &Command| {
        index += 1;
        let entry = Entry {
            index,
            term: 1,
            time: ClusterTime(0),
            wall: WallTime(0),
            command: command.clone(),
        };
        let mut events: Vec<Event> = Vec::new();
        machine.apply(&entry, &mut events)
    };
    let start = Command::TermStart {
        unix_seconds: Some(1_700_000_000),
    };
    apply(&mut machine, &start);
    let not_ready = Outcome::Rejected(Rejection::NotReady);
    assert_eq!(machine.rehearse_object_write(&asked), not_ready);
    assert_eq!(apply(&mut machine, &asked), not_ready);

    let form = Command::Form(Form {
        cluster: ClusterId::new([1; 16]),
        token_floor: None,
        settings: Settings::STANDARD,
        mode: Mode::Off,
        quiet_time: Millis(0),
        restored: Some(Restored {
            lineage: vec![],
            digest: BackupDigest::new([7; 32]),
            parts: 1,
            tokens: 5,
            token_floor: None,
            sessions: 5,
            versions: 5,
            ttl_greatest: Millis(0),
            drill: true,
        }),
    });
    assert_eq!(apply(&mut machine, &form), Outcome::Done);
    assert_eq!(machine.rehearse_object_write(&asked), not_ready);
    assert_eq!(apply(&mut machine, &asked), not_ready);
}
