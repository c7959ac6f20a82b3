//! Leases that are held through sessions, as the Lease endpoint shows them.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // Other tests use more of it.
mod world;

use ringfence_core::{
    Acquire, Acquired, Ask, ClusterTime, Command, HolderData, Identity, LEVEL_OBJECTS,
    LEVEL_REPEATS, LEVEL_RESTORE, LeaseName, Millis, NAMESPACE_OBJECTS_MAX, ObjectMetadata,
    ObjectView, ObjectWrite, Open, OpenId, Outcome, Renew, Request, RequestNumber, Secret,
    SessionId, Settings, WallTime, WriteObject,
};
use world::{World, opened};

const TTL: Millis = Millis(10_000);

fn name(raw: &str) -> LeaseName {
    LeaseName::parse(raw).unwrap()
}

/// Opens a session that holds this lease.
fn hold(world: &mut World, lease: &str, id: u8) -> SessionId {
    let open = Open {
        id: OpenId::new([id; 16]),
        secret: Secret::new([id; 16]),
        seen: None,
        ttl: TTL,
        identity: Identity::parse("native").unwrap(),
        acquire: Some(acquire(lease)),
    };
    opened(world.apply(Command::Open(open)))
}

fn renew(world: &mut World, session: SessionId) {
    world.apply(Command::Renew(Renew {
        sessions: vec![session],
        acknowledged: Vec::new(),
    }));
}

fn web(world: &World) -> Option<ObjectView> {
    world.machine.object(&name("k8s/shop/web"))
}

fn at_newest_level() -> World {
    let mut world = World::formed(LEVEL_RESTORE, Settings::STANDARD);
    world.time = ClusterTime(1_000_000);
    world
}

fn request(world: &mut World, session: SessionId, id: u8, number: u64, ask: Ask) -> Outcome {
    let number = RequestNumber::new(number).unwrap();
    world.apply(Command::Request(Request {
        session,
        secret: Secret::new([id; 16]),
        number,
        lowest: number,
        ask,
    }))
}

fn acquire(lease: &str) -> Acquire {
    Acquire {
        name: name(lease),
        wait: None,
        data: HolderData::default(),
        lock_delay: Millis(0),
    }
}

/// Writes metadata of an object through the endpoint.
fn annotate(world: &mut World) {
    let write = WriteObject {
        name: name("k8s/shop/web"),
        version: web(world).map(|object| object.version),
        pod: None,
        watched: None,
        write: ObjectWrite::Put {
            metadata: ObjectMetadata::new(b"owner").unwrap(),
            spec: None,
        },
    };
    let written = world.apply(Command::WriteObject(Box::new(write)));
    assert!(matches!(written, Outcome::Object(_)), "{written:?}");
}

#[test]
fn a_lease_that_a_session_holds_has_an_object() {
    let mut world = at_newest_level();
    hold(&mut world, "k8s/shop/web", 1);
    let object = web(&world).unwrap();
    let (holder, token) = object.holder.clone().unwrap();
    let grant = world.machine.get(&object.name).unwrap().holder.unwrap();
    assert_eq!((holder.as_str(), token), ("native", grant.token));
    assert_eq!((object.seconds, object.transitions), (10, 0));
    assert_eq!(object.acquired, WallTime(world.time.0));
    let listed: Vec<ObjectView> = world.machine.objects("k8s/", None).collect();
    assert_eq!(listed, std::slice::from_ref(&object));
    let changed = world.machine.objects_changed_after(0);
    assert_eq!(changed.count(), 1);
}

#[test]
fn the_object_of_a_sessions_lease_goes_when_the_lease_is_free() {
    let mut world = at_newest_level();
    hold(&mut world, "k8s/shop/web", 1);
    let object = web(&world).unwrap();
    world.time = world.time.after(TTL);
    world.apply(Command::Tick);
    assert_eq!(web(&world), None);
    // A watch that knew it is sent its deletion.
    let gone: Vec<_> = world.machine.objects_gone_after(object.version).collect();
    let [(_, deleted, gone)] = gone[..] else {
        panic!("{gone:?}");
    };
    assert_eq!((deleted, gone.created), (&object.name, object.created));
    hold(&mut world, "k8s/shop/web", 2);
    assert!(web(&world).unwrap().created > object.created);
}

