//! Watches beside everything else that a client does.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_client::{AcquireError, Elector, HeldLease, Pod, PodText, Session, WatchItem};
use ringfence_proto::v1::{self, watch_event};

use crate::support::{
    Act, Cluster, Node, client, eventually, is_acquire, is_keep_alive, served, session,
    unavailable, within,
};

fn position(index: u64) -> v1::Position {
    v1::Position {
        cluster_id: vec![7; 16].into(),
        index,
        n: u32::MAX,
        term: 1,
    }
}

fn held(number: u64) -> v1::WatchEvent {
    let name = format!("jobs/{number}");
    let grant = v1::Grant {
        name: name.clone(),
        token: number + 1,
        session: 1_000,
        identity: "bob".into(),
        data: vec![7; 1_024].into(),
        ..v1::Grant::default()
    };
    v1::WatchEvent {
        kind: Some(watch_event::Kind::Present(v1::Lease {
            name,
            holder: Some(grant),
            ..v1::Lease::default()
        })),
        position: None,
    }
}

/// 12,000 leases that others hold, each with 1 KiB of data.
fn a_crowd(_: &v1::WatchRequest) -> Vec<v1::WatchResponse> {
    let page = |page: u64| v1::WatchResponse {
        events: (0..100).map(|at| held(page * 100 + at)).collect(),
        position: (page == 119).then(|| position(9)),
        compacted: false,
    };
    (0..120).map(page).collect()
}

fn nobody(_: &v1::WatchRequest) -> Vec<v1::WatchResponse> {
    vec![v1::WatchResponse {
        events: Vec::new(),
        position: Some(position(9)),
        compacted: false,
    }]
}

/// "A reader that falls behind holds up only itself."
#[tokio::test]
async fn a_slow_reader_of_a_watch_costs_no_lease() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    node.tell_watches(a_crowd);
    let client = client(&[&node]).await;
    let session = session(&client, Duration::from_secs(3)).await;
    let lease = session.acquire("db").send().await.unwrap();

    let (mut one, mut other) = (client.watch(""), client.watch("jobs/"));
    for watch in [&mut one, &mut other] {
        let first = within("the beginning", watch.next()).await;
        assert!(
            matches!(first, Some(Ok(WatchItem::Restarted(_)))),
            "{first:?}"
        );
    }
    // It is busy with that for a while.
    let lost = tokio::time::timeout(Duration::from_secs(8), lease.lost()).await;

    assert!(
        lost.is_err(),
        "a reader that is slow has cost a lease: {lost:?}"
    );
}

#[tokio::test]
async fn a_slow_reader_of_a_watch_holds_up_no_request() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    node.tell_watches(a_crowd);
    let client = client(&[&node]).await;
    let session = session(&client, Duration::from_secs(15)).await;
    let _lease = session.acquire("db").send().await.unwrap();

    let (mut one, mut other) = (client.watch(""), client.watch("jobs/"));
    for watch in [&mut one, &mut other] {
        within("the beginning", watch.next()).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let db = ringfence_client::LeaseName::parse("db").unwrap();
    let answered = tokio::time::timeout(Duration::from_secs(1), client.look_up(&db)).await;
    assert!(answered.is_ok(), "beside watches of {:?}", node.watches());
    answered.unwrap().unwrap();
}

/// Why observers share watches: a connection carries 1,024 streams.
async fn room_to_ask(name: fn(usize) -> String) {
    let (_cluster, node, client) = served().await;
    node.tell_watches(nobody);
    let session = session(&client, Duration::from_secs(60)).await;
    let mut leases = Vec::new();
    for number in 0..1_100 {
        let lease = session.acquire(name(number)).watched().send().await;
        leases.push(lease.unwrap());
    }

    let attaching = client.attach(session.handle(), Duration::MAX);
    let attached = tokio::time::timeout(Duration::from_secs(15), attaching).await;

    let watches = node.watches().len();
    assert!(
        matches!(attached, Ok(Ok(_))),
        "with {watches} watches nothing else can be asked for: {attached:?}"
    );
}

#[tokio::test]
async fn many_leases_of_one_folder_leave_room_to_ask() {
    room_to_ask(|number| format!("shards/{number}")).await;
}

#[tokio::test]
async fn many_leases_without_a_folder_leave_room_to_ask() {
    room_to_ask(|number| format!("shard-{number}")).await;
}

