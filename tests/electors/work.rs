//! The leader's work: begun with a term, dropped with it, given up when it fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringfence_client::{BootClock, Clock, Leading, Loss, Moment, StopCause, Successor, Timings};
use tokio::sync::Notify;

use crate::raw_lock::revoke;
use crate::support::{
    LONG, Story, client, elector, eventually, leader, long, one_node, short, within,
};

/// Tells when it is dropped.
struct Dropped(Story, String);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.tell(self.1.clone());
    }
}

#[tokio::test]
async fn s0_6_loss_drops_the_work_that_runs_beside_the_renewals() {
    let cluster = one_node().await;
    let near = client(&cluster).await;
    let story = Story::new();
    let (work, stopped) = (story.clone(), story.clone());
    let campaign = elector(&near, "alice", short())
        .campaign("db")
        .on_stopped(move |it| stopped.tell(format!("stopped: {}", it.cause)));
    let handle = campaign.handle();
    let running = tokio::spawn(campaign.run(move |leading| {
        let story = work.clone();
        async move {
            story.tell(format!("works {}", leading.token()));
            let _tell = Dropped(story, "dropped".into());
            std::future::pending::<()>().await;
        }
    }));
    story.until(1, "works").await;
    let token = leader(&handle).await.token.get();
    // Longer than a lease duration: the renewals go on beside the work.
    let until = BootClock.now() + short().lease_duration() * 2;
    near.sleep_until(until).await;
    assert_eq!(story.lines().len(), 1, "{:?}", story.lines());

    revoke(&client(&cluster).await, "db", token).await;

    story.until(2, "works").await;
    let lines = story.lines();
    assert_eq!(lines[1], "dropped", "{lines:?}");
    assert!(lines[2].contains("edited by hand"), "{lines:?}");
    assert!(lines[3] > lines[0], "a new term has a greater token");
    handle.leave(Successor::Next);
    within("the end", running).await.unwrap().unwrap();
}

#[tokio::test]
async fn s1_8_a_leader_in_the_middle_of_writes_does_not_go_on() {
    let cluster = one_node().await;
    let near = client(&cluster).await;
    let writes = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&writes);
    let campaign = elector(&near, "alice", long()).campaign("db");
    let handle = campaign.handle();
    let running = tokio::spawn(campaign.run(move |leading: Leading| {
        let count = Arc::clone(&count);
        async move {
            let mut over = false;
            loop {
                // Work is only ever polled in a term that goes on; it may end during a poll.
                assert!(!over, "polled in a term that was over before");
                over = !leading.is_valid();
                count.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        }
    }));
    eventually("it writes", || writes.load(Ordering::SeqCst) > 100).await;
    let mut state = handle.state();
    let token = leader(&handle).await.token.get();

    revoke(&client(&cluster).await, "db", token).await;
    let pausing = state.wait_for(|s| matches!(s, ringfence_client::CampaignState::Pausing { .. }));
    let why = within("it stops", pausing).await.unwrap().clone();
    assert!(format!("{why:?}").contains("edited by hand"), "{why:?}");
    running.abort();
}

#[tokio::test]
async fn s1_9_a_process_that_leads_to_its_end_is_told_of_the_loss_at_once() {
    let cluster = one_node().await;
    let near = client(&cluster).await;
    // No keep-alive is due in time.
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let timings = Timings::new(seconds(300), seconds(290), seconds(1)).unwrap();
    let lease = elector(&near, "alice", timings).campaign("db").lead();
    let lease = lease.await.unwrap();

    revoke(&client(&cluster).await, "db", lease.token().get()).await;

    // Here a program ends.
    let loss = within("the loss", lease.lost()).await;
    assert!(matches!(loss, Loss::GrantEnded { .. }), "{loss}");
    assert!(!lease.is_valid());
}

