//! Who holds a term: who renews it, who gives it back, and what keeps others out.

use ringfence_core::{
    ClusterTime, Command, Identity, Millis, ObjectMetadata, ObjectSpec, ObjectWrite, OpenId,
    Rejection, Secret,
};

use crate::bench::{Bench, Elector, ONE, TWO, held, name, put, rejection, written};

#[test]
fn each_write_of_the_holder_is_its_keep_alive_and_keeps_its_token() {
    let mut bench = Bench::new();
    let token = bench.acquire(ONE);
    for _ in 0..100 {
        bench.pass(Millis::from_secs(14));
        assert_eq!(bench.acquire(ONE), token);
        assert!(matches!(
            rejection(bench.put(TWO, TWO.identity)),
            Rejection::Held { .. }
        ));
    }
    assert_eq!(bench.object().unwrap().transitions, 0);
    // The time to live is one and a half of the duration.
    bench.pass(Millis(15_000));
    let next = bench.acquire(TWO);
    assert!(next > token);
    assert_eq!(bench.object().unwrap().transitions, 1);
}

#[test]
fn no_other_process_renews_or_releases() {
    let imitator = Elector {
        identity: "one",
        pod: Some("uid-2"),
    };
    let without_pod = Elector {
        identity: "one",
        pod: None,
    };
    let mut bench = Bench::new();
    let token = bench.acquire(ONE);
    for by in [imitator, without_pod, TWO] {
        for holder in ["one", "two", ""] {
            let refused = rejection(bench.put(by, holder));
            assert!(matches!(refused, Rejection::Held { .. }), "{holder:?}");
        }
    }
    assert_eq!(bench.acquire(ONE), token);
    let released = bench.put(ONE, "");
    assert_eq!(written(&released).held, None);
    assert_eq!(bench.holder(), None);
    assert!(bench.acquire(TWO) > token);
}

#[test]
fn a_process_that_its_principal_alone_proves_renews_and_does_not_release() {
    let alone = Elector {
        identity: "one",
        pod: None,
    };
    let mut bench = Bench::new();
    let token = bench.acquire(alone);
    assert_eq!(bench.acquire(alone), token);
    assert!(matches!(
        rejection(bench.put(alone, "")),
        Rejection::Held { .. }
    ));
    assert_eq!(bench.holder().as_deref(), Some("one"));
}

#[test]
fn a_process_that_has_started_again_is_granted_a_new_token() {
    let mut bench = Bench::new();
    let first = bench.acquire(ONE);
    let (version, spec) = (bench.version(), bench.spec(ONE.identity));
    let new_term = ObjectSpec {
        new_term: true,
        ..spec
    };
    let done = bench.write_at(version, ONE, put(Some(new_term)));
    assert!(held(&done) > Some(first), "{done:?}");
}

#[test]
fn metadata_is_no_keep_alive() {
    let mut bench = Bench::new();
    bench.acquire(ONE);
    for _ in 0..15 {
        bench.pass(Millis::from_secs(1));
        let version = bench.version();
        let annotated = ObjectWrite::Put {
            metadata: ObjectMetadata::new(&version.unwrap().to_be_bytes()).unwrap(),
            spec: None,
        };
        let done = bench.write_at(version, ONE, annotated);
        assert_eq!(held(&done), None);
    }
    assert_eq!(bench.holder(), None);
}

#[test]
fn a_native_holder_keeps_electors_out() {
    let mut bench = Bench::new();
    bench.put(ONE, "");
    let open = ringfence_core::Open {
        id: OpenId::new([99; 16]),
        secret: Secret::new([99; 16]),
        seen: None,
        ttl: Millis::from_secs(10),
        identity: Identity::parse("native").unwrap(),
        acquire: Some(ringfence_core::Acquire {
            name: name(),
            wait: None,
            data: ringfence_core::HolderData::default(),
            lock_delay: Millis(0),
        }),
    };
    let version = bench.version();
    bench.world.apply(Command::Open(open));
    assert!(bench.version() > version, "a grant changes the object");
    assert_eq!(bench.holder().as_deref(), Some("native"));
    for holder in ["one", "native", ""] {
        let refused = rejection(bench.put(ONE, holder));
        assert!(matches!(refused, Rejection::Held { .. }));
    }
    bench.pass(Millis::from_secs(10));
    bench.acquire(ONE);
    assert_eq!(bench.world.time, ClusterTime(10_000));
}