#[test]
fn a_namespace_has_room_for_objects_after_any_number_of_short_leases() {
    let mut world = at_newest_level();
    let session = hold(&mut world, "k8s/shop/web", 1);
    for number in 1..=NAMESPACE_OBJECTS_MAX + 1 {
        let lease = format!("k8s/shop/job-{number}");
        let outcome = request(
            &mut world,
            session,
            1,
            number * 2,
            Ask::Acquire(acquire(&lease)),
        );
        let Outcome::Acquired(Acquired::Granted(granted)) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(world.machine.object(&name(&lease)).is_some(), "{lease}");
        let release = Ask::Release {
            name: name(&lease),
            token: granted.token,
            close: false,
        };
        request(&mut world, session, 1, number * 2 + 1, release);
    }
    assert_eq!(world.machine.objects("", None).count(), 1);
}

#[test]
fn the_object_stays_when_the_lease_goes_to_a_waiter() {
    let mut world = at_newest_level();
    hold(&mut world, "k8s/shop/web", 1);
    let object = web(&world).unwrap();
    let waiter = hold(&mut world, "db/other", 2);
    let waits = Acquire {
        wait: Some(Millis(60_000)),
        ..acquire("k8s/shop/web")
    };
    request(&mut world, waiter, 2, 2, Ask::Acquire(waits));
    world.time = world.time.after(Millis(9_999));
    renew(&mut world, waiter);
    world.time = world.time.after(Millis(1));
    world.apply(Command::Tick);
    let next = web(&world).unwrap();
    assert!(next.holder.is_some());
    assert_eq!((next.created, next.transitions), (object.created, 1));
}

#[test]
fn an_object_that_was_written_through_the_endpoint_stays() {
    let mut world = at_newest_level();
    hold(&mut world, "k8s/shop/web", 1);
    annotate(&mut world);
    let object = web(&world).unwrap();
    world.time = world.time.after(TTL);
    world.apply(Command::Tick);
    let free = web(&world).unwrap();
    assert_eq!((free.holder, free.created), (None, object.created));
    hold(&mut world, "k8s/shop/web", 2);
    assert_eq!(web(&world).unwrap().transitions, 1);
}

#[test]
fn only_names_of_kubernetes_have_objects() {
    let mut world = at_newest_level();
    for (lease, id) in [("db/primary", 1), ("k8s/shop/Web", 2), ("k8s/shop/a/b", 3)] {
        let session = hold(&mut world, lease, id);
        renew(&mut world, session);
    }
    assert_eq!(world.machine.objects("", None).count(), 0);
}

#[test]
fn a_keep_alive_is_shown_and_changes_no_object() {
    let mut world = at_newest_level();
    let session = hold(&mut world, "k8s/shop/web", 1);
    let version = world.machine.objects_version();
    for _ in 0..10 {
        world.time = world.time.after(Millis(4_000));
        renew(&mut world, session);
        let heard = world.time;
        world.time = world.time.after(Millis(1_000));
        world.apply(Command::Tick);
        assert_eq!(web(&world).unwrap().renewed, WallTime(heard.0));
    }
    assert_eq!(world.machine.objects_version(), version);
}

#[test]
fn below_the_level_keep_alives_change_an_object_once_in_half_a_ttl() {
    let mut world = World::formed(LEVEL_OBJECTS, Settings::STANDARD);
    let session = hold(&mut world, "k8s/shop/web", 1);
    let mut versions = vec![web(&world).unwrap().version];
    let rounds = 100;
    for _ in 0..rounds {
        world.time = world.time.after(Millis(500));
        renew(&mut world, session);
        versions.push(web(&world).unwrap().version);
    }
    versions.dedup();
    // 50 s of keep-alives, and one change in each 5 s.
    assert_eq!(versions.len(), 1 + 10);
    // And objects stay, as in older releases.
    world.time = world.time.after(TTL);
    world.apply(Command::Tick);
    assert!(web(&world).is_some());
}

#[test]
fn what_was_held_before_there_were_objects_is_shown_with_duration_and_times() {
    for between in [None, Some(LEVEL_OBJECTS)] {
        let mut world = World::formed(LEVEL_REPEATS, Settings::STANDARD);
        world.time = ClusterTime(1_000_000);
        let session = hold(&mut world, "k8s/shop/web", 1);
        let acquired = WallTime(world.time.0);
        world.time = world.time.after(Millis(3_000));
        renew(&mut world, session);
        assert_eq!(web(&world), None);
        if let Some(level) = between {
            world.apply(Command::RaiseLevel { level });
            renew(&mut world, session);
            assert_eq!(web(&world).unwrap().seconds, 10);
        }
        world.apply(Command::RaiseLevel {
            level: LEVEL_RESTORE,
        });
        let object = web(&world).unwrap();
        assert!(object.holder.is_some());
        assert_eq!(object.seconds, 10);
        assert_eq!(object.renewed, WallTime(world.time.0));
        if between.is_none() {
            assert_eq!(object.acquired, acquired);
        }
    }
}
