//! Lease objects: who renews and releases, what an old version does, and how a process that slept
//! through the end of its term is kept from a second one inside the first.
// Over 500 lines because each story is one of the bench at its top.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // Other tests use more of it.
mod world;

use ringfence_core::snapshot::Record;
use ringfence_core::{
    Called, Caller, ClusterTime, Command, FencingToken, Identity, LEVEL_OBJECTS, LEVEL_RESTORE,
    LeaseName, Millis, ObjectMetadata, ObjectSpec, ObjectView, ObjectWrite, ObjectWritten, OpenId,
    Outcome, Pod, PodEnded, PodSeen, PodText, PodUid, Principal, Rejection, Revoke, Secret,
    Settings, StateMachine, WriteObject,
};
use world::World;

const SECONDS: u32 = 10;

/// An elector: what it calls itself, and the Pod that its token names.
#[derive(Clone, Copy)]
struct Elector {
    identity: &'static str,
    pod: Option<&'static str>,
}

const ONE: Elector = Elector {
    identity: "one",
    pod: Some("uid-1"),
};
const TWO: Elector = Elector {
    identity: "two",
    pod: Some("uid-2"),
};

struct Bench {
    world: World,
    opened: u8,
    /// Whether leaders watch the Kubernetes of the electors' Pods.
    watches: bool,
}

impl Bench {
    fn new() -> Self {
        Self::at(LEVEL_OBJECTS)
    }

    fn at(level: u32) -> Self {
        Self {
            world: World::formed(level, Settings::STANDARD),
            opened: 0,
            watches: false,
        }
    }

    /// Lets time pass. What is due then ends, as the leader sees to.
    fn pass(&mut self, length: Millis) {
        self.world.time = self.world.time.after(length);
        self.world.apply(Command::Tick);
    }

    fn object(&self) -> Option<ObjectView> {
        self.world.machine.object(&name())
    }

    fn version(&self) -> Option<u64> {
        self.object().map(|object| object.version)
    }

    fn write_at(&mut self, version: Option<u64>, by: Elector, write: ObjectWrite) -> Outcome {
        let write = WriteObject {
            name: name(),
            version,
            pod: by.pod.map(|pod| PodUid::parse(pod).unwrap()),
            watched: by.pod.filter(|_| self.watches).map(pod),
            write,
        };
        let caller = Caller {
            principal: Principal::parse("sa:prod:shop/web").unwrap(),
            token: None,
            node: 1,
        };
        let command = Command::WriteObject(Box::new(write));
        self.world
            .apply(Command::Called(Box::new(Called { caller, command })))
    }

    fn spec(&mut self, holder: &str) -> ObjectSpec {
        self.opened += 1;
        ObjectSpec {
            holder: Identity::parse(holder).unwrap(),
            seconds: SECONDS,
            new_term: false,
            open: OpenId::new([self.opened; 16]),
            secret: Secret::new([self.opened; 16]),
        }
    }

    /// Writes, on the present version, that `holder` holds the lease.
    fn put(&mut self, by: Elector, holder: &str) -> Outcome {
        let (version, spec) = (self.version(), self.spec(holder));
        self.write_at(version, by, put(Some(spec)))
    }

    fn acquire(&mut self, by: Elector) -> FencingToken {
        let done = self.put(by, by.identity);
        held(&done).unwrap_or_else(|| panic!("{done:?}"))
    }

    fn holder(&self) -> Option<String> {
        let (identity, _) = self.object()?.holder?;
        Some(identity.as_str().to_owned())
    }
}

fn name() -> LeaseName {
    LeaseName::parse("k8s/shop/web").unwrap()
}

fn pod(uid: &str) -> Pod {
    let text = PodText {
        namespace: "shop",
        name: "web-0",
        uid,
        container: "",
    };
    Pod::parse(text).unwrap()
}

fn put(spec: Option<ObjectSpec>) -> ObjectWrite {
    ObjectWrite::Put {
        metadata: ObjectMetadata::default(),
        spec,
    }
}

fn written(outcome: &Outcome) -> &ObjectWritten {
    match outcome {
        Outcome::Object(written) => written,
        other => panic!("{other:?}"),
    }
}

fn held(outcome: &Outcome) -> Option<FencingToken> {
    match outcome {
        Outcome::Object(written) => written.held.map(|(token, _)| token),
        _ => None,
    }
}

fn rejection(outcome: Outcome) -> Rejection {
    match outcome {
        Outcome::Rejected(rejection) => rejection,
        other => panic!("{other:?}"),
    }
}

/// Longer than any term without a renewal.
const LONG: Millis = Millis::from_secs(3_600);

