//! Losses are reported once in a batch, however often a session is named.

use ringfence_core::{EndCause, LeaseName};
use ringfence_history::HistoryFeed;
use tokio::sync::mpsc;

use super::*;
use crate::types::stop::StopSignal;

const LOST: u64 = 100;

fn session() -> (SessionId, Secret) {
    (SessionId::new(1).unwrap(), Secret::new([1; 16]))
}

/// A batch of requests, each of which names the session so many times; it has lost grants. What each of
/// them is answered.
fn told(batch: &[usize]) -> Vec<KeptAlive> {
    let state = State::new(HistoryFeed::off(), StopSignal::new(), None);
    let (id, _) = session();
    let lost = (1..=LOST).map(|n| LostGrant {
        name: LeaseName::parse(&format!("lease/{n}")).unwrap(),
        token: FencingToken::new(n).unwrap(),
        cause: EndCause::Revoked {
            operator: "o".repeat(255),
            reason: "r".repeat(255),
        },
    });
    let mut results = Results::new(vec![Renewed {
        lost: vec![(id, lost.collect())],
        ..Renewed::default()
    }]);
    let (tell, mut answers) = mpsc::unbounded_channel();
    for times in batch {
        let tell = tell.clone();
        let checked = Checked {
            alive: vec![id; *times],
            unowned: Vec::new(),
            doubtful: Vec::new(),
            noticed: Vec::new(),
            left_out: Vec::new(),
            asked: Asked {
                request: KeepAlive {
                    sessions: vec![session(); *times],
                    acknowledged: Vec::new(),
                    caller: None,
                },
                reply: Reply::new(move |answer| drop(tell.send(answer))),
                origin: Origin::Here,
                source: KeepAliveSource::UNNAMED,
                deadline: Duration::ZERO,
            },
        };
        answer(&state, checked, &mut results);
    }
    std::iter::from_fn(|| answers.try_recv().ok())
        .map(Result::unwrap)
        .collect()
}

/// Otherwise a message of 300 KiB is answered with gigabytes before they are cut to what an answer may
/// take.
#[test]
fn a_session_that_is_named_many_times_is_told_its_losses_once() {
    let answers = told(&[1_000]);
    let [kept] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(kept.lost.len(), 1, "as often as it is named");
    assert_eq!(kept.lost[0].1.len() as u64, LOST);
    assert_eq!(kept.untold, []);
}

/// Otherwise thousands of short requests that are under way together are answered with megabytes each.
#[test]
fn many_requests_of_a_batch_share_one_telling() {
    let (id, _) = session();
    let answers = told(&[1, 2, 1]);
    let lost: Vec<usize> = answers.iter().map(|kept| kept.lost.len()).collect();
    assert_eq!(lost, [1, 0, 0], "the first one is told");
    let untold = answers.iter().map(|kept| kept.untold.clone());
    let untold: Vec<_> = untold.collect();
    assert_eq!(
        untold,
        [vec![], vec![id], vec![id]],
        "nothing is acknowledged"
    );
}