#[tokio::test]
async fn s4_3_stop_and_start_give_all_workers_an_end_and_a_new_life() {
    let cluster = one_node().await;
    let near = client(&cluster).await;
    let alive = Arc::new(AtomicUsize::new(0));
    let (workers, story) = (Arc::clone(&alive), Story::new());
    let told = story.clone();
    // Registered once; started in each term.
    let names = Arc::new(["reconcile", "collect", "report"]);
    let campaign = elector(&near, "alice", long())
        .campaign("controllers")
        .grace(LONG);
    let handle = campaign.handle();
    let running = tokio::spawn(campaign.run(move |leading| {
        let (workers, story, names) = (Arc::clone(&workers), told.clone(), Arc::clone(&names));
        async move {
            let mut controllers = tokio::task::JoinSet::new();
            for _ in &*names {
                let (workers, leading) = (Arc::clone(&workers), leading.clone());
                controllers.spawn(async move {
                    workers.fetch_add(1, Ordering::SeqCst);
                    tokio::select! {
                        _ = leading.lost() => {}
                        () = leading.leaving() => {}
                    }
                    workers.fetch_sub(1, Ordering::SeqCst);
                });
            }
            story.tell("started");
            while controllers.join_next().await.is_some() {}
            story.tell("all ended");
        }
    }));
    for term in 1..=3 {
        story.until(term, "started").await;
        eventually("all workers run", || alive.load(Ordering::SeqCst) == 3).await;
        handle.step_down(Successor::Next);
        story.until(term, "all ended").await;
    }
    handle.leave(Successor::Next);
    within("the end", running).await.unwrap().unwrap();
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn s4_4_work_that_fails_at_once_is_tried_with_growing_pauses() {
    let cluster = one_node().await;
    let near = client(&cluster).await;
    let story = Story::new();
    let told = story.clone();
    let campaign = elector(&near, "alice", long()).campaign("db");
    let running = tokio::spawn(campaign.run(move |_| {
        told.tell(format!("{}", BootClock.now().since_boot().as_millis()));
        async { Err::<(), _>("no database") }
    }));
    story.until(5, "").await;
    running.abort();

    let times: Vec<u64> = story.lines().iter().map(|l| l.parse().unwrap()).collect();
    let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // 100 ms doubled each time, less a fifth.
    for (pause, least) in pauses.iter().zip([80, 160, 320, 640]) {
        assert!(*pause >= least, "{pauses:?}");
    }
}

#[tokio::test]
async fn s4_8_a_leader_whose_work_fails_or_panics_gives_the_lease_up() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let story = Story::new();
    let (told, work) = (story.clone(), story.clone());
    let good = Arc::new(Notify::new());
    let bad = elector(&client, "bad", long())
        .campaign("db")
        .on_stopped(move |it| told.tell(format!("bad stopped: {}", it.cause)));
    let mut terms = 0;
    let bad = tokio::spawn(bad.run(move |_| {
        terms += 1;
        let panics = terms == 2;
        async move {
            assert!(!panics, "this controller is broken");
            Err::<(), _>("the controller did not start")
        }
    }));
    story
        .until(1, "bad stopped: the work failed: the controller")
        .await;
    story
        .until(1, "bad stopped: the work panicked: this controller")
        .await;
    // And a third time: neither ends the campaign, neither keeps the lease.
    story.until(2, "bad stopped: the work failed").await;
    let wait = Arc::clone(&good);
    let next = elector(&client, "good", long()).campaign("db");
    let next = tokio::spawn(next.run(move |_| {
        let (work, wait) = (work.clone(), Arc::clone(&wait));
        async move {
            work.tell("good leads");
            wait.notified().await;
        }
    }));
    story.until(1, "good leads").await;
    bad.abort();
    next.abort();
}

