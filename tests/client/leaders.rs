//! The leader is killed while calls of every kind are under way.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ringfence_client::{Client, HeldLease, Moment, Session, TransferError, WatchItem};
use ringfence_tests::{Cluster, Signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::{LONG, client, cluster, eventually, open, within};

/// Survives any change of leader.
const TTL: std::time::Duration = std::time::Duration::from_secs(30);
/// How many do the same thing at a time, so that some of them are in its middle at the kill.
const TASKS: usize = 24;

/// When calls began and were answered.
#[derive(Clone, Default)]
struct Spans {
    answered: Arc<Mutex<Vec<(Moment, Moment)>>>,
    begun: Arc<AtomicUsize>,
}

impl Spans {
    /// Makes a call.
    async fn around<T>(&self, client: &Client, call: impl Future<Output = T>) -> T {
        let begun = client.now();
        self.begun.fetch_add(1, Ordering::Relaxed);
        let output = call.await;
        self.answered.lock().unwrap().push((begun, client.now()));
        output
    }

    fn len(&self) -> usize {
        self.answered.lock().unwrap().len()
    }

    /// Whether one is under way.
    fn running(&self) -> bool {
        self.begun.load(Ordering::Relaxed) > self.len()
    }

    /// How many were under way at that moment.
    fn over(&self, moment: Moment) -> usize {
        let spans = self.answered.lock().unwrap();
        let over = |&&(begun, answered): &&(Moment, Moment)| begun <= moment && moment <= answered;
        spans.iter().filter(over).count()
    }
}

/// Waits until the calls have gone well for a while, kills the leader, and waits until they go well
/// again.
async fn kill_during(cluster: &mut Cluster, client: &Client, calls: &Spans) -> Moment {
    eventually("some calls", || calls.len() > 2 * TASKS).await;
    let leader = cluster.wait_for_leader(LONG).await;
    eventually("a call under way", || calls.running()).await;
    let killed = client.now();
    cluster.signal(leader, Signal::Kill);
    let before = calls.len();
    eventually("more calls", || calls.len() > before + 4 * TASKS).await;
    cluster.spawn(leader);
    killed
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Measured {
    Acquire,
    Release,
}

/// Takes and gives back a lease until it is asked to stop; the tokens.
async fn take_and_give(
    client: Client,
    session: Session,
    name: String,
    measured: Measured,
    spans: Spans,
    stop: watch::Receiver<bool>,
) -> Vec<u64> {
    let mut tokens = Vec::new();
    while !*stop.borrow() {
        let acquiring = session.acquire(&name).send();
        let lease: HeldLease = match measured {
            Measured::Acquire => spans.around(&client, acquiring).await.unwrap(),
            Measured::Release => acquiring.await.unwrap(),
        };
        tokens.push(lease.token().get());
        match measured {
            Measured::Acquire => lease.release().await.unwrap(),
            Measured::Release => spans.around(&client, lease.release()).await.unwrap(),
        }
    }
    tokens
}

async fn killed_during(measured: Measured) {
    let mut cluster = cluster(3).await;
    let client = client(&cluster).await;
    let session = open(&client, TTL).await;
    let (spans, (stop, stopped)) = (Spans::default(), watch::channel(false));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(take_and_give(
            client.clone(),
            session.clone(),
            format!("db/{task}"),
            measured,
            spans.clone(),
            stopped.clone(),
        ));
    }

    let killed = kill_during(&mut cluster, &client, &spans).await;
    stop.send_replace(true);

    let mut all = Vec::new();
    while let Some(tokens) = within("the tasks", tasks.join_next()).await {
        let tokens = tokens.unwrap();
        assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
        all.extend(tokens);
    }
    all.sort_unstable();
    assert!(all.is_sorted_by(|a, b| a < b), "a token was granted twice");
    assert!(spans.over(killed) > 0, "no call was under way at the kill");
    assert!(session.is_live());
    // No grant is left behind that no client knows of.
    for task in 0..TASKS {
        let found = cluster.caller().get(&format!("db/{task}")).await.unwrap();
        assert!(found.is_none_or(|lease| lease.holder.is_none()));
    }
}

#[tokio::test]
async fn the_leader_killed_during_acquires_costs_none_of_them() {
    killed_during(Measured::Acquire).await;
}

#[tokio::test]
async fn the_leader_killed_during_releases_costs_none_of_them() {
    killed_during(Measured::Release).await;
}

/// Hands a lease to and fro between two sessions.
async fn hand_over(
    client: Client,
    pair: [Session; 2],
    name: String,
    spans: Spans,
    stop: watch::Receiver<bool>,
) -> Vec<u64> {
    let mut lease = pair[0].acquire(&name).send().await.unwrap();
    let mut tokens = vec![lease.token().get()];
    for turn in 1.. {
        if *stop.borrow() {
            break;
        }
        let to = &pair[turn % 2];
        let waiting = tokio::spawn(to.acquire(&name).wait(LONG).send());
        let transferred = loop {
            match spans
                .around(&client, lease.transfer_to(Some(to.id())))
                .await
            {
                Ok(transferred) => break transferred,
                // It does not stand in the queue yet.
                Err(TransferError::NotWaiting { lease: Some(back) }) => lease = back,
                Err(error) => panic!("{error}"),
            }
            tokio::task::yield_now().await;
        };
        lease = waiting.await.unwrap().unwrap();
        assert_eq!(
            (transferred.to, transferred.token),
            (to.id(), lease.token())
        );
        tokens.push(lease.token().get());
    }
    lease.release().await.unwrap();
    tokens
}

#[tokio::test]
async fn the_leader_killed_during_transfers_leaves_no_gap_and_no_second_holder() {
    let mut cluster = cluster(3).await;
    let [near, far] = [client(&cluster).await, client(&cluster).await];
    let pair = [open(&near, TTL).await, open(&far, TTL).await];
    let (spans, (stop, stopped)) = (Spans::default(), watch::channel(false));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS / 2 {
        tasks.spawn(hand_over(
            near.clone(),
            pair.clone(),
            format!("db/{task}"),
            spans.clone(),
            stopped.clone(),
        ));
    }

    let killed = kill_during(&mut cluster, &near, &spans).await;
    stop.send_replace(true);

    while let Some(tokens) = within("the tasks", tasks.join_next()).await {
        let tokens = tokens.unwrap();
        assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    }
    assert!(spans.over(killed) > 0, "no call was under way at the kill");
}

#[tokio::test]
async fn the_leader_killed_while_twenty_wait_changes_nothing_about_their_order() {
    let mut cluster = cluster(3).await;
    let client = client(&cluster).await;
    let session = open(&client, TTL).await;
    let lease = session.acquire("db").send().await.unwrap();
    let caller = cluster.caller();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = JoinSet::new();
    for place in 0..20_u32 {
        let (waiter, served) = (open(&client, TTL).await, Arc::clone(&served));
        waiting.spawn(async move {
            let lease = waiter.acquire("db").wait(LONG).send().await.unwrap();
            served.lock().unwrap().push((place, lease.token().get()));
            lease.release().await.unwrap();
        });
        let queued = async {
            let waiters = async || caller.get("db").await.unwrap().map(|lease| lease.waiters);
            while waiters().await != Some(place + 1) {
                tokio::task::yield_now().await;
            }
        };
        within("a place in the queue", queued).await;
    }

    let leader = cluster.wait_for_leader(LONG).await;
    cluster.signal(leader, Signal::Kill);
    within("the release", lease.release()).await.unwrap();
    while let Some(done) = within("all are served", waiting.join_next()).await {
        done.unwrap();
    }

    let served = served.lock().unwrap();
    assert_eq!(served.len(), 20);
    assert!(
        served.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1),
        "{served:?}"
    );
}

