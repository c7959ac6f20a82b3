use std::collections::VecDeque;

use super::*;
use crate::Refusal;
use crate::lease_object::{LeaseObject, Stamp, Version};
use crate::limits::{RENEWAL_PACE, RENEWALS_MAX};
use crate::position::Position;

fn object(n: usize) -> ObjectName {
    ObjectName {
        namespace: "demo".into(),
        name: format!("l{n:05}").into(),
    }
}

fn found(version: u64) -> Observed {
    Observed {
        content: LeaseObject {
            holder: Some("worker".to_owned()),
            seconds: Some(10),
            ..LeaseObject::default()
        },
        stamp: Some(stamp()),
        labelled: true,
        version: Version(version.to_string()),
        uid: "u".to_owned(),
    }
}

fn stamp() -> Stamp {
    Stamp {
        at: Position::default(),
        cluster: "ab".to_owned(),
    }
}

fn wrote(version: u64, why: Why) -> Outcome {
    let found = Arc::new(found(version));
    let written = Arc::clone(&found);
    Outcome::Wrote {
        found,
        written,
        why,
    }
}

fn token(token: u64) -> Option<FencingToken> {
    FencingToken::new(token)
}

/// The object with the first token, wrestled over until its next look is half a minute away.
fn meddled_with(schedule: &mut WorkQueue, mut now: Instant) -> Instant {
    schedule.changed(object(1), token(1), now);
    for version in 1..20 {
        now = now.max(schedule.wake_at(REQUESTS_MAX).unwrap());
        assert_eq!(take(schedule, now), Some(object(1)));
        let undone = wrote(version * 10, Why::Undone("edited".to_owned()));
        schedule.done(&object(1), &undone, now);
        schedule.told(object(1), found(version * 10 + 1), false, now);
    }
    assert_eq!(schedule.wake_at(REQUESTS_MAX), Some(now + STRIKE_MAX));
    now
}

fn denied() -> Outcome {
    Outcome::Failed(SyncError::Denied {
        code: 403,
        message: String::new(),
    })
}

const MS: Duration = Duration::from_millis(1);

/// Takes what is due, and says which object.
fn take(schedule: &mut WorkQueue, now: Instant) -> Option<ObjectName> {
    schedule.next(now, REQUESTS_MAX).map(|next| next.object)
}

#[test]
fn an_object_is_looked_at_by_one_request_at_a_time() {
    let now = crate::clock::now();
    let mut schedule = WorkQueue::default();
    schedule.changed(object(1), None, now);
    assert_eq!(take(&mut schedule, now), Some(object(1)));

    schedule.changed(object(1), None, now + MS);
    assert_eq!(take(&mut schedule, now + MS), None);

    schedule.done(&object(1), &wrote(5, Why::Moved), now + MS * 2);
    assert_eq!(take(&mut schedule, now + MS * 2), None, "paced");
    let next = schedule.next(now + OBJECT_PACE * 2, REQUESTS_MAX).unwrap();
    assert_eq!(
        next.noted,
        Some(now + MS),
        "since the first change that is not shown"
    );
}

#[test]
fn a_change_comes_before_renewals_and_those_are_paced() {
    let start = crate::clock::now();
    let mut schedule = WorkQueue::default();
    for n in 0..10 {
        schedule.changed(object(n), None, start);
        assert_eq!(take(&mut schedule, start), Some(object(n)));
        schedule.done(&object(n), &wrote(5, Why::Created), start);
    }
    assert_eq!(take(&mut schedule, start + MS * 4_999), None);

    let half = start + MS * 5_000;
    schedule.changed(object(9), None, half);
    assert_eq!(take(&mut schedule, half), Some(object(9)));
    assert_eq!(take(&mut schedule, half), Some(object(0)));
    assert_eq!(take(&mut schedule, half), None, "one each RENEWAL_PACE");
    let later = (1..RENEWALS_MAX).filter_map(|n| {
        let n = u32::try_from(n).unwrap();
        take(&mut schedule, half + RENEWAL_PACE * n)
    });
    assert_eq!(later.count(), RENEWALS_MAX - 1);
    assert_eq!(
        take(&mut schedule, half + RENEWAL_PACE * 50),
        None,
        "and so many at once"
    );
}

