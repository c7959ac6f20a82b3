//! Which listener receives what, and when.

use std::time::Duration;

use ringfence_client::{CampaignError, StopCause, Successor};

use crate::support::{self, Story, client, elector, eventually, long, one_node, within};

#[tokio::test]
async fn s2_7_listeners_are_told_of_each_start_and_each_stop_and_need_not_listen() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let story = Story::new();
    let (started, stopped) = (story.clone(), story.clone());
    let campaign = elector(&client, "alice", long())
        .campaign("db")
        .on_started(move |leading| started.tell(format!("started {}", leading.token())))
        .on_stopped(move |it| stopped.tell(format!("stopped {} {}", it.token, it.cause)));
    let handle = campaign.handle();
    let running = tokio::spawn(campaign.run_callbacks());
    story.until(1, "started").await;

    handle.step_down(Successor::Next);
    story.until(2, "started").await;
    handle.leave(Successor::Next);
    within("the end", running).await.unwrap().unwrap();

    let lines = story.lines();
    assert_eq!(lines.len(), 4, "{lines:?}");
    let token = |line: &String| line.split(' ').nth(1).unwrap().to_owned();
    assert_eq!(token(&lines[0]), token(&lines[1]), "{lines:?}");
    assert_eq!(token(&lines[2]), token(&lines[3]), "{lines:?}");
    assert_ne!(
        token(&lines[0]),
        token(&lines[2]),
        "a new term, a new token"
    );

    // Without any listener it works as well.
    let silent = elector(&client, "bob", long()).campaign("db");
    let handle = silent.handle();
    let running = tokio::spawn(silent.run_callbacks());
    eventually("it leads", || handle.is_leading()).await;
    handle.leave(Successor::Next);
    within("the end", running).await.unwrap().unwrap();
}

#[tokio::test]
async fn s3_2_a_candidate_hears_of_leaders_and_of_no_stop_of_its_own() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let leader = elector(&client, "alice", long()).campaign("db").lead();
    let leader = leader.await.unwrap();
    let story = Story::new();
    let (leaders, stops) = (story.clone(), story.clone());
    let candidate = elector(&client, "bob", long())
        .campaign("db")
        .on_new_leader(move |leader| {
            leaders.tell(format!("leader {} mine={}", leader.identity, leader.mine));
        })
        .on_stopped(move |_| stops.tell("stopped"));
    let handle = candidate.handle();
    let running = tokio::spawn(candidate.run_callbacks());

    story.until(1, "leader alice mine=false").await;
    let seen = support::leader(&handle).await;
    assert_eq!(seen.token, leader.token());
    leader.release().await.unwrap();
    story.until(1, "leader bob mine=true").await;
    // Its watch may tell of its grant before the answer does, and only who has led stops leading.
    eventually("it leads", || handle.is_leading()).await;
    handle.leave(Successor::Next);
    within("the end", running).await.unwrap().unwrap();
    assert_eq!(story.count("stopped"), 1);

    // One that leaves before it ever led has nothing to stop.
    let _leader = elector(&client, "alice", long())
        .campaign("db")
        .lead()
        .await
        .unwrap();
    let stops = story.clone();
    let never = elector(&client, "carol", long())
        .campaign("db")
        .on_stopped(move |_| stops.tell("stopped"));
    let handle = never.handle();
    let running = tokio::spawn(never.run_callbacks());
    handle.leave(Successor::Next);
    within("the end", running).await.unwrap().unwrap();
    assert_eq!(story.count("stopped"), 1);
}

#[tokio::test]
async fn s2_1_a_campaign_without_a_name_or_with_a_bad_lease_duration_says_so() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let elector = elector(&client, "alice", long());
    for name in ["", "namespace/", "/name"] {
        let error = elector.campaign(name).run_callbacks().await.unwrap_err();
        assert!(matches!(error, CampaignError::InvalidName(_)), "{error}");
    }

    let second = Duration::from_secs(1);
    let hours = ringfence_client::Timings::new(Some(second * 90_000), None, Some(second)).unwrap();
    let elector = crate::support::elector(&client, "alice", hours);
    let error = elector.campaign("db").run_callbacks().await.unwrap_err();
    assert!(matches!(error, CampaignError::Refused(_)), "{error}");
}

#[tokio::test]
async fn one_elector_campaigns_for_a_name_once_at_a_time() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let elector = elector(&client, "alice", long());
    let first = elector.campaign("db");
    let handle = first.handle();
    let running = tokio::spawn(first.run_callbacks());
    eventually("it leads", || handle.is_leading()).await;

    let error = elector.campaign("db").run_callbacks().await.unwrap_err();
    assert!(matches!(error, CampaignError::Twice { .. }), "{error}");

    handle.leave(Successor::Next);
    within("the end", running).await.unwrap().unwrap();
    drop(elector.campaign("db").lead().await.unwrap());
}

#[tokio::test]
async fn s3_9_an_election_needs_nothing_but_the_cluster() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let story = Story::new();
    let stopped = story.clone();
    let campaign = elector(&client, "alice", long())
        .campaign("db")
        .on_stopped(move |it| stopped.tell(format!("{:?}", it.cause == StopCause::Asked)));
    let handle = campaign.handle();
    let work = story.clone();
    let running = tokio::spawn(campaign.run(move |leading| {
        work.tell(format!("leads {}", leading.name()));
        std::future::pending::<()>()
    }));
    story.until(1, "leads db").await;
    handle.leave(Successor::Next);
    within("the end", running).await.unwrap().unwrap();
    assert_eq!(story.count("true"), 1);
}
