//! What electors and raw locks ask of the cluster, and what they make of odd answers.

use std::time::Duration;

use ringfence_client::{
    CampaignError, CampaignState, Client, Elector, Pod, PodText, RawLock, SessionOptions,
    Successor, Timings,
};
use ringfence_proto::v1::client_frame::Body as Ask;

use crate::support::{Act, Cluster, eventually, is_acquire, is_keep_alive, served, within};

fn options(ttl: Duration) -> SessionOptions {
    SessionOptions {
        ttl,
        identity: "alice".into(),
    }
}

fn elector(client: &Client, lease_ms: u64) -> Elector {
    let ms = |ms| Some(Duration::from_millis(ms));
    let timings = Timings::new(ms(lease_ms), ms(lease_ms * 9 / 10), ms(20)).unwrap();
    Elector::builder(client).timings(timings).build()
}

fn is_request(ask: &Ask) -> bool {
    !is_keep_alive(ask)
}

#[tokio::test]
async fn s0_1_taking_costs_two_requests_and_each_call_after_it_one() {
    let (cluster, _node, client) = served().await;
    let mut lock = RawLock::new(&client, "db", options(Duration::from_secs(60))).unwrap();

    assert!(lock.try_acquire().await.unwrap());
    assert_eq!(cluster.count(is_request), 2);
    assert!(lock.try_acquire().await.unwrap());
    assert_eq!(cluster.count(is_request), 3);
    lock.refresh().await.unwrap();
    assert_eq!(cluster.count(is_request), 4);
}

#[tokio::test]
async fn s0_1_an_answer_that_never_comes_is_no_true() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let builder = Client::builder().endpoints([node.address()]);
    let client = builder.request_timeout(Duration::from_millis(300));
    let client = client.connect().await.unwrap();
    let mut lock = RawLock::new(&client, "db", options(Duration::from_secs(60))).unwrap();
    node.script(is_acquire, Act::Swallow, usize::MAX);

    lock.try_acquire().await.unwrap_err();

    assert!(!lock.is_mine());
    // It was granted, and is taken back.
    eventually("nothing is left behind", || cluster.model().held.is_empty()).await;
}

