use ringfence_core::{
    ClusterId, FencingToken, Granted, HolderData, Identity, LeaseName, LeaseView, Millis,
    RequestNumber, SessionId, WallTime,
};

use super::*;
use crate::lease_object::{LeaseObject, Stamp};

const US: ClusterId = ClusterId::new([0xab; 16]);
const THEM: ClusterId = ClusterId::new([0xcd; 16]);

fn at(index: u64) -> Position {
    Position {
        counter: 100,
        index,
    }
}

fn token(value: u64) -> Option<FencingToken> {
    FencingToken::new(value)
}

/// What the cluster says at an index: who holds the lease, with which token.
fn look(index: u64, holder: Option<(&str, u64)>, floor: Option<u64>) -> LeaseSnapshot {
    let name = LeaseName::parse("k8s/demo/leader").unwrap();
    let holder = holder.map(|(identity, value)| Granted {
        name: name.clone(),
        token: token(value).unwrap(),
        session: SessionId::new(9).unwrap(),
        identity: Identity::parse(identity).unwrap(),
        data: HolderData::default(),
        request: RequestNumber::FIRST,
        index,
        since: WallTime(1_000_000),
    });
    let floor = holder
        .as_ref()
        .map(|holder| holder.token)
        .or(floor.and_then(token));
    let lease = floor.map(|floor| LeaseView {
        name,
        holder,
        ttl: Millis(14_001),
        remaining: Millis(14_000),
        waiters: 0,
        floor: Some(floor),
        blocked: Millis(0),
    });
    LeaseSnapshot {
        at: at(index),
        cluster: US,
        lease,
        forgotten: None,
        now: WallTime(1_000_000),
        silent: Millis(0),
    }
}

fn held(index: u64, identity: &str, token: u64) -> LeaseSnapshot {
    look(index, Some((identity, token)), None)
}

fn judge(
    snapshot: &LeaseSnapshot,
    found: Option<&Observed>,
    written: Option<&Observed>,
) -> Decision {
    decide(Inputs {
        snapshot,
        floor: false,
        shown: None,
        stretch: Stretch::NONE,
        found,
        written,
        confirmed: false,
    })
}

fn confirmed(
    snapshot: &LeaseSnapshot,
    found: Option<&Observed>,
    written: Option<&Observed>,
) -> Decision {
    decide(Inputs {
        snapshot,
        floor: false,
        shown: None,
        stretch: Stretch::NONE,
        found,
        written,
        confirmed: true,
    })
}

/// What a decision writes, and why.
fn written(decision: Decision) -> (LeaseObject, Stamp, Why) {
    match decision {
        Decision::Write {
            content,
            stamp,
            why,
            ..
        } => (content, stamp, why),
        other => panic!("nothing is written: {other:?}"),
    }
}

/// The object that a mirror makes of what it sees, and what it remembers.
fn mirrored(snapshot: &LeaseSnapshot) -> (Observed, Observed) {
    let (content, stamp, _) = written(confirmed(snapshot, None, None));
    let found = Observed {
        content,
        stamp: Some(stamp),
        labelled: true,
        version: Version("7".to_owned()),
        uid: "u".to_owned(),
    };
    (found.clone(), found)
}

#[test]
fn a_grant_makes_an_object_that_says_who_and_how_long() {
    let (content, stamp, why) = written(confirmed(&held(5, "worker", 7), None, None));

    assert_eq!(why, Why::Created);
    assert_eq!(stamp.at, at(5));
    assert_eq!(content.holder.as_deref(), Some("worker"));
    assert_eq!(content.seconds, Some(15), "14.001 s, rounded up");
    assert_eq!(content.token, token(7));
    assert_eq!(content.since, Some(WallTime(1_000_000)));
    assert_eq!(content.transitions, 0);
}

/// What was deleted may have been a later mirror's word: nothing is left that would say so.
#[test]
fn an_object_that_is_not_there_is_made_once_the_cluster_was_asked() {
    let (_, memory) = mirrored(&held(5, "first", 7));
    for memory in [None, Some(&memory)] {
        // A deposed mirror, cut off from the cluster and not from Kubernetes.
        let late = held(6, "first", 7);
        assert_eq!(judge(&late, None, memory), Decision::Confirm);

        let (content, stamp, _) = written(confirmed(&held(50, "second", 8), None, memory));
        assert_eq!((content.token, stamp.at), (token(8), at(50)));
    }
}

#[test]
fn a_name_that_was_never_granted_makes_none() {
    assert_eq!(judge(&look(5, None, None), None, None), Decision::Nothing);
}

#[test]
fn a_holder_without_a_name_is_not_taken_for_nobody() {
    let (content, _, _) = written(confirmed(&held(5, "", 7), None, None));
    assert_eq!(content.holder.as_deref(), Some("session-9"));
}