#[test]
fn there_is_room_for_so_many_requests_and_no_more() {
    let now = crate::clock::now();
    let mut schedule = WorkQueue::default();
    (0..100).for_each(|n| schedule.changed(object(n), None, now));
    let begun = std::iter::from_fn(|| take(&mut schedule, now)).count();
    assert_eq!(begun, REQUESTS_MAX);
    assert_eq!(schedule.wake_at(REQUESTS_MAX), None);
    assert_eq!(schedule.pending(), 100);
}

#[test]
fn whoever_fights_over_an_object_is_answered_ever_more_slowly() {
    let mut now = crate::clock::now();
    let mut schedule = WorkQueue::default();
    schedule.changed(object(1), None, now);
    let mut waits = Vec::new();
    for version in 1..8 {
        let at = schedule.wake_at(REQUESTS_MAX).unwrap();
        waits.push(at.saturating_duration_since(now));
        now = now.max(at);
        assert_eq!(take(&mut schedule, now), Some(object(1)));
        let undone = wrote(version * 10, Why::Undone("edited".to_owned()));
        schedule.done(&object(1), &undone, now);
        schedule.told(object(1), found(version * 10 + 1), false, now);
    }
    assert_eq!(waits[0], Duration::ZERO);
    assert_eq!(waits[1], Duration::ZERO, "the first edit is undone at once");
    assert_eq!(waits[2], STRIKE_MIN);
    assert!(waits.is_sorted() && waits[6] > STRIKE_MIN * 8, "{waits:?}");
}

/// A policy lets the old holder write until the new token is shown.
#[test]
fn no_meddler_keeps_a_new_token_from_being_shown() {
    let mut schedule = WorkQueue::default();
    let now = meddled_with(&mut schedule, crate::clock::now());
    // What ends is no new token.
    schedule.changed(object(1), token(1), now + MS);
    assert_eq!(take(&mut schedule, now + STRIKE_MAX / 2), None);

    let granted = now + OBJECT_PACE;
    schedule.changed(object(1), token(2), granted);
    assert_eq!(take(&mut schedule, granted), Some(object(1)));
    // One that is granted meanwhile is shown behind it; what was undone with it waits.
    schedule.changed(object(1), token(3), granted + MS);
    let undone = wrote(500, Why::Undone("edited".to_owned()));
    schedule.done(&object(1), &undone, granted + MS);
    assert_eq!(take(&mut schedule, granted + MS), None, "paced");
    let next = granted + MS + OBJECT_PACE;
    assert_eq!(take(&mut schedule, next), Some(object(1)));
    schedule.done(&object(1), &wrote(510, Why::Moved), next);
    schedule.told(object(1), found(511), false, next);
    assert_eq!(take(&mut schedule, next + STRIKE_MAX / 2), None);
}

#[test]
fn a_new_token_is_tried_again_until_it_is_shown_but_not_without_a_pause() {
    let mut schedule = WorkQueue::default();
    let now = meddled_with(&mut schedule, crate::clock::now());
    let mut at = now + OBJECT_PACE;
    schedule.changed(object(1), token(2), at);
    for _ in 0..5 {
        // Another writer is faster each time.
        assert_eq!(take(&mut schedule, at), Some(object(1)));
        schedule.done(&object(1), &Outcome::Failed(SyncError::Outdated), at);
        assert_eq!(schedule.wake_at(REQUESTS_MAX), Some(at + OBJECT_PACE));
        at += OBJECT_PACE;
    }
    // The watch breaks.
    assert_eq!(take(&mut schedule, at), Some(object(1)));
    schedule.give_up(at);
    assert_eq!(take(&mut schedule, at), Some(object(1)));
    // A refusal is the API server's word, and no race.
    schedule.done(&object(1), &denied(), at);
    assert_eq!(schedule.wake_at(REQUESTS_MAX), Some(at + STRIKE_MAX));
}

/// Another writer's object may be deleted at any time, or for years not.
#[test]
fn an_object_in_the_way_is_looked_at_soon_and_then_ever_less_often() {
    let mut now = crate::clock::now();
    let mut schedule = WorkQueue::default();
    schedule.changed(object(1), None, now);
    let mut waits = Vec::new();
    for _ in 0..12 {
        now = now.max(schedule.wake_at(REQUESTS_MAX).unwrap());
        assert_eq!(take(&mut schedule, now), Some(object(1)));
        schedule.done(&object(1), &Outcome::Refused(Refusal::Foreign), now);
        waits.push(schedule.wake_at(REQUESTS_MAX).unwrap() - now);
    }
    assert_eq!(waits[0], STRIKE_MIN);
    assert!(waits.is_sorted(), "{waits:?}");
    assert!(
        waits[11] > STRIKE_MAX / 2 && waits[11] <= STRIKE_MAX,
        "{waits:?}"
    );
}