#[tokio::test]
async fn pain_21_a_release_with_a_hundred_candidates_is_one_grant_and_no_herd() {
    let (cluster, _node, client) = served().await;
    let leader = elector(&client, 60_000);
    let leader = leader.campaign("db").observe(false).lead().await.unwrap();
    let runs: Vec<_> = (0..100)
        .map(|_| {
            let campaign = elector(&client, 60_000).campaign("db").observe(false);
            tokio::spawn(campaign.run_callbacks())
        })
        .collect();
    let queued = || cluster.model().queue.get("db").map_or(0, Vec::len);
    eventually("all wait", || queued() == 100).await;
    let before = cluster.count(is_request);

    leader.release().await.unwrap();

    eventually("the next one leads", || queued() == 99).await;
    assert_eq!(cluster.model().grants, 2);
    assert_eq!(cluster.count(is_request), before + 1, "the release alone");
    runs.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn pain_25_a_candidate_whose_session_has_ended_stands_again_under_a_new_one() {
    let (cluster, _node, client) = served().await;
    let leader = elector(&client, 60_000).campaign("db").observe(false);
    let leader = leader.lead().await.unwrap();
    let campaign = elector(&client, 900).campaign("db").observe(false);
    let handle = campaign.handle();
    let running = tokio::spawn(campaign.run_callbacks());
    let waiting = || {
        let model = cluster.model();
        model
            .queue
            .get("db")
            .and_then(|queue| queue.first().copied())
    };
    eventually("it waits", || waiting().is_some()).await;
    let (zombie, _) = waiting().unwrap();

    // The cluster ends its session; the wait goes with it, without a word on the call.
    cluster.change(|model| {
        model.sessions.remove(&zombie);
        model.queue.remove("db");
    });
    eventually("it waits again", || {
        waiting().is_some_and(|(s, _)| s != zombie)
    })
    .await;
    leader.release().await.unwrap();
    eventually("it leads", || handle.is_leading()).await;
    running.abort();
}

#[tokio::test]
async fn s4_4_a_cluster_that_refuses_is_asked_with_pauses_and_says_why() {
    let (cluster, node, client) = served().await;
    let full = ringfence_proto::Refusal::new(
        ringfence_proto::v1::Reason::Limit,
        "too many wait for this lease",
    );
    node.script(is_acquire, Act::Refuse(full), 3);
    let campaign = elector(&client, 60_000).campaign("db").observe(false);
    let handle = campaign.handle();
    let mut state = handle.state();
    let running = tokio::spawn(campaign.run_callbacks());

    let pausing = state.wait_for(|state| matches!(state, CampaignState::Pausing { .. }));
    let why = format!("{:?}", *within("a pause", pausing).await.unwrap());
    assert!(why.contains("too many wait"), "{why}");
    eventually("it leads", || handle.is_leading()).await;
    assert_eq!(cluster.count(is_acquire), 4);
    handle.leave(Successor::Next);
    within("the end", running).await.unwrap().unwrap();
    assert_eq!(*state.borrow(), CampaignState::Over);
}

#[tokio::test]
async fn nobody_believes_in_a_term_that_is_being_handed_over() {
    let (_cluster, node, client) = served().await;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let campaign = elector(&client, 60_000).campaign("db").observe(false);
    // A task that the work has spawned elsewhere would have such a clone.
    let campaign = campaign.on_started(move |leading| drop(tell.send(leading.clone())));
    let handle = campaign.handle();
    let running = tokio::spawn(campaign.run_callbacks());
    let leading = within("a term", told.recv()).await.unwrap();
    assert!(leading.is_valid());
    node.script(|ask| matches!(ask, Ask::Transfer(_)), Act::HoldRequest, 1);

    handle.leave(Successor::Next);
    eventually("the hand-over is under way", || node.holds() == 1).await;

    // The cluster may have granted it to the next one already.
    assert!(!leading.is_valid());
    assert!(leading.remaining().is_zero());
    assert!(leading.range().is_none());
    node.let_go(false);
    within("the end", running).await.unwrap().unwrap();
    assert!(!leading.is_valid());
}

#[tokio::test]
async fn a_campaign_can_be_spawned_and_dropped_at_any_time() {
    let (cluster, _node, client) = served().await;
    for polls in 0..20 {
        let mut campaign = Box::pin(elector(&client, 60_000).campaign("db").run_callbacks());
        for _ in 0..polls {
            tokio::select! {
                biased;
                _ = &mut campaign => panic!("it goes on for ever"),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
        }
        drop(campaign);
        eventually("nothing is left", || {
            let model = cluster.model();
            model.held.is_empty() && model.queue.is_empty()
        })
        .await;
    }
}

#[tokio::test]
async fn a_leader_for_life_that_lingers_can_be_left() {
    let (cluster, _node, client) = served().await;
    let pod = Pod::parse(PodText {
        namespace: "shop",
        name: "controller-0",
        uid: "0a1b",
        container: "",
    });
    let elector = Elector::builder(&client).for_life(pod.unwrap()).build();
    let campaign = elector.campaign("db").observe(false).linger(true);
    let handle = campaign.handle();
    let running = tokio::spawn(campaign.run_callbacks());
    eventually("it leads", || handle.is_leading()).await;

    handle.leave(Successor::Next);

    within("the end", running).await.unwrap().unwrap();
    assert!(cluster.model().is_quiet());
}

#[tokio::test]
async fn the_handle_of_a_lease_that_was_led_follows_it_to_its_end() {
    let (_cluster, _node, client) = served().await;
    let campaign = elector(&client, 60_000).campaign("db").observe(false);
    let handle = campaign.handle();

    let lease = campaign.lead().await.unwrap();

    let token = lease.token();
    assert_eq!(*handle.state().borrow(), CampaignState::Leading { token });
    assert!(handle.is_leading() && handle.range().is_some());
    lease.release().await.unwrap();
    eventually("the end", || {
        *handle.state().borrow() == CampaignState::Over
    })
    .await;
    assert!(!handle.is_leading() && handle.range().is_none());
}

#[tokio::test]
async fn the_handle_of_a_campaign_that_was_dropped_says_that_it_is_over() {
    let (_cluster, _node, client) = served().await;
    let campaign = elector(&client, 60_000).campaign("db").observe(false);
    let handle = campaign.handle();
    let running = tokio::spawn(campaign.run_callbacks());
    eventually("it leads", || handle.is_leading()).await;

    running.abort();

    eventually("the end", || {
        *handle.state().borrow() == CampaignState::Over
    })
    .await;
    assert!(handle.range().is_none());
}

#[tokio::test]
async fn a_single_run_is_seen_by_its_handle_and_can_be_left() {
    let (cluster, _node, client) = served().await;
    let campaign = elector(&client, 60_000).campaign("db").observe(false);
    let handle = campaign.handle();
    let running = tokio::spawn(campaign.once(|_| std::future::pending::<()>()));
    let leads = || matches!(*handle.state().borrow(), CampaignState::Leading { .. });
    eventually("it leads", leads).await;

    handle.leave(Successor::Next);

    let left = within("the end", running).await.unwrap();
    assert!(matches!(left, Err(CampaignError::Left)), "{left:?}");
    assert_eq!(*handle.state().borrow(), CampaignState::Over);
    eventually("the release", || cluster.model().is_quiet()).await;
}

#[tokio::test]
async fn a_single_run_that_steps_down_begins_again_and_ends_with_its_work() {
    let (_cluster, _node, client) = served().await;
    let campaign = elector(&client, 60_000).campaign("db").observe(false);
    let handle = campaign.handle();
    let running = tokio::spawn(campaign.once(|leading| async move {
        if leading.token().get() == 1 {
            std::future::pending::<()>().await;
        }
        leading.token().get()
    }));
    eventually("it leads", || handle.is_leading()).await;

    handle.step_down(Successor::Next);

    assert_eq!(within("the end", running).await.unwrap().unwrap(), 2);
    assert_eq!(*handle.state().borrow(), CampaignState::Over);
    assert!(!handle.is_leading() && handle.range().is_none());
}