#[tokio::test]
async fn s4_2_the_rest_of_the_process_serves_on_and_it_may_win_again() {
    let cluster = one_node().await;
    let near = client(&cluster).await;
    let campaign = elector(&near, "alice", short()).campaign("db");
    let handle = campaign.handle();
    let story = Story::new();
    let told = story.clone();
    let electing = tokio::spawn(campaign.run(move |leading| {
        told.tell(format!("leads {}", leading.token()));
        std::future::pending::<()>()
    }));
    // What the process serves beside.
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    let api = tokio::spawn(async move {
        loop {
            count.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let operator = client(&cluster).await;
    for term in 1..=3 {
        story.until(term, "leads").await;
        let line = story.lines()[term - 1].clone();
        let token = line.rsplit(' ').next().unwrap().parse().unwrap();
        let before = served.load(Ordering::SeqCst);
        revoke(&operator, "db", token).await;
        eventually("the API serves on", || {
            served.load(Ordering::SeqCst) > before + 10
        })
        .await;
    }
    story.until(4, "leads").await;
    assert!(!electing.is_finished() && !api.is_finished());
    assert!(handle.is_leading());
    api.abort();
    electing.abort();
}

#[tokio::test]
async fn a_leader_without_a_heartbeat_is_replaced_though_its_client_lives() {
    let cluster = one_node().await;
    let (near, far) = (client(&cluster).await, client(&cluster).await);
    let story = Story::new();
    let (stopped, work) = (story.clone(), story.clone());
    let stuck = elector(&near, "stuck", short())
        .campaign("db")
        .on_stopped(move |it| {
            stopped.tell(format!("{:?}", it.cause == StopCause::Lost(Loss::Stuck)));
        });
    let running = tokio::spawn(stuck.run(move |leading| {
        let work = work.clone();
        async move {
            work.tell("stuck leads");
            let _promise = leading.heartbeat(Duration::from_millis(500));
            std::future::pending::<()>().await;
        }
    }));
    story.until(1, "stuck leads").await;

    let next: Moment = {
        let lease = elector(&far, "next", short()).campaign("db").lead();
        let lease = within("the takeover", lease).await.unwrap();
        assert!(lease.is_valid());
        BootClock.now()
    };
    assert!(next.since_boot() > Duration::ZERO);
    story.until(1, "true").await;
    running.abort();
}

#[tokio::test]
async fn pain_4_the_lease_is_given_up_only_after_the_work_has_stopped() {
    let cluster = one_node().await;
    let (near, far) = (client(&cluster).await, client(&cluster).await);
    let story = Story::new();
    let (work, stopped, next) = (story.clone(), story.clone(), story.clone());
    let campaign = elector(&near, "alice", long())
        .campaign("db")
        .grace(LONG)
        .on_stopped(move |_| stopped.tell("stopped"));
    let handle = campaign.handle();
    let running = tokio::spawn(campaign.run(move |leading| {
        let story = work.clone();
        async move {
            let _tell = Dropped(story.clone(), "dropped".into());
            story.tell("works");
            leading.leaving().await;
            assert!(leading.is_valid(), "still held while it winds down");
            story.tell("flushed");
        }
    }));
    story.until(1, "works").await;
    let waiting = tokio::spawn(async move {
        let lease = elector(&far, "bob", long()).campaign("db").lead().await;
        next.tell("next leads");
        lease
    });

    handle.leave(Successor::Next);
    story.until(1, "next leads").await;

    let expected = ["works", "flushed", "dropped", "stopped", "next leads"];
    assert_eq!(story.lines(), expected);
    within("the end", running).await.unwrap().unwrap();
    assert!(waiting.await.unwrap().unwrap().is_valid());
}

#[tokio::test]
async fn pain_5_an_elector_whose_work_panics_leads_again() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let story = Story::new();
    let work = story.clone();
    let campaign = elector(&client, "alice", long()).campaign("db");
    let running = tokio::spawn(campaign.run(move |leading| {
        work.tell(format!("leads {}", leading.token()));
        // Once before the work begins to run, once within it.
        assert!(work.count("leads") != 1, "a bug");
        let second = work.count("leads") == 2;
        async move {
            tokio::task::yield_now().await;
            assert!(!second, "another bug");
            std::future::pending::<()>().await;
        }
    }));
    story.until(3, "leads").await;
    assert!(!running.is_finished());
    running.abort();
}

#[tokio::test]
async fn pain_18_forty_leases_of_one_elector_cost_one_keep_alive() {
    let cluster = one_node().await;
    let near = client(&cluster).await;
    let elector = elector(&near, "alice", short());
    let mut leases = Vec::new();
    for n in 0..40 {
        let campaign = elector.campaign(format!("db/{n}")).observe(false);
        leases.push(campaign.lead().await.unwrap());
    }
    let before = cluster.applied(0).await;
    let seconds = 6;
    let until = BootClock.now() + Duration::from_secs(seconds);
    near.sleep_until(until).await;

    // One keep-alive per 0.9 s, and the cluster's own clock twice a second at most.
    let written = cluster.applied(0).await - before;
    assert!(written <= 5 * seconds, "{written} entries");
    assert!(leases.iter().all(|lease| lease.is_valid()));
}

#[tokio::test]
async fn s0_7_a_starved_executor_loses_no_lease() {
    let cluster = one_node().await;
    let near = client(&cluster).await;
    let lease = elector(&near, "alice", short()).campaign("db").lead();
    let lease = lease.await.unwrap();
    // This test's executor has one thread, and this blocks it for two lease durations.
    let until = BootClock.now() + short().lease_duration() * 2;
    while BootClock.now() < until {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    assert!(lease.is_valid());
}
