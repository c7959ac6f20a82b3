use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::membership::view::Sight;
use crate::network::Condition;
use crate::types::incarnation::Incarnation;

const LONG: Duration = Duration::from_secs(60);
const LIVE_WITHIN: Duration = Duration::from_secs(1);

/// A cluster led by node 1. Voters are 1 to `voters`, learners 70 and on; those in `dead` have been
/// silent for a minute although they hold the whole log.
fn view(voters: u64, learners: u64, dead: &[u64]) -> View {
    let voters: BTreeSet<u64> = (1..=voters).collect();
    let ids = voters.iter().copied().chain(70..70 + learners);
    let ids: Vec<u64> = ids.collect();
    let peer = |id: u64| Peer {
        name: format!("n{id}"),
        peer_address: format!("h{id}:1"),
        incarnation: Incarnation::from_slice(&u128::from(id).to_be_bytes()).unwrap(),
        ..Peer::default()
    };
    let sight = |id: u64| Sight {
        matched: Some(5_000),
        heard: Some(if dead.contains(&id) {
            Duration::from_secs(60)
        } else {
            Duration::from_millis(40)
        }),
        condition: Condition {
            records: 3,
            peer_auth: true,
            ..Condition::default()
        },
    };
    View {
        me: 1,
        at: None,
        committed: true,
        configs: vec![voters],
        peers: ids.iter().map(|id| (*id, Arc::new(peer(*id)))).collect(),
        sights: ids
            .iter()
            .map(|id| (*id, sight(*id)))
            .collect::<BTreeMap<_, _>>(),
        last: 5_000,
        committed_index: 5_000,
        age: LONG,
        live_within: LIVE_WITHIN,
        level: 3,
        enforced: false,
    }
}

fn remove(node_id: u64) -> Ask {
    Ask::Remove {
        node_id,
        force: false,
    }
}

fn promote(node_id: u64, replaces: Option<u64>) -> Ask {
    Ask::Promote {
        node_id,
        replaces,
        force: false,
    }
}

fn forced(ask: Ask) -> Ask {
    match ask {
        Ask::Promote {
            node_id, replaces, ..
        } => Ask::Promote {
            node_id,
            replaces,
            force: true,
        },
        Ask::Remove { node_id, .. } => Ask::Remove {
            node_id,
            force: true,
        },
        add @ Ask::Add(_) => add,
    }
}

#[test]
fn no_change_leaves_voters_without_a_live_majority() {
    // Every cluster of up to five voters and two learners, with every set of silent members.
    let (mut refused, mut set) = (0, 0);
    for voters in 1..=5_u64 {
        let ids: Vec<u64> = (2..=voters).chain([70, 71]).collect();
        for silent in 0..1_u32 << ids.len() {
            let dead = ids.iter().enumerate();
            let dead = dead.filter(|(bit, _)| silent & (1 << bit) != 0);
            let dead: Vec<u64> = dead.map(|(_, id)| *id).collect();
            let view = view(voters, 2, &dead);
            let removals = ids.iter().chain(&[1]).map(|id| remove(*id));
            let promotions = [70, 71].into_iter().flat_map(|learner| {
                let replaced = ids.iter().copied().filter(move |id| *id != learner);
                let replaced = replaced.map(Some).chain([None]);
                replaced.map(move |replaced| promote(learner, replaced))
            });
            for ask in removals.chain(promotions) {
                match next(&view, &ask, LONG, false) {
                    Step::SetVoters(after) => {
                        set += 1;
                        let live = after.iter().filter(|id| !dead.contains(id)).count();
                        assert!(live > after.len() / 2, "{ask:?} with {dead:?} silent");
                        assert!(after.contains(&1), "the leader has no vote: {ask:?}");
                        if let Ask::Promote { node_id, .. } = ask {
                            assert!(!dead.contains(&node_id), "{ask:?} with {dead:?} silent");
                        }
                    }
                    Step::Refuse(_) => refused += 1,
                    _ => {}
                }
            }
        }
    }
    assert!(refused > 500 && set > 500, "{refused} refused, {set} set");
}

#[test]
fn a_live_voter_of_three_stays_while_another_is_down_and_the_dead_one_may_go() {
    let view = view(3, 0, &[3]);
    let Step::Refuse(why) = next(&view, &remove(2), LONG, false) else {
        panic!("it would stop the cluster");
    };
    assert!(
        why.contains("n3 (node 3)") && why.contains("--force"),
        "{why}"
    );
    let left = Step::SetVoters(BTreeSet::from([1, 2]));
    assert_eq!(next(&view, &remove(3), LONG, false), left);
    let left = Step::SetVoters(BTreeSet::from([1, 3]));
    assert_eq!(next(&view, &forced(remove(2)), LONG, false), left);
}

