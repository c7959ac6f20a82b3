//! How long a session lasts: what its TTL says, however often leaders change, stall and come back. A
//! name that begins with `pain_` carries a number of `client/KNOWN-PROBLEMS.md`.
//!
//! All times are cluster time, as the answers tell it: a machine that has too much to do changes
//! nothing about them.

use std::time::Duration;

use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::{
    CheckRequest, Grant, RevokeRequest, StatusRequest, StatusResponse, TransferLeaderRequest,
};
use ringfence_tests::{Caller, Cluster, Journal, Options, Session, Signal};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const TTL: Duration = Duration::from_secs(6);
/// How long after its time has come a session ends at the latest (I8, I9).
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// Long enough that no healthy test reaches it.
const LONG: Duration = Duration::from_secs(90);
/// `Check` says that a grant is in force.
const CURRENT: i32 = 1;

fn patient(cluster: &Cluster) -> Caller {
    let mut caller = cluster.caller();
    caller.patience = LONG;
    caller
}

/// Renews a session; the cluster time by which that had been heard.
async fn heard(caller: &Caller, session: &Session) -> Duration {
    let reply = caller.keep_alive(session).await.unwrap();
    assert!(reply.ended.is_empty() && reply.lost.is_empty(), "{reply:?}");
    Duration::from_millis(reply.cluster_time_ms)
}

/// Waits for a lease, at a node that does not lead if there is one; its grant, and the cluster time of that.
async fn waiting(cluster: &Cluster, name: &'static str) -> JoinHandle<(Grant, Duration)> {
    let at = (cluster.wait_for_leader(LONG).await + 1) % cluster.len();
    let mut caller = Caller::new(vec![cluster.endpoints().remove(at)]);
    caller.patience = LONG;
    tokio::spawn(async move {
        let session = caller.open("next", LONG * 2).await.unwrap();
        let wait = Some(LONG);
        let granted = caller.acquire_at(&session, session.number(), name, wait);
        granted.await.unwrap()
    })
}