#[test]
fn a_refused_object_is_tried_again_and_told_once() {
    let mut now = crate::clock::now();
    let mut schedule = WorkQueue::default();
    schedule.changed(object(1), None, now);
    for n in 0..3 {
        now = now.max(schedule.wake_at(REQUESTS_MAX).unwrap());
        assert_eq!(take(&mut schedule, now), Some(object(1)));
        let newly = schedule.done(&object(1), &denied(), now);
        assert_eq!(newly, n == 0);
        assert_eq!(schedule.refused(), 1);
    }
    assert!(schedule.wake_at(REQUESTS_MAX).unwrap() <= now + STRIKE_MAX);

    now = schedule.wake_at(REQUESTS_MAX).unwrap();
    assert_eq!(take(&mut schedule, now), Some(object(1)));
    schedule.done(&object(1), &wrote(1, Why::Created), now);
    assert_eq!(schedule.refused(), 0);
}

#[test]
fn the_echo_of_our_own_write_is_no_news() {
    let now = crate::clock::now();
    let mut schedule = WorkQueue::default();
    schedule.changed(object(1), None, now);
    take(&mut schedule, now);
    // Before the answer, and after it; then what came before it.
    schedule.told(object(1), found(5), false, now);
    schedule.done(&object(1), &wrote(5, Why::Created), now);
    schedule.told(object(1), found(5), false, now);
    schedule.told(object(1), found(4), false, now);
    assert_eq!(take(&mut schedule, now + OBJECT_PACE), None);

    schedule.told(object(1), found(6), false, now);
    assert_eq!(take(&mut schedule, now + OBJECT_PACE), Some(object(1)));
}

#[test]
fn a_deletion_is_news_also_while_a_request_is_under_way() {
    let now = crate::clock::now();
    let mut schedule = WorkQueue::default();
    schedule.changed(object(1), None, now);
    take(&mut schedule, now);
    schedule.told(object(1), found(6), true, now);
    schedule.done(&object(1), &wrote(5, Why::Created), now);

    let next = schedule.next(now + OBJECT_PACE, REQUESTS_MAX).unwrap();
    assert!(matches!(next.known, Known::Unknown), "{:?}", next.known);
    schedule.done(&next.object, &wrote(7, Why::Created), now);
    schedule.told(object(1), found(8), true, now);
    let next = schedule.next(now + OBJECT_PACE, REQUESTS_MAX).unwrap();
    assert!(matches!(next.known, Known::Absent), "{:?}", next.known);
}

#[test]
fn what_was_under_way_when_the_api_server_went_is_read_again() {
    let now = crate::clock::now();
    let mut schedule = WorkQueue::default();
    schedule.changed(object(1), None, now);
    take(&mut schedule, now);
    schedule.give_up(now);

    let next = schedule.next(now + MS, REQUESTS_MAX).unwrap();
    assert!(matches!(next.known, Known::Unknown));
    assert_eq!(next.noted, Some(now), "it counts as late since then");
    assert_eq!(schedule.pending(), 1);
}

#[test]
fn nobody_is_woken_while_the_one_request_that_may_be_is_under_way() {
    let now = crate::clock::now();
    let mut schedule = WorkQueue::default();
    schedule.changed(object(1), None, now);
    schedule.changed(object(2), None, now);
    assert!(schedule.next(now, 1).is_some());
    assert_eq!(schedule.wake_at(1), None);
    assert_eq!(schedule.wake_at(2), Some(now));
}

#[test]
fn what_is_neither_lease_nor_object_is_forgotten() {
    let now = crate::clock::now();
    let mut schedule = WorkQueue::default();
    schedule.changed(object(1), None, now);
    take(&mut schedule, now);
    schedule.done(&object(1), &Outcome::Nothing, now);
    assert_eq!(schedule.entries.len(), 0);
    assert_eq!(schedule.wake_at(REQUESTS_MAX), None);
}