#[test]
fn a_leader_that_has_just_begun_waits_to_hear_before_it_refuses() {
    let view = view(3, 1, &[2, 3, 70]);
    for ask in [remove(2), promote(70, None)] {
        let early = next(&view, &ask, Duration::ZERO, false);
        assert!(matches!(early, Step::Wait(_)), "{early:?}");
        let late = next(&view, &ask, LIVE_WITHIN, false);
        assert!(matches!(late, Step::Refuse(_)), "{late:?}");
    }
}

#[test]
fn a_dead_learner_that_had_caught_up_gets_no_vote_and_replaces_nobody() {
    let view = view(3, 1, &[70]);
    for replaces in [None, Some(3)] {
        let step = next(&view, &promote(70, replaces), LONG, false);
        assert!(matches!(step, Step::Refuse(_)), "{step:?}");
        let step = next(&view, &forced(promote(70, replaces)), LONG, false);
        assert!(matches!(step, Step::SetVoters(_)), "{step:?}");
    }
}

#[test]
fn a_live_learner_waits_for_its_vote_until_it_has_the_log() {
    let mut view = view(3, 1, &[]);
    view.sights.get_mut(&70).unwrap().matched = Some(1_000);
    let step = next(&view, &promote(70, None), LONG, false);
    assert!(
        matches!(&step, Step::Wait(why) if why.contains("1000 of 5000")),
        "{step:?}"
    );
    view.sights.get_mut(&70).unwrap().matched = Some(4_500);
    let voters = Step::SetVoters(BTreeSet::from([1, 2, 3, 70]));
    assert_eq!(next(&view, &promote(70, None), LONG, false), voters);
}

#[test]
fn a_voter_is_removed_only_from_voters_that_have_stood_for_a_while() {
    let mut view = view(2, 1, &[]);
    view.age = LIVE_WITHIN;
    assert!(matches!(
        next(&view, &remove(2), LONG, false),
        Step::Wait(_)
    ));
    let at_once = Step::SetVoters(BTreeSet::from([1]));
    assert_eq!(next(&view, &forced(remove(2)), LONG, false), at_once);
    // Learners are no part of any quorum.
    let dropped = Step::DropLearners(BTreeSet::from([70]));
    assert_eq!(next(&view, &remove(70), LONG, false), dropped);
}

#[test]
fn a_replacement_takes_its_names_vote_and_a_repetition_is_done_already() {
    let mut view = view(3, 1, &[3]);
    let same_name = Peer {
        name: "n3".to_owned(),
        ..(*view.peers[&70]).clone()
    };
    view.peers.insert(70, Arc::new(same_name));
    let voters = BTreeSet::from([1, 2, 70]);
    for replaces in [None, Some(3)] {
        let step = next(&view, &promote(70, replaces), LONG, false);
        assert_eq!(step, Step::SetVoters(voters.clone()));
    }
    view.configs = vec![voters];
    view.peers.remove(&3);
    for replaces in [None, Some(3)] {
        let step = next(&view, &promote(70, replaces), LONG, false);
        assert_eq!(step, Step::Done(70));
    }
}

#[test]
fn a_leader_that_loses_its_vote_hands_over_first() {
    let view = view(3, 1, &[]);
    assert_eq!(next(&view, &remove(1), LONG, false), Step::HandOver);
    let step = next(&view, &promote(70, Some(1)), LONG, false);
    assert_eq!(step, Step::HandOver);
}

#[test]
fn a_removal_that_was_begun_is_done_when_the_member_is_gone() {
    let view = view(2, 0, &[]);
    assert_eq!(next(&view, &remove(3), LONG, true), Step::Done(3));
    assert!(matches!(
        next(&view, &remove(3), LONG, false),
        Step::Refuse(_)
    ));
}

#[test]
fn a_node_is_taken_in_once_and_takes_its_former_learner_away() {
    let view = view(3, 1, &[]);
    let known = (*view.peers[&70]).clone();
    let again = next(&view, &Ask::Add(known.clone()), LONG, false);
    assert_eq!(again, Step::Done(70));
    let emptied = Peer {
        incarnation: Incarnation::from_slice(&[9; 16]).unwrap(),
        ..known
    };
    let dropped = Step::DropLearners(BTreeSet::from([70]));
    assert_eq!(next(&view, &Ask::Add(emptied), LONG, false), dropped);
}