#[tokio::test]
async fn many_leases_with_a_folder_each_leave_room_to_ask() {
    room_to_ask(|number| format!("shards/{number}/leader")).await;
}

fn event(index: u64, kind: watch_event::Kind) -> v1::WatchResponse {
    let at = v1::Position {
        n: 1,
        ..position(index)
    };
    v1::WatchResponse {
        events: vec![v1::WatchEvent {
            kind: Some(kind),
            position: Some(at),
        }],
        ..v1::WatchResponse::default()
    }
}

fn pod() -> Pod {
    let pod = Pod::parse(PodText {
        namespace: "shop",
        name: "controller-0",
        uid: "0a1b",
        container: "",
    });
    pod.unwrap()
}

fn end_of(grant: &v1::Grant) -> watch_event::Kind {
    watch_event::Kind::Ended(v1::GrantEnded {
        name: grant.name.clone(),
        token: grant.token,
        session: grant.session,
        identity: grant.identity.clone(),
        ..v1::GrantEnded::default()
    })
}

/// An executor that was busy while its candidate was granted the lease and lost it again, or an answer
/// that took longer than the watch.
async fn a_grant_that_ended_before_it_was_heard_of(pod: Option<Pod>) {
    let (cluster, node, client) = served().await;
    node.tell_watches(nobody);
    let builder = Elector::builder(&client);
    let elector = match pod {
        Some(pod) => builder.for_life(pod),
        None => builder,
    };
    let elector = elector.build();
    node.script(is_acquire, Act::HoldReply, 1);
    let leading = tokio::spawn(elector.campaign("db").lead());
    eventually("the request", || node.holds() == 1).await;
    eventually("the watch", || node.watches() == ["db"]).await;
    let lease = cluster.model().get("db").lease.unwrap();
    let grant = lease.holder.unwrap();

    let ended = end_of(&grant);
    cluster.change(|model| model.revoke("db"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    node.tell(&event(10, watch_event::Kind::Granted(grant)));
    node.tell(&event(11, ended));
    tokio::time::sleep(Duration::from_millis(300)).await;
    node.let_go(false);

    let lease = tokio::time::timeout(Duration::from_secs(15), leading).await;
    // Not granted again: no candidate leads.
    let Ok(lease) = lease else { return };
    let lease = lease.unwrap().unwrap();
    let lost = tokio::time::timeout(Duration::from_secs(15), lease.lost()).await;
    assert!(
        lost.is_ok()
            || cluster
                .model()
                .get("db")
                .lease
                .is_some_and(|l| l.holder.is_some()),
        "{lease:?} was revoked 15 s ago, its end was told, and it is held: {}",
        lease.is_valid()
    );
}

#[tokio::test]
async fn a_leader_whose_grant_ended_before_it_was_heard_of_is_told() {
    a_grant_that_ended_before_it_was_heard_of(None).await;
}

#[tokio::test]
async fn a_leader_for_life_whose_grant_ended_before_it_was_heard_of_is_told() {
    a_grant_that_ended_before_it_was_heard_of(Some(pod())).await;
}

/// As before, of a lease that another observer of the client follows already: the watch that it would
/// else begin for itself would report the present state.
async fn a_grant_beside_the_next(reported: bool) -> Result<HeldLease, AcquireError> {
    let (cluster, node, client) = served().await;
    node.tell_watches(nobody);
    let for_life = client.open_session_for(&pod(), "old").await.unwrap();
    node.script(is_acquire, Act::HoldReply, 1);
    let acquiring = tokio::spawn(for_life.acquire("db").send());
    eventually("the request", || node.holds() == 1).await;
    let next = tokio::spawn(Elector::new(&client).campaign("db").lead());
    eventually("the candidate", || !cluster.model().nobody_waits()).await;
    eventually("the watch", || node.watches() == ["db"]).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let grant = |cluster: &Cluster| cluster.model().get("db").lease.unwrap().holder.unwrap();
    let old = grant(&cluster);

    // With --now.
    cluster.change(|model| model.revoke("db"));
    if reported {
        node.tell(&event(11, end_of(&old)));
        node.tell(&event(12, watch_event::Kind::Granted(grant(&cluster))));
    }
    let next = within("the next leader", next).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    node.let_go(false);

    let acquired = within("an answer", acquiring).await.unwrap();
    if let Ok(lease) = &acquired {
        let lost = tokio::time::timeout(Duration::from_secs(15), lease.lost()).await;
        assert!(lost.is_ok(), "{lease:?} and {next:?} are held");
    }
    acquired
}

#[tokio::test]
async fn a_grant_whose_end_was_reported_before_it_came_is_never_held() {
    let acquired = a_grant_beside_the_next(true).await;
    assert!(
        matches!(acquired, Err(AcquireError::Ended(_))),
        "{acquired:?}"
    );
}

/// The end came before the watch, which reports the present state alone.
#[tokio::test]
async fn a_grant_that_a_running_watch_does_not_know_is_asked_about() {
    let acquired = a_grant_beside_the_next(false).await;
    assert!(acquired.is_ok(), "its answer says so: {acquired:?}");
}

/// A lease whose grant is revoked before its answer arrives.
async fn granted_late(cluster: &Cluster, node: &Node, session: &Session) -> HeldLease {
    node.script(is_acquire, Act::HoldReply, 1);
    let acquiring = tokio::spawn(session.acquire("db").send());
    eventually("the request", || node.holds() == 1).await;
    cluster.change(|model| model.revoke("db"));
    node.let_go(false);
    within("an answer", acquiring).await.unwrap().unwrap()
}

/// The counterpart: no other watch follows it, so that its own watch begins behind the grant.
#[tokio::test]
async fn a_lease_for_life_that_nobody_else_follows_is_told_that_it_has_ended() {
    let (cluster, node, client) = served().await;
    node.tell_watches(nobody);
    let for_life = client.open_session_for(&pod(), "old").await.unwrap();
    let lease = granted_late(&cluster, &node, &for_life).await;
    within("its loss", lease.lost()).await;
}

/// The same for a campaign that has its own watch: the lease was taken away before this began to tell,
/// and the grant came behind it.
#[tokio::test]
async fn a_term_for_life_that_a_running_watch_does_not_know_is_asked_about() {
    let (cluster, node, client) = served().await;
    node.tell_watches(nobody);
    let elector = Elector::builder(&client).for_life(pod()).build();
    node.script(is_acquire, Act::HoldReply, 1);
    let terms = Arc::new(Mutex::new(Vec::new()));
    let begun = Arc::clone(&terms);
    let campaign = elector.campaign("db").run(move |leading| {
        begun.lock().unwrap().push(leading.token().get());
        std::future::pending::<()>()
    });
    let campaign = tokio::spawn(campaign);
    eventually("the request", || node.holds() == 1).await;
    eventually("the watch", || node.watches() == ["db"]).await;
    tokio::time::sleep(Duration::from_millis(300)).await;

    cluster.change(|model| model.revoke("db"));
    node.let_go(false);

    eventually("a term of its own", || terms.lock().unwrap().contains(&2)).await;
    campaign.abort();
}

/// Nothing else would ever ask: such a session sends no keep-alives on its own.
#[tokio::test]
async fn a_question_about_a_lease_for_life_is_repeated_until_it_is_answered() {
    let (cluster, node, client) = served().await;
    node.tell_watches(nobody);
    let for_life = client.open_session_for(&pod(), "old").await.unwrap();
    // An election, and an answer that is lost.
    node.script(is_keep_alive, unavailable(None), 1);
    let lease = granted_late(&cluster, &node, &for_life).await;
    within("its loss", lease.lost()).await;
}

/// The next holder waits for it, without an end: such a session has no TTL.
#[tokio::test]
async fn the_loss_of_a_lease_for_life_is_acknowledged_until_the_cluster_has_heard() {
    let (cluster, node, client) = served().await;
    node.tell_watches(nobody);
    let for_life = client.open_session_for(&pod(), "old").await.unwrap();
    let lease = for_life.acquire("db").send().await.unwrap();
    eventually("the watch", || node.watches() == ["db"]).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let token = lease.token().get();
    let grant = cluster.model().get("db").lease.unwrap().holder.unwrap();

    node.script(is_keep_alive, unavailable(None), 1);
    cluster.change(|model| model.revoke("db"));
    node.tell(&event(11, end_of(&grant)));
    within("its loss", lease.lost()).await;

    let heard = || cluster.model().acknowledged.contains(&token);
    eventually("the acknowledgement", heard).await;
}
