//! The TTL of a grant of the Lease endpoint: its duration times a setting of the cluster.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // Other tests use more of it.
mod world;

use ringfence_core::{
    Command, Configure, Identity, LEASE_API_FACTOR_MAX, LEASE_API_FACTOR_MIN, LEVEL_ACCESS,
    LEVEL_OBJECTS, LeaseName, Millis, ObjectMetadata, ObjectSpec, ObjectWrite, OpenId, Outcome,
    Rejection, Secret, Settings, WriteObject,
};
use world::World;

const DURATION: Millis = Millis(10_000);

fn name() -> LeaseName {
    LeaseName::parse("k8s/shop/web").unwrap()
}

fn configure(world: &mut World, settings: Settings) -> Outcome {
    let based_on = world.machine.settings_set_at();
    world.apply(Command::Configure(Configure { based_on, settings }))
}

fn factor(lease_api_factor: u32) -> Settings {
    Settings {
        lease_api_factor,
        ..Settings::STANDARD
    }
}

/// The elector with this number renews or acquires.
fn write(world: &mut World, elector: u8) -> Outcome {
    let id = (world.time.0 << 8 | u64::from(elector)).to_be_bytes();
    let id: [u8; 16] = [id, id].concat().try_into().unwrap();
    let spec = ObjectSpec {
        holder: Identity::parse(&elector.to_string()).unwrap(),
        seconds: 10,
        new_term: false,
        open: OpenId::new(id),
        secret: Secret::new(id),
    };
    let write = WriteObject {
        name: name(),
        version: world.machine.object(&name()).map(|object| object.version),
        pod: None,
        watched: None,
        write: ObjectWrite::Put {
            metadata: ObjectMetadata::default(),
            spec: Some(spec),
        },
    };
    world.apply(Command::WriteObject(Box::new(write)))
}

fn pass(world: &mut World, length: Millis) {
    world.time = world.time.after(length);
    world.apply(Command::Tick);
}

fn is_held(world: &World) -> bool {
    world.machine.object(&name()).unwrap().holder.is_some()
}

#[test]
fn the_ttl_is_the_duration_times_the_factor() {
    for lease_api_factor in [LEASE_API_FACTOR_MIN, 1_500, LEASE_API_FACTOR_MAX] {
        let mut world = World::formed(LEVEL_OBJECTS, Settings::STANDARD);
        configure(&mut world, factor(lease_api_factor));
        write(&mut world, 1);
        let ttl = DURATION.0 * u64::from(lease_api_factor) / 1_000;
        pass(&mut world, Millis(ttl - 1));
        assert!(is_held(&world), "{lease_api_factor}");
        pass(&mut world, Millis(1));
        assert!(!is_held(&world), "{lease_api_factor}");
    }
}

#[test]
fn a_factor_below_one_or_above_two_is_refused() {
    let mut world = World::formed(LEVEL_OBJECTS, Settings::STANDARD);
    for out_of_range in [0, LEASE_API_FACTOR_MIN - 1, LEASE_API_FACTOR_MAX + 1] {
        let refused = configure(&mut world, factor(out_of_range));
        assert!(
            matches!(refused, Outcome::Rejected(Rejection::InvalidSetting(_))),
            "{refused:?}"
        );
    }
    assert_eq!(*world.machine.settings(), Settings::STANDARD);
}

#[test]
fn a_holder_renews_though_the_factor_was_raised_beyond_the_greatest_ttl() {
    let mut world = World::formed(LEVEL_OBJECTS, Settings::STANDARD);
    write(&mut world, 1);
    let lowered = Settings {
        ttl_max: Millis(16_000),
        ..factor(LEASE_API_FACTOR_MAX)
    };
    configure(&mut world, lowered);
    pass(&mut world, DURATION);
    let renewed = write(&mut world, 1);
    assert!(matches!(renewed, Outcome::Object(_)), "{renewed:?}");
    pass(&mut world, Millis(15_999));
    assert!(is_held(&world), "it has the greatest TTL there is");
    pass(&mut world, Millis(1));
    assert!(!is_held(&world));
    let refused = write(&mut world, 2);
    assert!(
        matches!(refused, Outcome::Rejected(Rejection::InvalidTtl { .. })),
        "{refused:?}"
    );
}

#[test]
fn below_the_level_of_objects_the_factor_stays() {
    let mut world = World::formed(LEVEL_ACCESS, Settings::STANDARD);
    configure(&mut world, factor(LEASE_API_FACTOR_MAX));
    assert_eq!(*world.machine.settings(), Settings::STANDARD);
}
