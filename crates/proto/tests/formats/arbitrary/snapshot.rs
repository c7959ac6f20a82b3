//! Any record of a snapshot.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use ringfence_core::snapshot::*;

use super::*;

fn header() -> BoxedStrategy<Header> {
    let formed = (
        option::of(cluster()),
        option::of(count()),
        settings(),
        count(),
    );
    let log = (count(), count(), time(), time(), wall());
    let next = (count(), count(), count(), count());
    let level = 1..=RECORD_VERSION;
    let rest = (option::of(token()), time(), vec(name(), 0..4), level);
    let past = (
        restored::lineage(),
        option::of(restored::seeding()),
        count(),
    );
    let next = (next, (count(), count()), past);
    (formed, log, next, rest)
        .prop_map(|(formed, log, next, rest)| {
            let (cluster, token_floor, settings, settings_set_at) = formed;
            let (index, term, term_start, time, wall) = log;
            let ((counter, last_token, next_session, next_place), versions, past) = next;
            let (lineage, seeding, audit_dropped) = past;
            let (versions, versions_forgotten) = versions;
            let (forgotten, quiet_until, unserved, level) = rest;
            Header {
                cluster,
                level,
                token_floor,
                settings,
                settings_set_at,
                index,
                term,
                term_start,
                time,
                wall,
                tokens: TokenCounter::restored(counter, last_token),
                next_session,
                next_place,
                forgotten,
                quiet_until,
                unserved,
                versions,
                versions_forgotten,
                lineage,
                seeding,
                audit_dropped,
            }
        })
        .boxed()
}

fn answer() -> BoxedStrategy<Answer> {
    prop_oneof![
        name().prop_map(|name| Answer::Waiting { name }),
        (name(), token()).prop_map(|(name, token)| Answer::Granted { name, token }),
        (name(), token(), end_cause()).prop_map(|(name, token, cause)| Answer::Ended {
            name,
            token,
            cause
        }),
        name().prop_map(|name| Answer::TimedOut { name }),
        option::of(name()).prop_map(|name| Answer::Cancelled { name }),
        token().prop_map(|token| Answer::Released { token }),
        (session(), token()).prop_map(|(to, token)| Answer::Transferred { to, token }),
        cancelled().prop_map(Answer::CancelDone),
        rejection().prop_map(Answer::Refused),
    ]
    .boxed()
}

fn remembered() -> BoxedStrategy<Remembered> {
    (number(), any::<u64>(), answer())
        .prop_map(|(number, fingerprint, answer)| Remembered {
            number,
            fingerprint,
            answer,
        })
        .boxed()
}

fn session_record() -> BoxedStrategy<SessionRecord> {
    let who = (session(), open_id(), secret(), identity());
    let when = (millis(), time(), time(), number());
    let has = (
        vec(lost(), 0..3),
        option::of(pod()),
        option::of(access::principal()),
    );
    (who, when, vec(remembered(), 0..5), has)
        .prop_map(
            |(
                (id, open, secret, identity),
                (ttl, seen, armed, lowest),
                answers,
                (lost, pod, owner),
            )| {
                SessionRecord {
                    id,
                    open,
                    secret,
                    identity,
                    ttl,
                    seen,
                    armed,
                    lowest,
                    answers,
                    lost,
                    pod,
                    owner,
                }
            },
        )
        .boxed()
}

fn grant() -> BoxedStrategy<GrantRecord> {
    (
        token(),
        session(),
        number(),
        data(),
        millis(),
        count(),
        wall(),
    )
        .prop_map(
            |(token, session, request, data, lock_delay, index, since)| GrantRecord {
                token,
                session,
                request,
                data,
                lock_delay,
                index,
                since,
            },
        )
        .boxed()
}

fn block() -> BoxedStrategy<Block> {
    let revoked = (session(), token(), time()).prop_map(|(session, token, until)| RevokedHolder {
        session,
        token,
        until,
    });
    (time(), option::of(revoked))
        .prop_map(|(lock_delay_until, revoked)| Block {
            lock_delay_until,
            revoked,
        })
        .boxed()
}

fn waiter() -> BoxedStrategy<WaiterRecord> {
    (count(), session(), number(), time(), data(), millis())
        .prop_map(
            |(place, session, request, until, data, lock_delay)| WaiterRecord {
                place,
                session,
                request,
                until,
                data,
                lock_delay,
            },
        )
        .boxed()
}

fn lease() -> BoxedStrategy<LeaseRecord> {
    let now = (option::of(grant()), option::of(block()));
    let then = (time(), option::of(time()), option::of(token()));
    let kept = (option::of(access::principal()), any::<bool>());
    let users = (kept, vec(waiter(), 0..4));
    (name(), option::of(token()), now, then, users)
        .prop_map(
            |(name, floor, (grant, blocked), (idle_since, armed, revoked), users)| LeaseRecord {
                name,
                floor,
                grant,
                blocked,
                idle_since,
                armed,
                revoked,
                kept_for: users.0.0,
                kept_lost: users.0.1,
                queue: users.1,
            },
        )
        .boxed()
}

fn ended() -> BoxedStrategy<EndedRecord> {
    let release = (number(), any::<u64>(), token());
    let release = release.prop_map(|(number, fingerprint, token)| ClosingRelease {
        number,
        fingerprint,
        token,
    });
    let end = (
        session_end(),
        time(),
        option::of(access::principal()),
        option::of(release),
    );
    (session(), open_id(), secret(), end)
        .prop_map(
            |(session, open, secret, (cause, at, owner, release))| EndedRecord {
                session,
                open,
                secret,
                cause,
                at,
                owner,
                release,
            },
        )
        .boxed()
}

pub(crate) fn record() -> BoxedStrategy<Record> {
    prop_oneof![
        header().prop_map(Record::Header),
        session_record().prop_map(Record::Session),
        lease().prop_map(Record::Lease),
        ended().prop_map(Record::Ended),
        access::access_record().prop_map(Record::Access),
        access::audit().prop_map(Record::Audit),
        objects::object_record(),
    ]
    .boxed()
}