async fn queued(caller: &Caller, name: &str) {
    let wait = async {
        while caller
            .get(name)
            .await
            .unwrap()
            .is_none_or(|lease| lease.waiters == 0)
        {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, wait).await.expect("a place in the queue");
}

/// One who holds a lease and is dead, one who holds another and lives, and one who waits for the
/// lease of the dead.
struct Stage {
    cluster: Cluster,
    dead: Grant,
    /// Between these two the dead one was heard of for the last time.
    heard: (Duration, Duration),
    living: Grant,
    lives: JoinHandle<()>,
    next: JoinHandle<(Grant, Duration)>,
}

impl Stage {
    async fn set() -> Self {
        let cluster = Cluster::start(Options::alone()).await;
        let caller = patient(&cluster);
        let dead = caller.open("dead", TTL).await.unwrap();
        let living = caller.open("living", TTL).await.unwrap();
        let held = caller.acquire(&dead, 1, "of/the/dead", None).await.unwrap();
        let lasting = caller.acquire(&living, 1, "of/the/living", None);
        let lasting = lasting.await.unwrap();
        let keeper = patient(&cluster);
        let lives = tokio::spawn(async move {
            loop {
                heard(&keeper, &living).await;
                sleep(TTL / 6).await;
            }
        });
        let next = waiting(&cluster, "of/the/dead").await;
        queued(&caller, "of/the/dead").await;
        let before = heard(&caller, &dead).await;
        let after = heard(&caller, &dead).await;
        Self {
            cluster,
            dead: held,
            heard: (before, after),
            living: lasting,
            lives,
            next,
        }
    }

    /// The lease of the dead has gone to the next one: not before its TTL was over, and within twice
    /// that and a second.
    async fn assert_the_dead_one_ended(&mut self) {
        let next = timeout(LONG, &mut self.next).await;
        let (grant, ended) = next.expect("the next one's turn").unwrap();
        assert!(grant.token > self.dead.token);
        let (from, to) = (self.heard.0 + TTL, self.heard.1 + TTL * 2 + ENDS_WITHIN);
        assert!(
            (from..=to).contains(&ended),
            "heard of at {:?}, ended at {ended:?}, not within {from:?} to {to:?}",
            self.heard
        );
    }

    async fn assert_the_living_one_holds(&self) {
        let Grant { name, token, .. } = &self.living;
        let caller = patient(&self.cluster);
        let verdict = caller.check(name, *token).await.unwrap();
        assert_eq!(verdict.verdict, CURRENT, "{verdict:?}");
        assert!(!self.lives.is_finished(), "its session ended");
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.lives.abort();
        self.next.abort();
    }
}

async fn status(cluster: &Cluster, at: usize) -> StatusResponse {
    let mut node = ClusterClient::new(cluster.caller().channel(at));
    let answer = timeout(LONG, node.status(StatusRequest {})).await;
    answer.expect("a status in time").unwrap().into_inner()
}

/// Hands leadership over; the cluster time at which the next term had begun.
async fn change_the_leader(cluster: &Cluster) -> Duration {
    let leader = cluster.wait_for_leader(LONG).await;
    let term = status(cluster, leader).await.term;
    let change = async {
        loop {
            let mut node = ClusterClient::new(cluster.caller().channel(leader));
            // Also a change that fails may have begun a term.
            node.transfer_leader(TransferLeaderRequest { node_id: 0 })
                .await
                .ok();
            let now = status(cluster, leader).await;
            if now.term > term && now.leader_id != 0 {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LONG, change).await.expect("the next leader");
    // A write of the new term.
    let caller = patient(cluster);
    let probe = caller.open("probe", TTL).await.unwrap();
    heard(&caller, &probe).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pain_06_a_dead_session_ends_in_time_however_often_the_leader_changes() {
    let mut stage = Stage::set().await;
    // From term to term in less than a TTL, until one has begun that would be a third.
    let (mut changes, mut newest) = (0, stage.heard.1);
    while newest < stage.heard.1 + TTL {
        let changed = change_the_leader(&stage.cluster).await;
        assert!(
            changed - newest < TTL,
            "{changed:?} is long after {newest:?}"
        );
        (changes, newest) = (changes + 1, changed);
        sleep(TTL / 6).await;
    }
    assert!(changes >= 3, "{changes} changes are few");

    stage.assert_the_dead_one_ended().await;
    stage.assert_the_living_one_holds().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pain_07_a_stalled_and_deposed_leader_ends_no_living_lease_and_keeps_no_dead_one() {
    let mut stage = Stage::set().await;
    let stalled = stage.cluster.wait_for_leader(LONG).await;
    let term = status(&stage.cluster, stalled).await.term;
    stage.cluster.signal(stalled, Signal::Stop);
    // The others need no word of it.
    stage.assert_the_dead_one_ended().await;
    stage.assert_the_living_one_holds().await;

    stage.cluster.signal(stalled, Signal::Continue);
    // Whatever it wanted to end or to keep when it was stopped: it answers for neither.
    let dead = CheckRequest {
        name: stage.dead.name.clone(),
        token: stage.dead.token,
        read: None,
    };
    let asking = async {
        loop {
            let mut node = LeasesClient::new(stage.cluster.caller().channel(stalled));
            if let Ok(answer) = node.check(dead.clone()).await {
                return answer.into_inner().verdict;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let verdict = timeout(LONG, asking).await.expect("an answer");
    assert_ne!(verdict, CURRENT, "it keeps a dead one");
    let from = stage.cluster.time(stalled).await;
    // As long as it could have gone on with what it knew.
    while stage.cluster.time(stalled).await < from + TTL * 2 {
        stage.assert_the_living_one_holds().await;
        sleep(TTL / 12).await;
    }
    assert!(status(&stage.cluster, stalled).await.term > term);
}

#[tokio::test(flavor = "multi_thread")]
async fn pain_19_a_session_lasts_for_its_ttl_from_its_last_keep_alive_and_a_second_at_most() {
    // Alone it elects no new leader, and a change of the leader would give each session a fresh
    // TTL.
    let options = Options {
        nodes: 1,
        ..Options::alone()
    };
    let cluster = Cluster::start(options).await;
    let caller = patient(&cluster);
    for (name, ttl) in [("ttl/3", 3), ("ttl/4", 4), ("ttl/7", 7)] {
        let ttl = Duration::from_secs(ttl);
        let session = caller.open("silent", ttl).await.unwrap();
        caller.acquire(&session, 1, name, None).await.unwrap();
        let next = waiting(&cluster, name).await;
        queued(&caller, name).await;
        // What was heard before counts for nothing more.
        heard(&caller, &session).await;
        sleep(ttl / 3).await;
        let sent = Journal::now();
        let acknowledged = heard(&caller, &session).await;

        let (_, ended) = timeout(LONG, next).await.expect("its turn").unwrap();
        let lasted = Journal::now() - sent;
        assert!(lasted >= ttl, "{name} ended after {lasted:?}");
        let latest = acknowledged + ttl + ENDS_WITHIN;
        assert!(
            ended <= latest,
            "{name} ended at {ended:?}, {latest:?} at the latest"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pain_24_an_operator_breaks_a_lock_of_the_dead_at_once() {
    let cluster = Cluster::start(Options::alone()).await;
    let caller = patient(&cluster);
    // As long as a session may last without a sign of life.
    let dead = caller.open("dead", Duration::from_secs(300)).await.unwrap();
    let held = caller.acquire(&dead, 1, "stuck", None).await.unwrap();
    let next = waiting(&cluster, "stuck").await;
    queued(&caller, "stuck").await;

    let leader = cluster.wait_for_leader(LONG).await;
    let revoke = RevokeRequest {
        name: "stuck".into(),
        token: held.token,
        now: true,
        reason: "its machine has burnt".into(),
        operator: "carol".into(),
    };
    let mut node = LeasesClient::new(caller.channel(leader));
    let revoked = node.revoke(revoke).await.unwrap().into_inner();
    let revoked = Duration::from_millis(revoked.cluster_time_ms);

    let (grant, granted) = timeout(LONG, next).await.expect("its turn").unwrap();
    assert!(grant.token > held.token);
    assert!(
        granted <= revoked + ENDS_WITHIN,
        "{granted:?}, revoked at {revoked:?}"
    );
}