#[test]
fn an_end_empties_the_holder_and_keeps_the_token() {
    let (found, _) = mirrored(&held(5, "worker", 7));
    let (content, _, why) = written(judge(&look(6, None, Some(7)), Some(&found), None));

    assert_eq!(why, Why::Moved);
    assert_eq!((content.holder, content.token), (None, token(7)));
    assert_eq!(
        (content.seconds, content.since, content.renewed),
        (None, None, None)
    );
}

#[test]
fn a_forgotten_name_keeps_its_token_on_the_object() {
    let (found, _) = mirrored(&held(5, "worker", 7));
    let (content, _, _) = written(judge(&look(9, None, None), Some(&found), None));
    assert_eq!((content.holder, content.token), (None, token(7)));

    let (found, _) = mirrored(&look(5, None, Some(7)));
    let forgotten = look(9, None, None);
    assert_eq!(judge(&forgotten, Some(&found), None), Decision::Keep);
}

#[test]
fn transitions_count_holders_and_not_grants() {
    let (mut found, _) = mirrored(&held(5, "worker", 7));
    found.content.transitions = 3;
    let transitions = |snapshot: &LeaseSnapshot, found: &Observed| {
        written(judge(snapshot, Some(found), None)).0.transitions
    };

    assert_eq!(transitions(&held(6, "worker", 8), &found), 3);
    assert_eq!(transitions(&held(6, "other", 8), &found), 4);
    assert_eq!(transitions(&look(6, None, Some(7)), &found), 3);
    found.content.transitions = i32::MAX;
    assert_eq!(transitions(&held(6, "other", 8), &found), i32::MAX);
}

#[test]
fn transitions_do_not_fall_over_a_deletion() {
    let (_, mut memory) = mirrored(&held(5, "worker", 7));
    memory.content.transitions = 3;
    let (content, _, why) = written(confirmed(&held(6, "other", 8), None, Some(&memory)));

    assert_eq!(why, Why::Undone("it was deleted".to_owned()));
    assert_eq!(content.transitions, 4);
}

#[test]
fn an_object_that_says_what_it_should_is_kept() {
    let (found, memory) = mirrored(&held(5, "worker", 7));
    for memory in [None, Some(&memory)] {
        let later = held(900, "worker", 7);
        assert_eq!(judge(&later, Some(&found), memory), Decision::Keep);
    }
}

#[test]
fn a_keep_alive_is_worth_a_write_once_it_is_news() {
    let (found, memory) = mirrored(&held(5, "worker", 7));
    let mut later = held(9, "worker", 7);
    later.now = WallTime(1_001_000);
    assert_eq!(judge(&later, Some(&found), Some(&memory)), Decision::Keep);

    later.now = WallTime(1_005_000);
    let (content, _, why) = written(judge(&later, Some(&found), Some(&memory)));
    assert_eq!(
        (content.renewed, why),
        (Some(WallTime(1_005_000)), Why::Renewed)
    );

    // The holder is silent: time alone renews nothing.
    later.silent = Millis(5_000);
    assert_eq!(judge(&later, Some(&found), Some(&memory)), Decision::Keep);
}

#[test]
fn two_readings_of_one_keep_alive_are_no_reason_to_write() {
    let (mut found, _) = mirrored(&held(5, "worker", 7));
    found.content.renewed = Some(WallTime(1_000_900));
    assert_eq!(
        judge(&held(9, "worker", 7), Some(&found), None),
        Decision::Keep
    );

    found.content.renewed = Some(WallTime(9_000_000));
    let (content, _, why) = written(judge(&held(9, "worker", 7), Some(&found), None));
    assert_eq!(
        (content.renewed, why),
        (Some(WallTime(1_000_000)), Why::Moved)
    );
}

#[test]
fn an_older_look_never_replaces_a_newer_object() {
    let (found, _) = mirrored(&held(50, "second", 8));
    let late = held(40, "first", 7);
    let (_, late_memory) = mirrored(&held(39, "first", 7));

    // A deposed mirror asks the cluster, and sees what the object says.
    assert_eq!(judge(&late, Some(&found), None), Decision::Confirm);
    assert_eq!(
        judge(&late, Some(&found), Some(&late_memory)),
        Decision::Confirm
    );
    let caught_up = held(50, "second", 8);
    assert_eq!(
        confirmed(&caught_up, Some(&found), Some(&late_memory)),
        Decision::Keep
    );
}

#[test]
fn a_token_counter_that_was_raised_is_later_than_any_index() {
    let (mut found, _) = mirrored(&held(5, "worker", 7));
    let stamp = found.stamp.as_mut().unwrap();
    stamp.at = Position {
        counter: 101,
        index: 1,
    };
    let before_the_restore = held(1_000_000, "worker", 7);
    assert_eq!(
        judge(&before_the_restore, Some(&found), None),
        Decision::Confirm
    );
}