#[tokio::test]
async fn the_leader_killed_under_a_watch_leaves_no_gap_and_no_duplicate() {
    let mut cluster = cluster(3).await;
    let [watching, client] = [client(&cluster).await, client(&cluster).await];
    let mut watch = watching.watch("db/");
    let begun = async { while !matches!(watch.next().await, Some(Ok(WatchItem::Reached(_)))) {} };
    within("the watch begins", begun).await;
    let session = open(&client, TTL).await;
    let (spans, (stop, stopped)) = (Spans::default(), watch::channel(false));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(take_and_give(
            client.clone(),
            session.clone(),
            format!("db/{task}"),
            Measured::Acquire,
            spans.clone(),
            stopped.clone(),
        ));
    }

    kill_during(&mut cluster, &client, &spans).await;
    stop.send_replace(true);
    let mut granted = Vec::new();
    while let Some(tokens) = within("the tasks", tasks.join_next()).await {
        granted.extend(tokens.unwrap());
    }
    granted.sort_unstable();

    // 1: granted, 2: ended too.
    let mut told = BTreeMap::new();
    let mut newest = 0;
    while told.values().filter(|&&told| told == 2).count() < granted.len() {
        match within("the next event", watch.next())
            .await
            .unwrap()
            .unwrap()
        {
            WatchItem::Granted { grant, .. } => {
                let token = grant.token.get();
                assert!(token > newest, "{token} after {newest}");
                newest = token;
                assert_eq!(told.insert(token, 1), None);
            }
            WatchItem::Ended { ended, .. } => {
                assert_eq!(told.insert(ended.token.get(), 2), Some(1));
            }
            WatchItem::Restarted(why) => panic!("begun anew: {why:?}"),
            _ => {}
        }
    }
    assert!(told.keys().eq(&granted));
}
