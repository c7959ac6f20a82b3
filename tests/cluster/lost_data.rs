//! Disks that lose something: a tail, a directory, or everything since yesterday.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_tests::{Act, Cluster, Journal, Options, Session, Signal};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A few grants, so that there is something to lose.
async fn grants(cluster: &Cluster, journal: &mut Journal, count: usize) -> Session {
    let caller = cluster.caller();
    let session = caller.open("loser", secs(60)).await.unwrap();
    for at in 0..count {
        let (name, invoked) = (format!("data/{at}"), Journal::now());
        let grant = caller
            .acquire(&session, session.number(), &name, None)
            .await
            .unwrap();
        let (answered, token) = (Journal::now(), grant.token);
        caller
            .release(&session, session.number(), &name, token)
            .await
            .unwrap();
        let released = Some(answered);
        journal.add(Act {
            name,
            token,
            invoked,
            answered,
            released,
        });
    }
    session
}

async fn kill_all(cluster: &mut Cluster) {
    for at in 0..cluster.len() {
        cluster.signal(at, Signal::Kill);
    }
}

async fn start_all(cluster: &mut Cluster) {
    for at in 0..cluster.len() {
        cluster.spawn(at);
    }
    cluster.wait_until_serving(secs(30)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pain_23_after_a_rollback_of_all_directories_tokens_go_on_above_the_lost_ones() {
    let mut cluster = Cluster::start(Options::default()).await;
    let mut journal = Journal::default();
    grants(&cluster, &mut journal, 20).await;
    kill_all(&mut cluster).await;
    let copy = tempfile::tempdir().unwrap();
    cluster.back_up(copy.path());

    start_all(&mut cluster).await;
    let session = grants(&cluster, &mut journal, 20).await;
    let caller = cluster.caller();
    let lost = caller.acquire(&session, session.number(), "lost", None);
    let lost = lost.await.unwrap().token;
    kill_all(&mut cluster).await;
    cluster.roll_back(copy.path());

    start_all(&mut cluster).await;
    let before = journal.len();
    let session = grants(&cluster, &mut journal, 20).await;
    assert_eq!(journal.len(), 60);
    journal.check().unwrap();
    // Nothing is below what was granted in the time that is lost, so what a store remembers of it
    // keeps no writer out; and no client learns that the lost grant is in force.
    assert!(journal.acts()[before..].iter().all(|act| act.token > lost));
    let caller = cluster.caller();
    let verdict = caller.check("lost", lost).await.unwrap();
    assert_ne!(
        verdict.verdict, 1,
        "the lost grant is in force: {verdict:?}"
    );
    let again = caller.acquire(&session, session.number(), "lost", None);
    assert!(again.await.unwrap().token > lost);
}

/// The log files of a node, the newest last.
fn segments(cluster: &Cluster, at: usize) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![cluster.data_dir(at)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "wal") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Where the records of a log file end: behind its last byte that is not zero.
fn end_of_records(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |at| at + 1)
}

/// What the log writes at once fills whole pages.
const PAGE: usize = 4096;

/// The newest file of a node's log that has records, and the page behind the last one.
fn tail(cluster: &Cluster, at: usize) -> (PathBuf, usize) {
    let files = segments(cluster, at);
    let ends = files.into_iter().rev().map(|file| {
        let end = end_of_records(&fs::read(&file).unwrap());
        (file, end.next_multiple_of(PAGE))
    });
    let mut with_records = ends.filter(|(_, end)| *end > PAGE);
    with_records.next().expect("the node has a log")
}

fn write_at(file: &Path, at: usize, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(bytes, at as u64).unwrap();
}

/// A follower that is down, while a lease is held that was granted before it went.
async fn follower_down(cluster: &mut Cluster, journal: &mut Journal) -> (usize, u64) {
    let session = grants(cluster, journal, 20).await;
    let caller = cluster.caller();
    let held = caller
        .acquire(&session, session.number(), "held", None)
        .await
        .unwrap();
    let leader = cluster.wait_for_leader(secs(5)).await;
    let victim = (leader + 1) % cluster.len();
    cluster.signal(victim, Signal::Kill);
    (victim, held.token)
}

/// Starts the node again: it has what the leader has, no session ends by that, and nothing is lost.
async fn assert_it_comes_back_whole(
    cluster: &mut Cluster,
    mut journal: Journal,
    victim: usize,
    held: u64,
) {
    cluster.spawn(victim);
    let leader = cluster.wait_for_leader(secs(20)).await;
    let goal = cluster.applied(leader).await;
    cluster.wait_until_applied(victim, goal, secs(20)).await;
    grants(cluster, &mut journal, 5).await;
    let verdict = cluster.caller().check("held", held).await.unwrap();
    assert_eq!(verdict.verdict, 1, "the grant is in force: {verdict:?}");
    journal.check().unwrap();
    for at in 0..cluster.len() {
        let ended = cluster.wait_exit(at, Duration::ZERO).await;
        assert_eq!(ended, None, "node {at}:\n{}", cluster.log(at));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_tail_costs_one_node_nothing_that_was_acknowledged() {
    let mut cluster = Cluster::start(Options::default()).await;
    let mut journal = Journal::default();
    let (victim, held) = follower_down(&mut cluster, &mut journal).await;

    // Of the last write only a part reached the disk, and no caller learned that it had.
    let (file, end) = tail(&cluster, victim);
    write_at(&file, end, &[0x5a; 700]);

    assert_it_comes_back_whole(&mut cluster, journal, victim, held).await;
}

/// Nothing is promised of such a disk. Its node says so and ends, since its vote may be gone as well,
/// and does not start again; the others go on and lose nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_disk_forgets_what_it_had_flushed_stops_and_harms_nobody() {
    let mut cluster = Cluster::start(Options::default()).await;
    let mut journal = Journal::default();
    let (victim, held) = follower_down(&mut cluster, &mut journal).await;

    let (file, end) = tail(&cluster, victim);
    let forgotten = (2 * PAGE).min(end - 2 * PAGE);
    write_at(&file, end - forgotten, &vec![0; forgotten]);

    for start in ["found by its leader", "at the next start"] {
        cluster.spawn(victim);
        grants(&cluster, &mut journal, 5).await;
        let code = cluster.wait_exit(victim, secs(20)).await;
        let log = cluster.log(victim);
        assert!(
            code.is_some_and(|code| code != 0),
            "{start}: {code:?}\n{log}"
        );
        assert!(
            log.contains("remove"),
            "{start}: what to do is said:\n{log}"
        );
    }
    let verdict = cluster.caller().check("held", held).await.unwrap();
    assert_eq!(verdict.verdict, 1, "the grant is in force: {verdict:?}");
    journal.check().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_before_the_tail_keeps_the_node_from_starting() {
    let mut cluster = Cluster::start(Options::default()).await;
    let mut journal = Journal::default();
    grants(&cluster, &mut journal, 20).await;
    let victim = (cluster.wait_for_leader(secs(5)).await + 1) % cluster.len();
    cluster.signal(victim, Signal::Kill);
    let files = segments(&cluster, victim);
    let file = files
        .iter()
        .find(|file| end_of_records(&fs::read(file).unwrap()) > 600)
        .unwrap();
    let mut bytes = fs::read(file).unwrap();
    let middle = end_of_records(&bytes) / 2;
    bytes[middle] ^= 0x40;
    fs::write(file, bytes).unwrap();

    cluster.spawn(victim);
    let code = cluster.wait_exit(victim, secs(10)).await;
    let log = cluster.log(victim);
    assert!(
        code.is_some_and(|code| code != 0),
        "it refuses to start: {code:?}\n{log}"
    );
    let named = file.file_name().unwrap().to_string_lossy().into_owned();
    assert!(log.contains(&named), "the error names {named}:\n{log}");
    // The other two go on.
    grants(&cluster, &mut journal, 5).await;
    journal.check().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_member_comes_back_under_another_id_and_forms_nothing() {
    let options = Options {
        flags: vec!["--replace-on-data-loss".into()],
        ..Options::default()
    };
    let mut cluster = Cluster::start(options).await;
    let mut journal = Journal::default();
    let session = grants(&cluster, &mut journal, 5).await;
    let caller = cluster.caller();
    let held = caller
        .acquire(&session, session.number(), "held", None)
        .await
        .unwrap();
    // n1, the one that would form a cluster if anybody did.
    cluster.signal(0, Signal::Kill);
    fs::remove_dir_all(cluster.data_dir(0)).unwrap();
    cluster.spawn(0);

    // With another node down it is needed for a quorum: it must be a voter by then.
    wait_for_voter(&cluster, 0).await;
    cluster.signal(1, Signal::Kill);
    grants(&cluster, &mut journal, 5).await;
    let verdict = cluster.caller().check("held", held.token).await.unwrap();
    assert_eq!(verdict.verdict, 1, "the grant is in force: {verdict:?}");
    journal.check().unwrap();
}

/// Waits until the node that was wiped is a voter with an id above those of the first members.
async fn wait_for_voter(cluster: &Cluster, at: usize) {
    use ringfence_proto::v1::ListMembersRequest;
    use ringfence_proto::v1::cluster_client::ClusterClient;
    let name = format!("n{}", at + 1);
    let wait = async {
        loop {
            let mut client = ClusterClient::new(cluster.caller().channel(2));
            if let Ok(reply) = client.list_members(ListMembersRequest {}).await {
                let members = reply.into_inner().members;
                let mut of_name = members.iter().filter(|member| member.name == name);
                if of_name.clone().count() == 1
                    && of_name.all(|member| member.voter && member.node_id > 3)
                {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(secs(30), wait)
        .await
        .expect("the wiped node is a voter again");
}