#[test]
fn a_position_that_was_never_reached_is_undone_once_the_cluster_was_asked() {
    let (mut found, memory) = mirrored(&held(5, "worker", 7));
    found.stamp.as_mut().unwrap().at = at(u64::MAX);
    let now = held(6, "worker", 7);

    assert_eq!(judge(&now, Some(&found), Some(&memory)), Decision::Confirm);
    for memory in [None, Some(&memory)] {
        let (_, stamp, why) = written(confirmed(&now, Some(&found), memory));
        assert_eq!(stamp.at, at(6));
        assert!(matches!(why, Why::Undone(_)), "{why:?}");
    }
}

#[test]
fn another_cluster_that_is_further_is_left_alone() {
    let (mut found, _) = mirrored(&held(5, "worker", 7));
    found.stamp.as_mut().unwrap().cluster = THEM.to_string();
    let refused = |decision| matches!(decision, Decision::Refuse(Refusal::OtherCluster { .. }));

    assert!(refused(confirmed(
        &held(4, "worker", 7),
        Some(&found),
        None
    )));
    assert!(
        refused(confirmed(&held(5, "worker", 7), Some(&found), None)),
        "a tie"
    );
    // As after a restore, which raises the token counter.
    let (_, stamp, why) = written(judge(&held(6, "worker", 9), Some(&found), None));
    assert_eq!((stamp.cluster, why), (US.to_string(), Why::Moved));
}

#[test]
fn another_clusters_lease_that_is_not_known_here_is_left_alone() {
    let (mut found, _) = mirrored(&held(5, "worker", 7));
    found.stamp.as_mut().unwrap().cluster = THEM.to_string();
    assert_eq!(
        judge(&look(6, None, None), Some(&found), None),
        Decision::Keep
    );
}

#[test]
fn what_others_own_is_never_touched() {
    let (mut found, memory) = mirrored(&held(5, "worker", 7));
    found.labelled = false;
    found.stamp = None;
    let now = held(6, "worker", 7);
    let foreign = Decision::Refuse(Refusal::Foreign);
    assert_eq!(judge(&now, Some(&found), None), foreign);

    // Deleted, and made again by another writer.
    found.uid = "another".to_owned();
    assert_eq!(judge(&now, Some(&found), Some(&memory)), foreign);
}

#[test]
fn what_hands_change_is_undone_and_named() {
    let now = held(6, "worker", 7);
    let (found, memory) = mirrored(&held(5, "worker", 7));
    let undone = |edit: &dyn Fn(&mut Observed), named: &str| {
        let mut edited = found.clone();
        edit(&mut edited);
        let (content, _, why) = written(judge(&now, Some(&edited), Some(&memory)));
        assert_eq!(content, memory.content);
        let Why::Undone(what) = why else {
            panic!("{why:?}");
        };
        assert!(what.contains(named), "{what}");
    };
    undone(
        &|found| found.content.holder = Some("me".to_owned()),
        "holder \"me\"",
    );
    undone(&|found| found.content.holder = None, "spec.holderIdentity");
    undone(&|found| found.content.token = token(3), TOKEN_NAME);
    undone(&|found| found.content.renewed = None, "spec.renewTime");
    undone(
        &|found| found.content.transitions = 0x7fff,
        "spec.leaseTransitions",
    );
    undone(&|found| found.labelled = false, MANAGED_BY);
    undone(&|found| found.stamp = None, "annotations");
    undone(
        &|found| found.stamp.as_mut().unwrap().at = at(4),
        "annotations",
    );
    undone(
        &|found| {
            found.labelled = false;
            found.stamp = None;
        },
        MANAGED_BY,
    );
}

const TOKEN_NAME: &str = crate::lease_object::TOKEN;

#[test]
fn what_another_mirror_of_this_cluster_wrote_is_not_meddling() {
    let (_, memory) = mirrored(&held(5, "worker", 7));
    let (newer, _) = mirrored(&held(8, "other", 8));
    let now = held(9, "other", 8);
    assert_eq!(judge(&now, Some(&newer), Some(&memory)), Decision::Keep);

    let (_, _, why) = written(judge(&held(9, "third", 9), Some(&newer), Some(&memory)));
    assert_eq!(why, Why::Moved);
}

#[test]
fn only_the_version_that_was_judged_is_replaced() {
    let (found, _) = mirrored(&held(5, "worker", 7));
    let Decision::Write { replaces, .. } = judge(&held(6, "other", 8), Some(&found), None) else {
        panic!("the holder has changed");
    };
    assert_eq!(replaces, Some(found.version));
    let Decision::Write { replaces, .. } = confirmed(&held(6, "other", 8), None, None) else {
        panic!("there is no object");
    };
    assert_eq!(replaces, None);
}

#[path = "decision_floor_tests.rs"]
mod floors;
