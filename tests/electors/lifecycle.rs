//! Waiting for leadership, dead holders, clusters that fail.

use std::time::Duration;

use ringfence_client::{BootClock, Clock, Elector, Timings};
use ringfence_guard::{Fence, Guard};
use ringfence_tests::{Act, Cluster, Journal, Options, Signal};

use crate::support::{LEASE, LONG, client, elector, eventually, long, one_node, short, within};

#[tokio::test]
async fn s0_11_terms_come_from_a_majority_and_fence_over_a_change_of_its_leader() {
    let mut cluster = Cluster::start(Options::default()).await;
    let client = client(&cluster).await;
    let first = elector(&client, "alice", long()).campaign("db").lead();
    let first = first.await.unwrap();
    let old: Fence = first.fence();
    let guard = Guard::new(old.name.clone());
    guard.admit(&old).unwrap();

    let leader = cluster.wait_for_leader(LONG).await;
    cluster.signal(leader, Signal::Kill);
    first.release().await.unwrap();
    let next = elector(&client, "bob", long()).campaign("db").lead();
    let next = within("the next term", next).await.unwrap();

    let new: Fence = next.fence();
    guard.advance(&new).unwrap();
    guard.admit(&old).unwrap_err();
    guard.admit(&new).unwrap();
}

#[tokio::test]
async fn s1_1_two_unrelated_deployments_have_one_leader_between_them() {
    let cluster = one_node().await;
    let blue = client(&cluster).await;
    let green = client(&cluster).await;
    // Defaults on both sides: they have agreed on nothing but the name.
    let (blue, green) = (Elector::new(&blue), Elector::new(&green));
    let (blue, green) = (
        blue.campaign("operators/mail"),
        green.campaign("operators/mail"),
    );
    let handles = [blue.handle(), green.handle()];
    let runs = [
        tokio::spawn(blue.run_callbacks()),
        tokio::spawn(green.run_callbacks()),
    ];
    let leads = || handles.iter().filter(|handle| handle.is_leading()).count();
    eventually("one leads", || leads() == 1).await;
    // Both see the same one.
    let seen = |at: usize| handles[at].leader().borrow().as_ref().map(|l| l.token);
    eventually("both see it", || seen(0).is_some() && seen(0) == seen(1)).await;
    assert_eq!(leads(), 1);
    runs.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn s1_2_never_are_there_two_leaders_not_even_briefly() {
    let mut cluster = Cluster::start(Options::default()).await;
    let (told, mut acts) = tokio::sync::mpsc::unbounded_channel();
    let mut runs = Vec::new();
    for n in 0..6 {
        let client = client(&cluster).await;
        let campaign = elector(&client, &format!("n{n}"), short()).campaign("db");
        let told = told.clone();
        runs.push(tokio::spawn(campaign.run(move |leading| {
            let told = told.clone();
            async move {
                let answered = Journal::now();
                tokio::time::sleep(Duration::from_millis(30)).await;
                let act = Act {
                    name: "db".into(),
                    token: leading.token().get(),
                    invoked: Duration::ZERO,
                    answered,
                    released: Some(Journal::now()),
                };
                told.send(act).ok();
            }
        })));
    }
    let mut journal = Journal::default();
    while journal.len() < 60 {
        if journal.len() == 20 {
            let leader = cluster.wait_for_leader(LONG).await;
            cluster.signal(leader, Signal::Kill);
            cluster.spawn(leader);
        }
        journal.add(within("the next term", acts.recv()).await.unwrap());
    }
    runs.iter().for_each(tokio::task::JoinHandle::abort);
    journal.check().unwrap();
}

#[tokio::test]
async fn s1_3_one_call_blocks_until_it_leads() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let first = elector(&client, "alice", short()).campaign("db").lead();
    let first = within("it leads at once", first).await.unwrap();
    let second = elector(&client, "bob", short()).campaign("db").lead();
    let mut second = tokio::spawn(second);

    let early = tokio::time::timeout(LEASE * 2, &mut second).await;
    assert!(early.is_err(), "blocks while another one leads");
    assert!(first.is_valid(), "which goes on without any further call");
    first.release().await.unwrap();
    assert!(
        within("it leads", second)
            .await
            .unwrap()
            .unwrap()
            .is_valid()
    );
}

#[tokio::test]
async fn s1_5_becoming_the_leader_is_retried_until_it_works() {
    let mut cluster = one_node().await;
    let client = client(&cluster).await;
    cluster.signal(0, Signal::Kill);
    let campaign = elector(&client, "alice", short()).campaign("db");
    let mut state = campaign.handle().state();
    let leading = tokio::spawn(campaign.lead());
    // At least one try has failed as a whole.
    let failed = state.wait_for(|s| matches!(s, ringfence_client::CampaignState::Pausing { .. }));
    within("a try fails", failed).await.unwrap();

    cluster.spawn(0);
    let lease = within("it leads in the end", leading).await.unwrap();
    assert!(lease.unwrap().is_valid());
}

