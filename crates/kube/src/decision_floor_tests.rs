//! Floors: what is decided of an object that shows the token alone.

use super::*;

/// A floor as manifests bring it: the mirror's label, and nothing else.
fn new_floor() -> Observed {
    Observed {
        content: LeaseObject::default(),
        stamp: None,
        labelled: true,
        version: Version("7".to_owned()),
        uid: "u".to_owned(),
    }
}

fn floored(snapshot: &LeaseSnapshot, found: Option<&Observed>, confirmed: bool) -> Decision {
    decide(Inputs {
        snapshot,
        floor: true,
        shown: None,
        stretch: Stretch::NONE,
        found,
        written: None,
        confirmed,
    })
}

#[test]
fn a_floor_shows_the_newest_token_and_nothing_else() {
    let (content, stamp, _) = written(floored(&held(5, "worker", 7), Some(&new_floor()), true));
    let expected = LeaseObject {
        token: token(7),
        ..LeaseObject::default()
    };
    assert_eq!((&content, stamp.at), (&expected, at(5)));

    let shown = Observed {
        content,
        stamp: Some(stamp),
        ..new_floor()
    };
    // Neither a release nor a keep-alive is worth a write; the next grant is.
    for kept in [look(6, None, Some(7)), held(6, "worker", 7)] {
        assert_eq!(floored(&kept, Some(&shown), false), Decision::Keep);
    }
    let (content, ..) = written(floored(&held(8, "other", 9), Some(&shown), false));
    assert_eq!(content.token, token(9));
    // A name that the cluster has forgotten keeps it.
    assert_eq!(
        floored(&look(9, None, None), Some(&shown), false),
        Decision::Keep
    );
}

#[test]
fn a_floor_that_is_not_there_is_not_made() {
    for confirmed in [false, true] {
        let decided = floored(&held(5, "worker", 7), None, confirmed);
        assert_eq!(decided, Decision::Nothing);
    }
}

/// A mirror that was deposed must not put an old token on a floor that no mirror has written yet.
#[test]
fn a_new_floor_is_written_once_the_cluster_was_asked() {
    let decided = floored(&held(5, "worker", 7), Some(&new_floor()), false);
    assert_eq!(decided, Decision::Confirm);
}

/// A stale controller carries a token that was given out for the name before it was forgotten.
#[test]
fn a_floor_of_a_name_that_is_not_known_has_the_greatest_token_it_may_have_had() {
    let filled = |forgotten: Option<u64>, shown: Option<u64>, found: &Observed| {
        let snapshot = LeaseSnapshot {
            forgotten: forgotten.and_then(token),
            ..look(5, None, None)
        };
        let decision = decide(Inputs {
            snapshot: &snapshot,
            floor: true,
            shown: shown.and_then(token),
            stretch: Stretch::NONE,
            found: Some(found),
            written: None,
            confirmed: true,
        });
        match decision {
            Decision::Write { content, .. } => content.token.map(FencingToken::get),
            Decision::Keep => None,
            other => panic!("{other:?}"),
        }
    };
    let new = new_floor();
    assert_eq!(filled(None, None, &new), None, "nobody ever had one");
    assert_eq!(filled(Some(9), None, &new), Some(9));
    assert_eq!(filled(None, Some(7), &new), Some(7));
    assert_eq!(filled(Some(9), Some(7), &new), Some(9));
    assert_eq!(filled(Some(7), Some(9), &new), Some(9));
    // The cluster has given out tokens up to 100; a hand wrote this one.
    assert_eq!(filled(Some(7), Some(101), &new), Some(7));
    let shows = |value| {
        let at = at(4);
        let mut floor = new_floor();
        floor.content.token = token(value);
        floor.stamp = Some(Stamp {
            at,
            cluster: US.to_string(),
        });
        floor
    };
    assert_eq!(filled(Some(9), None, &shows(8)), Some(9));
    assert_eq!(filled(Some(9), None, &shows(9)), None, "it says so already");
    assert_eq!(
        filled(Some(9), None, &shows(10)),
        None,
        "a floor never falls"
    );
}
