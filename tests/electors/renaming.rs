//! S0.9: a lock is renamed, split and merged while it is held, and while others are after it.

use std::time::Duration;

use ringfence_client::{AcquireError, HeldLease, Session};
use ringfence_tests::{Act, Journal};
use tokio::sync::watch;

use crate::raw_lock::{MINUTE, options};
use crate::support::{client, one_node, within};

/// What a part is known by, from its first name to its last: who works on it holds all of them.
const LOW: [&str; 3] = ["table", "table/low", "table/v2"];
const HIGH: [&str; 3] = ["table", "table/high", "table/v2"];

/// Tries to get at the parts without end: takes the names of one that it can get, works if it has
/// all of them, and gives them back. Says how many rounds it has made and what it worked on.
async fn prowl(session: Session, rounds: watch::Sender<u32>, works: watch::Sender<Vec<Act>>) {
    loop {
        for names in [LOW, HIGH] {
            let mut held = Vec::new();
            let mut asked = Duration::ZERO;
            for name in names {
                asked = Journal::now();
                match session.acquire(name).send().await {
                    Ok(lease) => held.push(lease),
                    Err(AcquireError::Held(_)) => break,
                    Err(other) => panic!("{name}: {other}"),
                }
            }
            if held.len() == names.len() {
                let work = Act {
                    name: names[1].into(),
                    token: held.iter().map(|lease| lease.token().get()).max().unwrap(),
                    invoked: asked,
                    answered: Journal::now(),
                    released: Some(Journal::now()),
                };
                works.send_modify(|works| works.push(work));
            }
            for lease in held {
                lease.release().await.unwrap();
            }
        }
        rounds.send_modify(|rounds| *rounds += 1);
    }
}

/// Waits until a candidate that is after the parts has tried all of their names since now.
async fn a_round(rounds: &watch::Sender<u32>) {
    let (mut told, before) = (rounds.subscribe(), *rounds.borrow());
    // The one that is being made began before.
    let made = told.wait_for(|rounds| *rounds >= before + 2);
    within("a whole round", made).await.unwrap();
}

async fn take(session: &Session, name: &str) -> HeldLease {
    // The prowler may have it for a moment.
    let taking = session.acquire(name).wait(MINUTE).send();
    within("its turn", taking).await.unwrap()
}

/// A part as its holder sees it from this moment on; named by its own name, under the token of that,
/// which was asked for later.
fn part(lease: &HeldLease, from: Duration) -> Act {
    Act {
        name: lease.name().to_string(),
        token: lease.token().get(),
        invoked: Duration::ZERO,
        answered: from,
        released: None,
    }
}

#[tokio::test]
async fn s0_9_nobody_gets_at_what_is_renamed_split_and_merged_while_it_is_held() {
    let cluster = one_node().await;
    let (near, far) = (client(&cluster).await, client(&cluster).await);
    let alice = near.open_session(options("alice", MINUTE)).await.unwrap();
    let bob = far.open_session(options("bob", MINUTE)).await.unwrap();
    let (rounds, works) = (watch::Sender::new(0), watch::Sender::new(Vec::new()));
    let whole = take(&alice, "table").await;
    let from = Journal::now();
    let prowling = tokio::spawn(prowl(bob, rounds.clone(), works.clone()));
    a_round(&rounds).await;

    // Split: the parts are held before the whole is given up.
    let (low, high) = (take(&alice, LOW[1]).await, take(&alice, HIGH[1]).await);
    a_round(&rounds).await;
    whole.release().await.unwrap();
    a_round(&rounds).await;
    assert!(low.is_valid() && high.is_valid());

    // Merged again, under another name.
    let merged = take(&alice, LOW[2]).await;
    a_round(&rounds).await;
    let parts = [&low, &high].map(|lease| part(lease, from));
    low.release().await.unwrap();
    high.release().await.unwrap();
    a_round(&rounds).await;
    assert!(merged.is_valid() && merged.token().get() > parts[1].token);
    assert!(works.borrow().is_empty(), "{:?}", works.borrow());

    // From here on a process that was kept out all the time gets in: by greater tokens, and not
    // before.
    let until = Some(Journal::now());
    merged.release().await.unwrap();
    let mut told = works.subscribe();
    let got_in = |works: &Vec<Act>| {
        [LOW, HIGH]
            .iter()
            .all(|p| works.iter().any(|w| w.name == p[1]))
    };
    within("it gets in", told.wait_for(got_in)).await.unwrap();
    prowling.abort();
    let mut journal = Journal::default();
    for act in parts {
        journal.add(Act {
            released: until,
            ..act
        });
    }
    works
        .borrow()
        .iter()
        .cloned()
        .for_each(|act| journal.add(act));
    journal.check().unwrap();
}