#[tokio::test]
async fn s1_7_the_times_are_those_that_were_configured() {
    let mut cluster = one_node().await;
    let client = client(&cluster).await;
    // A lease four times as long as the leader believes in it.
    let (lease, renew) = (Duration::from_secs(8), Duration::from_secs(2));
    let retry = Duration::from_millis(100);
    let times = Timings::new(Some(lease), Some(renew), Some(retry)).unwrap();
    let held = elector(&client, "alice", times).campaign("db").lead();
    let held = held.await.unwrap();
    let seen = cluster.caller().get("db").await.unwrap().unwrap();
    assert_eq!(seen.ttl_ms, 8_000);
    // It is renewed often enough to be held for longer than the deadline.
    client.sleep_until(BootClock.now() + renew * 2).await;
    assert!(held.is_valid());

    cluster.signal(0, Signal::Kill);
    let cut = BootClock.now();
    within("the deadline", held.lost()).await;
    let lasted = BootClock.now().saturating_since(cut);
    assert!(
        lasted < lease,
        "gave up before its lease could end: {lasted:?}"
    );
    assert!(held.valid_until() <= cut + renew);
}

#[tokio::test]
async fn s1_11_a_dead_holder_blocks_nobody_for_ever() {
    let cluster = one_node().await;
    let dead = client(&cluster).await;
    let session = dead.open_session(ringfence_client::SessionOptions {
        ttl: LEASE,
        identity: "evicted".into(),
    });
    let session = session.await.unwrap();
    session.acquire("db").send().await.unwrap().forget();
    session.detach();

    let next = client(&cluster).await;
    let next = elector(&next, "next", long()).campaign("db").lead();
    assert!(within("the takeover", next).await.unwrap().is_valid());
}

#[tokio::test]
async fn s2_9_a_campaign_goes_on_through_an_outage_until_it_is_asked_to_end() {
    let mut cluster = one_node().await;
    let client = client(&cluster).await;
    let campaign = elector(&client, "alice", short()).campaign("db");
    let handle = campaign.handle();
    let mut running = tokio::spawn(campaign.run_callbacks());
    for _ in 0..2 {
        eventually("it leads", || handle.is_leading()).await;
        cluster.signal(0, Signal::Kill);
        eventually("it leads no more", || !handle.is_leading()).await;
        cluster.spawn(0);
    }
    eventually("it leads again", || handle.is_leading()).await;
    let early = tokio::time::timeout(Duration::from_millis(50), &mut running).await;
    assert!(early.is_err(), "it goes on");

    handle.leave(ringfence_client::Successor::Next);
    within("the end", running).await.unwrap().unwrap();
}

#[tokio::test]
async fn s4_6_candidates_wait_without_a_request_and_without_conflicts() {
    let cluster = one_node().await;
    let leader = client(&cluster).await;
    let lease = elector(&leader, "leader", long()).campaign("db").lead();
    let lease = lease.await.unwrap();
    let client = client(&cluster).await;
    let runs: Vec<_> = (0..20)
        .map(|n| {
            let campaign = elector(&client, &format!("n{n}"), long()).campaign("db");
            tokio::spawn(campaign.observe(false).run_callbacks())
        })
        .collect();
    let caller = cluster.caller();
    let queued = async {
        while caller.get("db").await.unwrap().unwrap().waiters < 20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("all wait", queued).await;

    // Twenty candidates that poll every 100 ms would write hundreds of entries meanwhile. What is
    // written is the cluster's own clock, twice a second at most.
    let before = cluster.applied(0).await;
    let long = Duration::from_secs(5);
    leader.sleep_until(leader.now() + long).await;
    let written = cluster.applied(0).await - before;
    assert!(written <= 20, "{written} entries");
    assert!(lease.is_valid());
    runs.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn s1_10_each_mode_of_the_docs_leads() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let elector = elector(&client, "alice", long());

    let campaign = elector.campaign("run");
    let handle = campaign.handle();
    let work = campaign.run(|_| {
        handle.leave(ringfence_client::Successor::Next);
        std::future::pending::<()>()
    });
    within("work, again and again", work).await.unwrap();

    let campaign = elector.campaign("callbacks");
    let handle = campaign.handle();
    let campaign = campaign.on_started(move |_| handle.leave(ringfence_client::Successor::Next));
    within("callbacks", campaign.run_callbacks()).await.unwrap();

    let lease = elector.campaign("lead").lead();
    assert!(
        within("block until it leads", lease)
            .await
            .unwrap()
            .is_valid()
    );

    let once = elector
        .campaign("once")
        .once(|leading| async move { leading.fence() });
    let fence = within("to its end", once).await.unwrap();
    assert_eq!(fence.name.as_str(), "once");

    let shards = elector.candidates("shards", 3);
    let mut handles = Vec::new();
    let shards = shards.each(|campaign| {
        handles.push(campaign.handle());
        campaign
    });
    let work = shards.run(|leading| {
        let shard = usize::try_from(leading.shard().unwrap()).unwrap();
        handles[shard].leave(ringfence_client::Successor::Next);
        std::future::pending::<()>()
    });
    within("split work", work).await.unwrap();

    let options = ringfence_client::SessionOptions::default();
    let mut raw = ringfence_client::RawLock::new(&client, "raw", options).unwrap();
    assert!(raw.try_acquire().await.unwrap());
}
