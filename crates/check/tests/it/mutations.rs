//! One answer of a good history is corrupted: nearly always a check notices.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ringfence_check::Verdict;
use ringfence_check::blackbox::{self, Caps};
use ringfence_check::history::{
    Admission, Block, Checked, GuardAct, Op, Outcome, Record, SessionEnded,
};

use crate::good::{by_log, recording};
use crate::world::{MS, Play, Recorded, play};

/// How often a kind of corruption was tried and noticed.
#[derive(Debug, Default)]
struct Score {
    tried: u32,
    by_box: u32,
    by_log: u32,
    by_either: u32,
}

/// Every way to corrupt the record at `at`, with its name.
fn corruptions(records: &[Record], at: usize, rng: &mut StdRng) -> Vec<(&'static str, Record)> {
    let mut found = Vec::new();
    match &records[at] {
        Record::Returned(returned) => {
            let mut push = |name, outcome| {
                let mut corrupt = returned.clone();
                corrupt.outcome = outcome;
                found.push((name, Record::Returned(corrupt)));
            };
            let other = |token: u64, rng: &mut StdRng| match rng.random_range(0..3) {
                0 => token + 1,
                1 if token > 1 => token - 1,
                _ => token + 1_000,
            };
            match returned.outcome.clone() {
                Outcome::Granted { token } => {
                    push(
                        "another token granted",
                        Outcome::Granted {
                            token: other(token, rng),
                        },
                    );
                    push(
                        "a grant told as a block",
                        Outcome::Blocked(Block::LockDelay),
                    );
                }
                Outcome::Held {
                    session,
                    token,
                    mine,
                } => {
                    let token_ = other(token, rng);
                    push(
                        "another token held",
                        Outcome::Held {
                            session,
                            token: token_,
                            mine,
                        },
                    );
                    let session = session + 1;
                    push(
                        "another session holds",
                        Outcome::Held {
                            session,
                            token,
                            mine,
                        },
                    );
                    push(
                        "a refusal told as a grant",
                        Outcome::Granted { token: token + 1 },
                    );
                }
                Outcome::Released => {
                    push(
                        "a release told as stale",
                        Outcome::StaleToken { current: None },
                    );
                }
                Outcome::StaleToken { .. } => {
                    let of = |record: &Record| match record {
                        Record::Invoked(invoked) if invoked.id == returned.id => {
                            Some(invoked.op.clone())
                        }
                        _ => None,
                    };
                    match records.iter().find_map(of) {
                        Some(Op::Release { .. }) => {
                            push("stale told as released", Outcome::Released);
                        }
                        Some(Op::Revoke { .. }) => push("stale told as revoked", Outcome::Done),
                        _ => {}
                    }
                }
                Outcome::Transferred { to, token } => {
                    let token = other(token, rng);
                    push(
                        "another token handed over",
                        Outcome::Transferred { to, token },
                    );
                }
                Outcome::Checked(Checked::Current) => {
                    push("current told as ended", Outcome::Checked(Checked::Ended));
                }
                Outcome::Checked(Checked::Ended | Checked::Superseded(_)) => {
                    push("ended told as current", Outcome::Checked(Checked::Current));
                }
                Outcome::Lease { token: Some(_), .. } => {
                    push(
                        "held told as free",
                        Outcome::Lease {
                            session: None,
                            token: None,
                            waiters: None,
                        },
                    );
                }
                Outcome::Lease { token: None, .. } => {
                    push(
                        "free told as held",
                        Outcome::Lease {
                            session: Some(1),
                            token: Some(1),
                            waiters: None,
                        },
                    );
                }
                Outcome::SessionExpired => {
                    let of = |record: &Record| match record {
                        Record::Invoked(invoked) if invoked.id == returned.id => {
                            Some(invoked.op.clone())
                        }
                        _ => None,
                    };
                    if let Some(Op::Release { .. }) = records.iter().find_map(of) {
                        push("expired told as released", Outcome::Released);
                    }
                }
                _ => {}
            }
        }
        Record::Guard(guard) if guard.act == GuardAct::Write => {
            let mut corrupt = guard.clone();
            match guard.admission {
                Admission::Refused { .. } => {
                    corrupt.admission = Admission::Admitted;
                    // The store says that it came last.
                    corrupt.commit = Some(u64::MAX);
                    found.push(("a stale write admitted", Record::Guard(corrupt)));
                }
                _ => {
                    let mark = guard.token;
                    corrupt.admission = Admission::Refused { mark };
                    found.push(("a good write refused", Record::Guard(corrupt)));
                }
            }
        }
        // It overlaps only if a client believes later.
        Record::Belief(belief) => {
            let mut corrupt = belief.clone();
            corrupt.until += 3_000 * MS;
            let later = records.iter().any(|record| {
                matches!(record, Record::Belief(later)
                    if later.lease == belief.lease
                        && later.token != belief.token
                        && (belief.until..corrupt.until).contains(&later.from))
            });
            if later {
                found.push(("a belief that goes on", Record::Belief(corrupt)));
            }
        }
        Record::WatchEvent(event) => {
            let mut corrupt = event.clone();
            corrupt.token += 1;
            found.push(("another token watched", Record::WatchEvent(corrupt)));
            let mut corrupt = event.clone();
            corrupt.index -= 1;
            found.push(("a watch out of place", Record::WatchEvent(corrupt)));
        }
        Record::KeepAlive(keep_alive) => {
            let t = keep_alive.acked + MS;
            let ended = SessionEnded {
                client: keep_alive.client,
                session: keep_alive.session,
                t,
                cause: Some(ringfence_check::history::SessionCause::Expired),
            };
            found.push(("a session that ends early", Record::SessionEnded(ended)));
        }
        _ => {}
    }
    found
}

fn score() -> BTreeMap<&'static str, Score> {
    let mut scores: BTreeMap<&'static str, Score> = BTreeMap::new();
    for seed in 100..110 {
        let mut rng = StdRng::seed_from_u64(seed);
        let recorded: Recorded = play(Play {
            seed,
            clients: 5,
            leases: 2,
            calls: 200,
            trouble: seed % 2 == 0,
        });
        for at in 0..recorded.records.len() {
            for (name, corrupt) in corruptions(&recorded.records, at, &mut rng) {
                if scores.get(name).is_some_and(|score| score.tried >= 30) {
                    continue;
                }
                let mut records = recorded.records.clone();
                records[at] = corrupt;
                let recording = recording(&records);
                let by_box = blackbox::check(&recording, Caps::default()).verdict();
                let by_log = by_log(&recording, &recorded).verdict();
                let score = scores.entry(name).or_default();
                score.tried += 1;
                score.by_box += u32::from(by_box == Verdict::Invalid);
                score.by_log += u32::from(by_log == Verdict::Invalid);
                let either = by_box == Verdict::Invalid || by_log == Verdict::Invalid;
                score.by_either += u32::from(either);
            }
        }
    }
    scores
}

#[test]
fn a_corrupted_answer_is_noticed() {
    let scores = score();

    let mut table = format!(
        "{:28} {:>6} {:>9} {:>6} {:>7}\n",
        "", "tried", "black box", "log", "either"
    );
    for (name, s) in &scores {
        let Score {
            tried,
            by_box,
            by_log,
            by_either,
        } = s;
        table += &format!("{name:28} {tried:6} {by_box:9} {by_log:6} {by_either:7}\n");
    }
    println!("{table}");
    assert!(scores.len() >= 15, "{table}");
    for (name, score) in &scores {
        assert!(
            score.by_either * 100 >= score.tried * 90,
            "{name}:\n{table}"
        );
    }
}