#[test]
fn leadership_goes_to_a_live_voter_with_the_log() {
    let mut view = view(4, 1, &[4]);
    view.sights.get_mut(&2).unwrap().matched = Some(4_900);
    assert_eq!(successor(&view, 0), Ok(3));
    assert_eq!(successor(&view, 2), Ok(2));
    assert!(successor(&view, 4).is_err(), "it is dead");
    assert!(successor(&view, 70).is_err(), "it is a learner");
}

#[test]
fn leadership_goes_to_a_voter_with_room_if_there_is_one() {
    let mut view = view(3, 0, &[]);
    let full =
        |view: &mut View, id: u64| view.sights.get_mut(&id).unwrap().condition.no_room = true;
    view.sights.get_mut(&2).unwrap().matched = Some(4_900);
    full(&mut view, 3);
    assert_eq!(successor(&view, 0), Ok(2), "it is behind, and has room");
    full(&mut view, 2);
    assert_eq!(successor(&view, 0), Ok(3), "whoever stops has to hand over");
}

#[test]
fn the_others_can_lead_if_a_majority_without_the_leader_is_live_and_has_room() {
    let full = |mut view: View, ids: &[u64]| {
        for id in ids {
            view.sights.get_mut(id).unwrap().condition.no_room = true;
        }
        view
    };
    assert!(view(3, 0, &[]).others_can_lead());
    assert!(!view(3, 0, &[3]).others_can_lead(), "one is dead");
    assert!(
        !full(view(3, 0, &[]), &[2]).others_can_lead(),
        "one is full"
    );
    assert!(full(view(5, 0, &[4]), &[1]).others_can_lead());
    assert!(!full(view(5, 0, &[4]), &[5]).others_can_lead());
    assert!(!view(1, 0, &[]).others_can_lead(), "there are none");
}

#[test]
fn room_lacks_if_no_majority_of_live_voters_has_some() {
    let full = |mut view: View, ids: &[u64]| {
        for id in ids {
            view.sights.get_mut(id).unwrap().condition.no_room = true;
        }
        view.lacks_room()
    };
    assert!(!full(view(3, 0, &[]), &[]));
    assert!(!full(view(3, 0, &[]), &[3]), "the other two commit");
    assert!(full(view(3, 0, &[]), &[2, 3]));
    assert!(full(view(3, 0, &[2]), &[3]), "the other one is dead");
    assert!(!full(view(3, 0, &[2, 3]), &[]), "nobody has said so");
    assert!(
        !full(view(3, 0, &[2]), &[2]),
        "the dead one is asked for nothing"
    );
}

#[test]
fn a_node_that_does_not_know_the_level_gets_no_vote_not_even_by_force() {
    for ask in [promote(70, None), forced(promote(70, None))] {
        let mut view = view(3, 1, &[]);
        view.sights.get_mut(&70).unwrap().condition.records = 2;
        let Step::Wait(_) = next(&view, &ask, Duration::ZERO, false) else {
            panic!("it may announce more in a moment");
        };
        let Step::Refuse(why) = next(&view, &ask, LONG, false) else {
            panic!("it got a vote");
        };
        assert!(why.contains("n70") && why.contains("level 3"), "{why}");
        view.level = 2;
        assert!(matches!(next(&view, &ask, LONG, false), Step::SetVoters(_)));
    }
}

#[test]
fn a_node_with_an_open_peer_port_gets_no_vote_while_rights_are_enforced() {
    for ask in [promote(70, None), forced(promote(70, None))] {
        let mut view = view(3, 1, &[]);
        view.sights.get_mut(&70).unwrap().condition.peer_auth = false;
        assert!(matches!(next(&view, &ask, LONG, false), Step::SetVoters(_)));
        view.enforced = true;
        let Step::Wait(_) = next(&view, &ask, Duration::ZERO, false) else {
            panic!("it may announce it in a moment");
        };
        let Step::Refuse(why) = next(&view, &ask, LONG, false) else {
            panic!("it got a vote");
        };
        assert!(
            why.contains("n70") && why.contains("--peer-tls-name"),
            "{why}"
        );
        view.sights.get_mut(&70).unwrap().condition.peer_auth = true;
        assert!(matches!(next(&view, &ask, LONG, false), Step::SetVoters(_)));
    }
}
