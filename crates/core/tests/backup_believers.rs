//! What a backup keeps of holders that may still believe.
#![allow(clippy::unwrap_used)]

mod world;

use ringfence_core::{
    Acquire, Acquired, Ask, BackupContents, BackupDigest, BackupHeader, ClusterId, ClusterTime,
    Command, Configure, Entry, Evict, FencingToken, Form, HolderData, Identity, LeaseName, Millis,
    Mode, Open, OpenForPod, OpenId, Outcome, Pod, PodText, Request, RequestNumber, Restored,
    Revoke, Secret, Seed, SessionId, StateMachine, WallTime,
};
use world::{World, opened};

fn name() -> LeaseName {
    LeaseName::parse("db/primary").unwrap()
}

fn acquire(session: SessionId, id: u8) -> Command {
    Command::Request(Request {
        session,
        secret: Secret::new([id; 16]),
        number: RequestNumber::FIRST,
        lowest: RequestNumber::FIRST,
        ask: Ask::Acquire(Acquire {
            name: name(),
            wait: None,
            data: HolderData::default(),
            lock_delay: Millis(0),
        }),
    })
}

fn token_of(outcome: Outcome) -> FencingToken {
    match outcome {
        Outcome::Acquired(Acquired::Granted(granted)) => granted.token,
        other => panic!("{other:?}"),
    }
}

fn open(id: u8, ttl: Millis) -> Command {
    Command::Open(Open {
        id: OpenId::new([id; 16]),
        secret: Secret::new([id; 16]),
        seen: None,
        ttl,
        identity: Identity::parse("someone").unwrap(),
        acquire: None,
    })
}

/// A cluster that is restored from what is there now, with entries for it.
struct Successor {
    machine: StateMachine,
    index: u64,
    time: u64,
}

impl Successor {
    fn of(lost: &World) -> Self {
        let records = lost.machine.freeze();
        let records: Vec<_> = records.backup().unwrap().collect();
        let contents = BackupContents::from_records(records).unwrap();
        let BackupHeader {
            cluster,
            settings,
            tokens,
            token_floor,
            ttl_greatest,
            next_session,
            versions,
            ..
        } = contents.header;
        let digest = BackupDigest::new([7; 32]);
        let mut successor = Self {
            machine: StateMachine::new(),
            index: 0,
            time: 0,
        };
        successor.apply(Command::TermStart {
            unix_seconds: Some(1_800_000_000),
        });
        let formed = successor.apply(Command::Form(Form {
            cluster: ClusterId::new([9; 16]),
            token_floor: None,
            settings,
            mode: Mode::Off,
            quiet_time: Millis(0),
            restored: Some(Restored {
                lineage: vec![cluster],
                digest,
                parts: 1,
                tokens: tokens.reached(),
                token_floor,
                sessions: next_session,
                versions,
                ttl_greatest,
                drill: false,
            }),
        }));
        assert!(matches!(formed, Outcome::Done), "{formed:?}");
        let seeded = successor.apply(Command::Seed(Seed {
            digest,
            part: 0,
            access: contents.access,
            held: contents.pods,
            secret: Secret::new([8; 16]),
        }));
        assert!(matches!(seeded, Outcome::Done), "{seeded:?}");
        successor
    }

    fn apply(&mut self, command: Command) -> Outcome {
        self.index += 1;
        let entry = Entry {
            index: self.index,
            term: 1,
            time: ClusterTime(self.time),
            wall: WallTime(0),
            command,
        };
        self.machine.apply(&entry, &mut Vec::new())
    }

    /// What another client gets that asks when so much time has passed.
    fn asked_after(&mut self, passed: u64) -> Outcome {
        self.time = passed;
        let session = opened(self.apply(open(5, Millis(15_000))));
        self.apply(acquire(session, 5))
    }
}

fn revoke(token: FencingToken) -> Command {
    Command::Revoke(Revoke {
        name: name(),
        token,
        now: false,
        reason: String::new(),
        operator: String::new(),
    })
}

/// A holder in a Pod was asked to stop and has not said that it did: no time ends its belief. So neither
/// the lost cluster nor the restored one grants the name until then.
#[test]
fn a_pod_that_has_not_acknowledged_its_revoke_is_not_overtaken_after_a_restore() {
    let mut world = World::new();
    let text = PodText {
        namespace: "shop",
        name: "controller-0",
        uid: "0a1b2c3d-0000-4000-8000-000000000001",
        container: "main",
    };
    let holder = opened(world.apply(Command::OpenForPod(OpenForPod {
        id: OpenId::new([1; 16]),
        secret: Secret::new([1; 16]),
        seen: None,
        identity: Identity::parse("controller").unwrap(),
        pod: Pod::parse(text).unwrap(),
    })));
    let token = token_of(world.apply(acquire(holder, 1)));
    assert!(matches!(world.apply(revoke(token)), Outcome::Done));

    // The lost cluster waits for the Pod, however long it takes.
    let mut successor = Successor::of(&world);
    world.time = ClusterTime(30 * 86_400_000);
    let other = opened(world.apply(open(2, Millis(15_000))));
    let here = world.apply(acquire(other, 2));
    assert!(
        !matches!(here, Outcome::Acquired(Acquired::Granted(_))),
        "{here:?}"
    );

    let there = successor.asked_after(7 * 60_000);
    assert!(
        !matches!(there, Outcome::Acquired(Acquired::Granted(_))),
        "the lost cluster says {here:?}; the restored one says {there:?} while the Pod still believes"
    );
}

/// An evicted session may believe for its TTL. It is no living session any more, so a `max-ttl` that
/// was lowered before the backup leaves it out of the quiet time.
#[test]
fn an_evicted_holder_is_covered_by_the_quiet_time() {
    evicted_with_a_ttl_of(3_600_000);
}

#[test]
fn so_is_one_with_the_longest_ttl_there_is() {
    evicted_with_a_ttl_of(ringfence_core::TTL_MAX_CEILING.0);
}

fn evicted_with_a_ttl_of(ttl: u64) {
    let mut world = World::new();
    let configure = |world: &World, ttl_max| {
        let mut settings = *world.machine.settings();
        settings.ttl_max = Millis(ttl_max);
        Command::Configure(Configure {
            based_on: world.machine.settings_set_at(),
            settings,
        })
    };
    let command = configure(&world, ttl);
    assert!(matches!(world.apply(command), Outcome::Done));
    let holder = opened(world.apply(open(1, Millis(ttl))));
    token_of(world.apply(acquire(holder, 1)));
    let command = configure(&world, 60_000);
    assert!(matches!(world.apply(command), Outcome::Done));
    let mut successor_living = Successor::of(&world);
    let evicted = world.apply(Command::Evict(Evict {
        session: holder,
        reason: String::new(),
        operator: String::new(),
    }));
    assert!(matches!(evicted, Outcome::Closed { .. }), "{evicted:?}");

    let mut successor = Successor::of(&world);
    world.time = ClusterTime(ttl / 2);
    let other = opened(world.apply(open(2, Millis(15_000))));
    let here = world.apply(acquire(other, 2));
    assert!(
        !matches!(here, Outcome::Acquired(Acquired::Granted(_))),
        "{here:?}"
    );
    let living = successor_living.asked_after(ttl / 2);
    assert!(
        !matches!(living, Outcome::Acquired(Acquired::Granted(_))),
        "{living:?}"
    );

    let there = successor.asked_after(ttl / 2);
    assert!(
        !matches!(there, Outcome::Acquired(Acquired::Granted(_))),
        "the lost cluster says {here:?}; the restored one says {there:?}, half an hour before the \
         evicted holder's window ends"
    );
}
