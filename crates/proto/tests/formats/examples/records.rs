//! Snapshot records.

use ringfence_core::snapshot::*;
use ringfence_core::*;

use super::*;

pub(crate) fn records() -> Vec<(&'static str, Record)> {
    let (lease, mark) = (name("db/primary"), token(5));
    let header = Header {
        cluster: Some(cluster()),
        level: LEVEL_FIRST,
        token_floor: None,
        settings: Settings::STANDARD,
        settings_set_at: 1,
        index: 42,
        term: 3,
        term_start: ClusterTime(100),
        time: ClusterTime(123_456),
        wall: WallTime(1_700_000_000_123),
        tokens: TokenCounter::restored(1_700_000_000_000_001, 1_700_000_000_000_001),
        next_session: 301,
        next_place: 8,
        forgotten: Some(mark),
        quiet_until: ClusterTime(0),
        unserved: vec![lease.clone(), name("jobs/nightly")],
        versions: 0,
        versions_forgotten: 0,
        lineage: Vec::new(),
        seeding: None,
        audit_dropped: 0,
    };
    let restored = Header {
        level: LEVEL_RESTORE,
        lineage: restored::lineage(),
        seeding: Some(Seeding {
            digest: restored::DIGEST,
            parts: 2,
            done: 1,
        }),
        ..header.clone()
    };
    let secret = Secret::new(SECRET);
    let open = OpenId::new(*b"this open's name");
    let ended = EndedRecord {
        session: session(299),
        open,
        secret,
        cause: SessionEnd::Expired,
        at: ClusterTime(9_000),
        owner: None,
        release: Some(ClosingRelease {
            number: number(3),
            fingerprint: 0x0102_0304_0506_0708,
            token: token(9),
        }),
    };
    let living = SessionRecord {
        id: session(300),
        open,
        secret,
        identity: identity(),
        ttl: Millis(15_000),
        seen: ClusterTime(120_000),
        armed: ClusterTime(135_000),
        lowest: number(5),
        answers: answers(),
        lost: vec![LostGrant {
            name: lease.clone(),
            token: mark,
            cause: EndCause::Expired,
        }],
        owner: None,
        pod: None,
    };
    let owned = SessionRecord {
        owner: Some(access::principal("cert:uri:spiffe://shop/db")),
        ..living.clone()
    };
    let bound = SessionRecord {
        id: session(301),
        ttl: Millis::FOREVER,
        armed: ClusterTime::NEVER,
        pod: Some(pod()),
        ..living.clone()
    };
    let grant = GrantRecord {
        token: mark,
        session: session(300),
        request: number(7),
        data: data(),
        lock_delay: Millis(2_000),
        index: 42,
        since: WallTime(1_700_000_000_123),
    };
    let waiter = WaiterRecord {
        place: 7,
        session: session(9),
        request: number(1),
        until: ClusterTime(200_000),
        data: data(),
        lock_delay: Millis(0),
    };
    let revoked = RevokedHolder {
        session: session(300),
        token: mark,
        until: ClusterTime(140_000),
    };
    let held = LeaseRecord {
        name: lease,
        floor: Some(mark),
        grant: Some(grant),
        blocked: Some(Block {
            lock_delay_until: ClusterTime(1),
            revoked: Some(revoked),
        }),
        idle_since: ClusterTime(2),
        armed: Some(ClusterTime(140_000)),
        revoked: Some(token(8)),
        kept_for: None,
        kept_lost: false,
        queue: vec![waiter],
    };
    let free = LeaseRecord {
        name: name("jobs/nightly"),
        floor: None,
        grant: None,
        blocked: None,
        idle_since: ClusterTime(2),
        armed: Some(ClusterTime(2)),
        revoked: None,
        kept_for: None,
        kept_lost: false,
        queue: vec![],
    };
    let kept = LeaseRecord {
        armed: None,
        kept_for: Some(access::principal("cert:uri:spiffe://shop/db")),
        ..free.clone()
    };
    let counted = LeaseRecord {
        kept_lost: true,
        ..kept.clone()
    };
    let raised = Header {
        level: 3,
        ..header.clone()
    };
    let with_objects = Header {
        level: LEVEL_OBJECTS,
        versions: 1_700_000_000_000_007,
        versions_forgotten: 1_700_000_000_000_002,
        ..header.clone()
    };
    let without_some_acts = Header {
        level: LEVEL_RESTORE,
        audit_dropped: 41,
        ..header.clone()
    };
    let mut records = vec![
        ("header", Record::Header(header)),
        ("header_at_a_level", Record::Header(raised)),
        ("header_with_objects", Record::Header(with_objects)),
        (
            "header_without_some_acts",
            Record::Header(without_some_acts),
        ),
        ("header_restored", Record::Header(restored)),
        ("session", Record::Session(living)),
        ("session_for_pod", Record::Session(bound)),
        ("lease_held", Record::Lease(held)),
        ("lease_free", Record::Lease(free)),
        ("lease_kept_for_a_principal", Record::Lease(kept)),
        ("lease_whose_loss_counts", Record::Lease(counted)),
        ("session_of_a_principal", Record::Session(owned)),
        ("ended", Record::Ended(ended)),
    ];
    records.extend(access::records());
    records.extend(objects::records());
    records
}

fn answers() -> Vec<Remembered> {
    let (name, token) = (name("db/primary"), token(5));
    let answers = [
        Answer::Waiting { name: name.clone() },
        Answer::Granted {
            name: name.clone(),
            token,
        },
        Answer::Ended {
            name: name.clone(),
            token,
            cause: EndCause::Expired,
        },
        Answer::TimedOut { name: name.clone() },
        Answer::Cancelled {
            name: Some(name.clone()),
        },
        Answer::Cancelled { name: None },
        Answer::Released { token },
        Answer::Transferred {
            to: session(9),
            token,
        },
        Answer::CancelDone(Cancelled::Granted { name, token }),
        Answer::Refused(Rejection::Queued { waiters: 3 }),
    ];
    let remembered = (5..).zip(answers).map(|(at, answer)| Remembered {
        number: number(at),
        fingerprint: 0x0123_4567_89ab_cdef,
        answer,
    });
    remembered.collect()
}