#[test]
fn a_list_says_also_what_is_not_there() {
    let now = crate::clock::now();
    let mut schedule = WorkQueue::default();
    schedule.listed(vec![(object(1), found(1)), (object(2), found(2))], now);
    assert_eq!(schedule.objects(), 2);
    schedule.listed(vec![(object(2), found(2))], now);
    assert_eq!(schedule.objects(), 1);
    let next = schedule.next(now, REQUESTS_MAX).unwrap();
    assert_eq!(next.object, object(1));
    assert!(matches!(next.known, Known::Absent));
}

/// What a simulated API server has: for each object `renewTime`, and what is shown to be its end.
struct Shown {
    objects: Vec<Option<(Instant, Instant)>>,
    looked_expired: usize,
    written: usize,
}

/// Mirrors so many held leases of 15 s to a server that answers after `latency`, for two minutes of
/// its own time; keep-alives come every 5 s. Counts how often an object looked expired.
fn shown_for_two_minutes(leases: usize, latency: Duration) -> Shown {
    const TTL: Millis = Millis(15_000);
    let keep_alive = Duration::from_secs(5);
    let start = crate::clock::now();
    let mut schedule = WorkQueue::default();
    for n in 0..leases {
        schedule.held(&object(n), Some(TTL));
        schedule.changed(object(n), token(1), start);
    }
    let mut shown = Shown {
        objects: vec![None; leases],
        looked_expired: 0,
        written: 0,
    };
    let mut under_way: VecDeque<(Instant, Instant, Next)> = VecDeque::new();
    let mut now = start;
    let mut next_look = start + Duration::from_secs(1);
    while now < start + Duration::from_secs(120) {
        while under_way.front().is_some_and(|(at, ..)| *at <= now) {
            let (at, renewed, next) = under_way.pop_front().unwrap();
            let n: usize = next.object.name[1..].parse().unwrap();
            let seconds = next.stretch.seconds(TTL);
            let end = renewed + Duration::from_secs(u64::try_from(seconds).unwrap());
            shown.objects[n] = Some((renewed, end));
            shown.written += 1;
            let mut object = found(u64::try_from(shown.written).unwrap());
            object.content.seconds = Some(seconds);
            let object = Arc::new(object);
            let outcome = Outcome::Wrote {
                found: Arc::clone(&object),
                written: object,
                why: Why::Renewed,
            };
            schedule.done(&next.object, &outcome, at);
        }
        while let Some(next) = schedule.next(now, REQUESTS_MAX) {
            let n: usize = next.object.name[1..].parse().unwrap();
            // Each holder's keep-alives come at times of its own.
            let phase = keep_alive * u32::try_from(n % 50).unwrap() / 50;
            let since = (now - start + keep_alive - phase).as_millis();
            let periods = u32::try_from(since / keep_alive.as_millis()).unwrap();
            let renewed = start + phase + keep_alive * periods - keep_alive;
            let news = shown.objects[n].is_none_or(|(before, end)| {
                let shorter = end - before
                    < Duration::from_secs(u64::try_from(next.stretch.seconds(TTL)).unwrap());
                shorter || renewed >= before + (end - before) / 8
            });
            if news {
                under_way.push_back((now + latency, renewed, next));
            } else if let Known::Object(kept) = next.known {
                schedule.done(&next.object, &Outcome::Kept(kept), now);
            }
        }
        if now >= next_look {
            next_look += Duration::from_millis(500);
            let ends = shown.objects.iter().flatten();
            shown.looked_expired += ends.filter(|(_, end)| *end < now).count();
        }
        let answer = under_way.front().map(|(at, ..)| *at);
        let wakes = schedule.wake_at(REQUESTS_MAX).into_iter().chain(answer);
        let wake = wakes.min().unwrap_or(next_look);
        now = wake.min(next_look).max(now + Duration::from_micros(100));
    }
    shown
}

#[test]
fn no_held_lease_looks_expired_however_many_there_are() {
    for (leases, latency) in [(100, 5), (2_306, 5), (2_306, 40), (6_000, 5), (3_000, 150)] {
        let shown = shown_for_two_minutes(leases, MS * latency);
        assert!(shown.objects.iter().all(Option::is_some), "{leases}");
        assert_eq!(shown.looked_expired, 0, "{leases} leases, {latency} ms");
        // Two minutes at 500 a second, and all of them once at the beginning.
        assert!(shown.written <= 60_100 + leases, "{}", shown.written);
    }
}
