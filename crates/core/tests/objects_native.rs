//! Leases that are held through sessions, as the Lease endpoint shows them.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // Other tests use more of it.
mod world;

use ringfence_core::{
    Acquire, Command, HolderData, Identity, LEVEL_OBJECTS, LEVEL_REPEATS, LeaseName, Millis,
    ObjectView, Open, OpenId, Renew, Secret, SessionId, Settings,
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
        acquire: Some(Acquire {
            name: name(lease),
            wait: None,
            data: HolderData::default(),
            lock_delay: Millis(0),
        }),
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

#[test]
fn a_lease_that_a_session_holds_has_an_object_until_it_is_deleted() {
    let mut world = World::formed(LEVEL_OBJECTS, Settings::STANDARD);
    hold(&mut world, "k8s/shop/web", 1);
    let object = web(&world).unwrap();
    let (holder, token) = object.holder.clone().unwrap();
    let grant = world.machine.get(&object.name).unwrap().holder.unwrap();
    assert_eq!((holder.as_str(), token), ("native", grant.token));
    assert_eq!((object.seconds, object.transitions), (10, 0));
    let listed: Vec<ObjectView> = world.machine.objects("k8s/", None).collect();
    assert_eq!(listed, std::slice::from_ref(&object));
    let changed = world.machine.objects_changed_after(0);
    assert_eq!(changed.count(), 1);
    // The object stays with no holder, and the next grant is a transition.
    world.time = world.time.after(TTL);
    world.apply(Command::Tick);
    let free = web(&world).unwrap();
    assert_eq!((free.holder, free.created), (None, object.created));
    hold(&mut world, "k8s/shop/web", 2);
    assert_eq!(web(&world).unwrap().transitions, 1);
}

#[test]
fn only_names_of_kubernetes_have_objects() {
    let mut world = World::formed(LEVEL_OBJECTS, Settings::STANDARD);
    for (lease, id) in [("db/primary", 1), ("k8s/shop/Web", 2), ("k8s/shop/a/b", 3)] {
        let session = hold(&mut world, lease, id);
        renew(&mut world, session);
    }
    assert_eq!(world.machine.objects("", None).count(), 0);
}

#[test]
fn keep_alives_change_an_object_at_most_once_in_half_a_ttl() {
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
}

#[test]
fn what_was_held_before_there_were_objects_is_shown_with_its_next_keep_alive() {
    let mut world = World::formed(LEVEL_REPEATS, Settings::STANDARD);
    let session = hold(&mut world, "k8s/shop/web", 1);
    renew(&mut world, session);
    assert_eq!(web(&world), None);
    world.apply(Command::RaiseLevel {
        level: LEVEL_OBJECTS,
    });
    renew(&mut world, session);
    assert!(web(&world).unwrap().holder.is_some());
}
