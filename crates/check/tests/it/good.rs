//! What a correct service has shown is valid, whatever order it was written down in.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use ringfence_check::blackbox::{self, Caps};
use ringfence_check::history::Record;
use ringfence_check::{Recording, Report, Verdict, witness};

use crate::world::{Play, Recorded, play};

pub(crate) fn recording(records: &[Record]) -> Recording {
    Recording::of(Recorded::header(), records.iter().cloned()).unwrap()
}

pub(crate) fn by_log(recording: &Recording, recorded: &Recorded) -> Report {
    let log = recorded
        .log
        .iter()
        .cloned()
        .map(Ok::<_, std::convert::Infallible>);
    witness::check(recording, log).unwrap()
}

fn both_say_valid(play_: Play) {
    let recorded = play(play_);
    let recording = recording(&recorded.records);

    let box_ = blackbox::check(&recording, Caps::default());
    assert_eq!(box_.verdict(), Verdict::Valid, "{play_:?}\n{box_}");

    let log = by_log(&recording, &recorded);
    assert_eq!(log.verdict(), Verdict::Valid, "{play_:?}\n{log}");
}

#[test]
fn a_calm_history_is_valid() {
    for seed in 0..10 {
        both_say_valid(Play {
            seed,
            clients: 6,
            leases: 3,
            calls: 400,
            trouble: false,
        });
    }
}

#[test]
fn a_history_with_lost_messages_crashes_and_new_leaders_is_valid() {
    for seed in 0..40 {
        both_say_valid(Play {
            seed,
            clients: 2 + (seed % 9) as u32,
            leases: 1 + (seed % 4) as u32,
            calls: 500,
            trouble: true,
        });
    }
}

#[test]
fn the_order_of_the_records_does_not_matter() {
    let recorded = play(Play {
        seed: 7,
        clients: 5,
        leases: 2,
        calls: 400,
        trouble: true,
    });
    let mut records = recorded.records.clone();
    let mut rng = StdRng::seed_from_u64(1);
    for _ in 0..5 {
        records.shuffle(&mut rng);
        // A return follows its beginning, and what a watch tells keeps its order.
        records.sort_by_key(|record| match record {
            Record::Invoked(_) => 0,
            Record::WatchStarted(_) | Record::WatchEvent(_) | Record::WatchProgress(_) => 2,
            _ => 1,
        });
        let watched = |record: &&Record| {
            matches!(
                record,
                Record::WatchStarted(_) | Record::WatchEvent(_) | Record::WatchProgress(_)
            )
        };
        let mut in_order = recorded.records.iter().filter(watched).cloned();
        for record in &mut records {
            if watched(&&*record) {
                *record = in_order.next().unwrap();
            }
        }
        let recording = recording(&records);
        let found = blackbox::check(&recording, Caps::default());
        assert_eq!(found.verdict(), Verdict::Valid, "{found}");
        let found = by_log(&recording, &recorded);
        assert_eq!(found.verdict(), Verdict::Valid, "{found}");
    }
}