#[test]
fn a_write_on_an_older_version_changes_nothing() {
    let mut bench = Bench::new();
    bench.acquire(ONE);
    let old = bench.version();
    bench.acquire(ONE);
    let spec = bench.spec(ONE.identity);
    let before = bench.object();
    let refused = rejection(bench.write_at(old, ONE, put(Some(spec))));
    assert_eq!(
        refused,
        Rejection::ObjectChanged {
            present: bench.version()
        }
    );
    assert_eq!(bench.object(), before);
    let spec = bench.spec(TWO.identity);
    let refused = rejection(bench.write_at(None, TWO, put(Some(spec))));
    assert!(matches!(refused, Rejection::ObjectChanged { .. }));
}

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
fn a_process_that_slept_through_its_loss_is_refused_for_one_duration() {
    let mut bench = Bench::new();
    let first = bench.acquire(ONE);
    bench.pass(LONG);
    // It wakes into its old term, however much later.
    for _ in 0..9 {
        let refused = rejection(bench.put(ONE, ONE.identity));
        assert!(matches!(refused, Rejection::Owing { .. }), "{refused:?}");
        bench.pass(Millis::from_secs(1));
    }
    assert_eq!(bench.holder(), None);
    // Others are not kept waiting.
    let second = bench.acquire(TWO);
    assert!(second > first);
    bench.put(TWO, "");
    bench.pass(Millis::from_secs(1));
    assert!(bench.acquire(ONE) > second);
}

#[test]
fn what_is_owed_survives_a_deletion() {
    let mut bench = Bench::new();
    bench.acquire(ONE);
    bench.pass(LONG);
    let version = bench.version();
    let deleted = bench.write_at(version, TWO, ObjectWrite::Delete { revoke: None });
    assert!(matches!(deleted, Outcome::Object(_)), "{deleted:?}");
    assert_eq!(bench.object(), None);
    let refused = rejection(bench.put(ONE, ONE.identity));
    assert!(matches!(refused, Rejection::Owing { .. }), "{refused:?}");
}

