//! When a loss is noticed, over a thousand of them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_client::{Client, HeldLease, Moment, SessionOptions};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::proxy::Fate;
use crate::support::{behind_proxies_alone, within};

const CLIENTS: usize = 50;
const ROUNDS: usize = 20;
const TTL: Duration = Duration::from_secs(1);

/// The leases that are held at the moment, for a task that looks at them without a pause.
type Held = Arc<Mutex<Vec<Option<Arc<HeldLease>>>>>;

/// A lease that is held, however long a busy machine needs for that.
async fn take(client: &Client, name: &str) -> HeldLease {
    loop {
        let identity = name.to_owned();
        let options = SessionOptions { ttl: TTL, identity };
        if let Ok(session) = client.open_session(options).await
            && let Ok(lease) = session.acquire(name).wait(TTL * 20).send().await
        {
            return lease;
        }
    }
}

/// What was seen of the leases.
#[derive(Default)]
struct Seen {
    looks: usize,
    /// Those that found a lease held when its window was over.
    wrong: usize,
    /// The longest time without a look: the machine had no time for this process, or stood still.
    gap: Duration,
}

/// Looks at every lease again and again, on a thread of its own.
fn look(client: &Client, held: &Held, end: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut before = client.now();
    while !end.load(Ordering::Relaxed) {
        let begun = client.now();
        seen.gap = seen.gap.max(begun.saturating_since(before));
        before = begun;
        let leases: Vec<_> = held.lock().unwrap().iter().flatten().cloned().collect();
        for lease in leases {
            let (until, now) = (lease.valid_until(), client.now());
            let valid = lease.is_valid();
            seen.looks += 1;
            // Unless it was renewed in between.
            seen.wrong += usize::from(valid && now >= until && lease.valid_until() == until);
        }
    }
    seen
}

/// How much later than the window's end a loss was heard, in microseconds; negative: earlier.
fn late_by(heard: Moment, until: Moment) -> i64 {
    let late = heard.saturating_since(until).as_micros();
    let early = until.saturating_since(heard).as_micros();
    i64::try_from(late).unwrap() - i64::try_from(early).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_cuts_none_is_noticed_after_the_window() {
    let (_cluster, mut proxies) = behind_proxies_alone(1).await;
    let proxy = Arc::new(proxies.remove(0));
    let held: Held = Arc::new(Mutex::new(vec![None; CLIENTS]));
    let ready = Arc::new(Barrier::new(CLIENTS + 1));
    let lost = Arc::new(AtomicUsize::new(0));
    let late = Arc::new(Mutex::new(Vec::new()));
    let mut clients = JoinSet::new();
    let observer = Client::connect([proxy.address()]).await.unwrap();
    for at in 0..CLIENTS {
        let client = Client::connect([proxy.address()]).await.unwrap();
        let (held, ready) = (Arc::clone(&held), Arc::clone(&ready));
        let (lost, late) = (Arc::clone(&lost), Arc::clone(&late));
        clients.spawn(async move {
            for _ in 0..ROUNDS {
                let lease = Arc::new(take(&client, &format!("cut/{at}")).await);
                held.lock().unwrap()[at] = Some(Arc::clone(&lease));
                ready.wait().await;
                lease.lost().await;
                late.lock()
                    .unwrap()
                    .push(late_by(client.now(), lease.valid_until()));
                held.lock().unwrap()[at] = None;
                lost.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    let end = Arc::new(AtomicBool::new(false));
    let looking = {
        let (client, held, end) = (observer, Arc::clone(&held), Arc::clone(&end));
        std::thread::spawn(move || look(&client, &held, &end))
    };

    for round in 1..=ROUNDS {
        within("all hold a lease", ready.wait()).await;
        proxy.set(Fate::Swallow, Fate::Swallow);
        let all = async {
            while lost.load(Ordering::SeqCst) < round * CLIENTS {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        within("all losses", all).await;
        proxy.set(Fate::Pass, Fate::Pass);
    }
    while let Some(client) = within("the end", clients.join_next()).await {
        client.unwrap();
    }
    end.store(true, Ordering::Relaxed);
    let Seen { looks, wrong, gap } = looking.join().unwrap();

    let mut late = late.lock().unwrap().clone();
    late.sort_unstable();
    let at = |permille: usize| late[(late.len() - 1) * permille / 1_000];
    println!(
        "{} cuts, {looks} looks, {wrong} of them wrong; heard after the window's end by p50 {} µs, \
         p90 {} µs, p99 {} µs, at most {} µs; the longest pause of the machine was {gap:?}",
        late.len(),
        at(500),
        at(900),
        at(990),
        at(1_000)
    );
    assert_eq!((late.len(), wrong), (CLIENTS * ROUNDS, 0));
    assert!(looks > CLIENTS * ROUNDS);
    // Most hear of it before; how late the last one is, is the machine's affair.
    assert!(at(500) <= 0, "{} µs", at(500));
}