#[test]
fn who_released_owes_nothing() {
    let mut bench = Bench::new();
    let first = bench.acquire(ONE);
    bench.put(ONE, "");
    assert!(bench.acquire(ONE) > first);
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
fn another_ones_deletion_needs_a_revoke_and_the_next_grant_waits() {
    let mut bench = Bench::new();
    let token = bench.acquire(ONE);
    let version = bench.version();
    let refused = bench.write_at(version, TWO, ObjectWrite::Delete { revoke: None });
    assert!(matches!(rejection(refused), Rejection::Held { .. }));
    let revoke = Revoke {
        name: name(),
        token,
        now: false,
        reason: "kubectl delete".to_owned(),
        operator: String::new(),
    };
    let revoke = Some(revoke);
    let deleted = bench.write_at(version, TWO, ObjectWrite::Delete { revoke });
    assert!(matches!(deleted, Outcome::Object(_)), "{deleted:?}");
    let refused = rejection(bench.put(TWO, TWO.identity));
    assert!(matches!(refused, Rejection::Revoking { .. }), "{refused:?}");
    bench.pass(Millis(15_000));
    assert!(bench.acquire(TWO) > token);
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

/// One renews with a duration of so many seconds.
fn renew(bench: &mut Bench, seconds: u32) -> ObjectWritten {
    let (version, spec) = (bench.version(), bench.spec(ONE.identity));
    let done = bench.write_at(version, ONE, put(Some(ObjectSpec { seconds, ..spec })));
    written(&done).clone()
}

#[test]
fn a_longer_duration_counts_at_once_and_a_shorter_one_from_the_promised_end() {
    let mut bench = Bench::at(LEVEL_RESTORE);
    bench.acquire(ONE);
    renew(&mut bench, 20);
    bench.pass(Millis(29_999));
    assert_eq!(bench.holder().as_deref(), Some("one"));
    renew(&mut bench, 20);
    let shorter = renew(&mut bench, 5);
    let ttl = shorter.held.map(|(_, ttl)| ttl);
    assert_eq!(ttl, Some(Millis(7_500)), "what the holder may believe");
    // It was promised 30 s, and keeps them.
    bench.pass(Millis(22_400));
    renew(&mut bench, 5);
    bench.pass(Millis(7_599));
    assert_eq!(bench.holder().as_deref(), Some("one"));
    renew(&mut bench, 5);
    bench.pass(Millis(7_499));
    assert_eq!(bench.holder().as_deref(), Some("one"));
    bench.pass(Millis(1));
    assert_eq!(bench.holder(), None);
}

#[test]
fn a_shorter_duration_lets_no_other_in_before_the_promised_end() {
    let mut bench = Bench::at(LEVEL_RESTORE);
    bench.acquire(ONE);
    let token = held(&bench.put(ONE, ONE.identity)).unwrap();
    renew(&mut bench, 2);
    let revoke = Some(Revoke {
        name: name(),
        token,
        now: false,
        reason: String::new(),
        operator: String::new(),
    });
    let version = bench.version();
    bench.write_at(version, TWO, ObjectWrite::Delete { revoke });
    // What the answer to its last write but one has promised.
    bench.pass(Millis(14_999));
    let refused = rejection(bench.put(TWO, TWO.identity));
    assert!(matches!(refused, Rejection::Revoking { .. }), "{refused:?}");
    bench.pass(Millis(1));
    assert!(bench.acquire(TWO) > token);
}

#[test]
fn below_the_level_a_shorter_duration_changes_nothing() {
    let mut bench = Bench::new();
    bench.acquire(ONE);
    renew(&mut bench, 5);
    bench.pass(Millis(14_999));
    assert_eq!(bench.holder().as_deref(), Some("one"));
    bench.pass(Millis(1));
    assert_eq!(bench.holder(), None);
}

#[test]
fn versions_only_rise_and_name_each_change() {
    let mut bench = Bench::new();
    let mut last = 0;
    for round in 0..50 {
        let by = if round % 2 == 0 { ONE } else { TWO };
        bench.acquire(by);
        let acquired = bench.version().unwrap();
        assert!(acquired > last);
        let changed: Vec<_> = bench.world.machine.objects_changed_after(last).collect();
        assert_eq!(changed, [(acquired, &name())]);
        bench.put(by, "");
        last = bench.version().unwrap();
        assert!(last > acquired);
    }
    let deleted = bench.write_at(Some(last), ONE, ObjectWrite::Delete { revoke: None });
    let gone = written(&deleted).object.version;
    assert!(gone > last);
    let machine = &bench.world.machine;
    assert_eq!(machine.objects_changed_after(0).count(), 0);
    assert_eq!(machine.objects_gone_after(last).count(), 1);
    assert_eq!(machine.objects_gone_after(gone).count(), 0);
}

#[test]
fn a_state_with_objects_is_restored_from_its_records() {
    let mut bench = Bench::new();
    bench.acquire(ONE);
    bench.pass(LONG);
    bench.acquire(TWO);
    bench.put(ONE, ONE.identity);
    let records: Vec<Record> = bench.world.machine.records().collect();
    let owing = records
        .iter()
        .any(|record| matches!(record, Record::Owing(_)));
    assert!(owing, "{records:?}");
    let restored = StateMachine::restore(records.clone()).unwrap();
    let again: Vec<Record> = restored.records().collect();
    assert_eq!(again, records);
    assert_eq!(restored.object(&name()), bench.object());
}

#[test]
fn the_end_of_a_pod_ends_the_grant_of_the_elector_in_it() {
    let mut bench = Bench::new();
    bench.watches = true;
    let token = bench.acquire(ONE);
    let pods: Vec<&Pod> = bench.world.machine.pods().collect();
    assert_eq!(pods, [&pod("uid-1")]);
    // The restored state knows what it ends with.
    let records: Vec<Record> = bench.world.machine.records().collect();
    bench.world.machine = StateMachine::restore(records).unwrap();
    for uid in ["uid-2", "uid-1"] {
        assert_eq!(bench.holder().as_deref(), Some("one"));
        let uid = PodUid::parse(uid).unwrap();
        let seen = PodSeen::Gone;
        bench.world.apply(Command::PodEnded(PodEnded { uid, seen }));
    }
    assert_eq!(bench.holder(), None);
    assert!(
        !bench
            .world
            .machine
            .has_pod(&PodUid::parse("uid-1").unwrap())
    );
    assert_eq!(bench.world.machine.pods().count(), 0);
    assert!(bench.acquire(TWO) > token);
}

#[test]
fn what_no_leader_watches_ends_with_no_pod() {
    let mut bench = Bench::new();
    bench.acquire(ONE);
    assert_eq!(bench.world.machine.pods().count(), 0);
    // It renews under a node that knows that its Pod is watched.
    bench.watches = true;
    bench.acquire(ONE);
    assert!(
        bench
            .world
            .machine
            .has_pod(&PodUid::parse("uid-1").unwrap())
    );
    bench.put(ONE, "");
    assert_eq!(bench.world.machine.pods().count(), 0);
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
