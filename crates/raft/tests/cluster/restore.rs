//! A cluster that is restored from a backup of another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ringfence_core::{
    ClusterId, Command, FencingToken, Identity, Millis, Mode, OpenForPod, OpenId, Outcome, Pod,
    PodText, Rejection, Secret, Verdict,
};
use ringfence_raft::{Backup, Hooks, Node, NodeConfig, Restore, Role};

use crate::harness::{
    Cluster, Session, acquire, acquired, eventually, holder, name, open, propose,
};

const NAMES: [&str; 3] = ["n1", "n2", "n3"];

/// A cluster whose tokens follow the clock, with one holder, and its backup. Its nodes have ended.
async fn lost() -> (ClusterId, u64, Arc<Backup>) {
    let mut cluster = Cluster::new(&["n1"]);
    cluster.adjust = |config| config.token_floor = None;
    cluster.start_all().await;
    let node = cluster.nodes["n1"].clone();
    let session = open(&node, 1, Millis::from_secs(60)).await;
    let token = acquired(&node, session, 1, "lease").await;
    let backup = cluster.backup("n1");
    let id = node.status().cluster.unwrap();
    cluster.crash_all().await;
    (id, token, backup)
}

fn pod(number: usize) -> Pod {
    let uid = format!("6f1c9a52-0000-4000-8000-{number:012}");
    let text = PodText {
        namespace: "shop",
        name: "controller",
        uid: &uid,
        container: "main",
    };
    Pod::parse(text).unwrap()
}

/// A backup of a cluster in which Pods held so many names.
async fn held_by_pods(count: usize) -> Arc<Backup> {
    let mut cluster = Cluster::new(&["n1"]);
    cluster.adjust = |config| config.token_floor = None;
    cluster.start_all().await;
    let node = cluster.nodes["n1"].clone();
    let opening = OpenForPod {
        id: OpenId::new([1; 16]),
        secret: Secret::new([1; 16]),
        seen: None,
        identity: Identity::parse("controller").unwrap(),
        pod: pod(1),
    };
    let id = match propose(&node, Command::OpenForPod(opening)).await {
        Outcome::Opened(opened) => opened.session,
        other => panic!("{other:?}"),
    };
    let session = Session {
        id,
        secret: Secret::new([1; 16]),
    };
    for n in 1..=count as u64 {
        let mut command = acquire(session, n, &format!("held/{n}"), None);
        if let Command::Request(request) = &mut command {
            request.lowest = request.number;
        }
        let granted = propose(&node, command).await;
        assert!(matches!(granted, Outcome::Acquired(_)), "{granted:?}");
    }
    let backup = cluster.backup("n1");
    cluster.crash_all().await;
    backup
}

async fn stays_without_a_cluster(node: &Node) {
    tokio::time::sleep(Duration::from_millis(700)).await;
    let status = node.status();
    assert_eq!((status.cluster, status.role), (None, Role::Forming));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_cluster_begins_above_all_of_its_past() {
    let (old, token, backup) = lost().await;
    let mut cluster = Cluster::to_restore(&NAMES, backup.clone());
    cluster.start_all().await;
    let leader = cluster.leader().await;
    let node = &cluster.nodes[&leader];
    let old_token = FencingToken::new(token).unwrap();
    node.read(|machine| {
        assert_ne!(machine.cluster(), Some(old));
        assert_eq!(machine.lineage(), [old]);
        assert!(machine.token_counter() > token);
        assert_eq!(machine.check(&name("lease"), old_token), Verdict::Ended);
        let summary = machine.summary();
        assert!(summary.forgotten.unwrap() > old_token, "{summary:?}");
        assert_eq!((summary.sessions, summary.leases), (0, 0));
        let least = machine.settings().ttl_max;
        assert!(summary.quiet > least && summary.quiet <= Millis(least.0 + 60_000));
        assert_eq!(machine.settings(), &backup.contents.header.settings);
    });
    let session = open(node, 1, Millis::from_secs(60)).await;
    assert!(
        session.id.get() > token,
        "numbers of sessions begin at the clock"
    );
    let refused = propose(node, acquire(session, 1, "lease", None)).await;
    assert!(
        matches!(refused, Outcome::Rejected(Rejection::QuietTime { .. }))
            || matches!(&refused, Outcome::Acquired(acquired) if format!("{acquired:?}").contains("QuietTime")),
        "{refused:?}"
    );
    for name in NAMES {
        eventually("a word that the flag means nothing any more", || {
            cluster.nodes[name].status().restore_unused
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn first_members_with_two_backups_or_one_without_form_nothing() {
    let (_, _, one) = lost().await;
    let (_, _, other) = lost().await;
    let mut cluster = Cluster::to_restore(&NAMES, one.clone());
    cluster.start("n1").await;
    cluster.start("n2").await;
    for restore in [None, Some(other)] {
        cluster.restore = restore.map(|backup| Restore {
            backup,
            rules: None,
            mode: None,
            drill: false,
        });
        cluster.start("n3").await;
        for name in NAMES {
            stays_without_a_cluster(&cluster.nodes[name]).await;
        }
        cluster.crash("n3").await;
    }
    cluster.restore = Some(Restore {
        backup: one,
        rules: None,
        mode: None,
        drill: false,
    });
    cluster.start("n3").await;
    for name in NAMES {
        cluster.serving(name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_are_emptied_in_turn_with_the_flag_still_set_join_again() {
    let (_, _, backup) = lost().await;
    let mut cluster = Cluster::to_restore(&NAMES, backup);
    let adjust = |config: &mut NodeConfig| {
        config.token_floor = None;
        config.replace_on_data_loss = true;
    };
    cluster.adjust = adjust;
    cluster.start_all().await;
    let restored = cluster.nodes["n1"].status().cluster;
    for emptied in NAMES {
        cluster.crash(emptied).await;
        std::fs::remove_dir_all(cluster.data_dir(emptied)).unwrap();
        let node = cluster.start(emptied).await;
        eventually("its vote in the place of the former one", || {
            let id = node.status().node_id;
            let voters = node.members().into_iter().filter(|member| member.voter);
            let voters: Vec<u64> = voters.map(|member| member.node_id).collect();
            voters.len() == 3 && id.is_some_and(|id| voters.contains(&id))
        })
        .await;
        assert_eq!(node.status().cluster, restored);
    }
}

/// Whichever member leads next goes on with the part that comes next.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_ends_at_any_step_of_the_restore_takes_nothing_away() {
    const HELD: usize = 2_500;
    let backup = held_by_pods(HELD).await;
    let mut interrupted = 0;
    for delay in [0, 1_400, 1_550, 1_650, 1_800] {
        let mut cluster = Cluster::to_restore(&NAMES, backup.clone());
        for name in NAMES {
            cluster.start(name).await;
        }
        eventually("the seats", || {
            let mut nodes = cluster.nodes.values();
            nodes.all(|node| node.status().cluster.is_some())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(delay)).await;
        let leads = |node: &Node| node.status().role == Role::Leader;
        let leader = NAMES.into_iter().find(|name| leads(&cluster.nodes[*name]));
        let ended = leader.unwrap_or("n1");
        interrupted += usize::from(!cluster.nodes[ended].read(|machine| machine.is_formed()));
        cluster.crash(ended).await;
        cluster.start(ended).await;
        for name in NAMES {
            cluster.serving(name).await;
            let node = &cluster.nodes[name];
            eventually("all names that Pods held", || {
                let formed = node.read(|machine| machine.is_formed());
                formed && node.read(|machine| machine.held("held/")) == HELD
            })
            .await;
            let held = node.read(|machine| machine.pods().cloned().collect::<Vec<_>>());
            assert_eq!(held, [pod(1)], "one session stands for the container");
        }
    }
    assert!(interrupted > 0, "no restore was interrupted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_lost_the_flag_before_the_restore_forms_nothing_else() {
    let backup = held_by_pods(1).await;
    let mut cluster = Cluster::to_restore(&NAMES, backup);
    for name in NAMES {
        cluster.start(name).await;
    }
    eventually("the seats", || {
        let mut nodes = cluster.nodes.values();
        nodes.all(|node| node.status().cluster.is_some())
    })
    .await;
    cluster.crash_all().await;
    let flag = cluster.restore.take();
    for name in NAMES {
        cluster.start(name).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    for node in cluster.nodes.values() {
        assert!(!node.read(|machine| machine.is_formed()));
        assert!(!node.status().serving);
    }
    cluster.crash("n2").await;
    cluster.restore = flag;
    cluster.start("n2").await;
    cluster.serving("n2").await;
    assert_eq!(cluster.nodes["n2"].read(|machine| machine.held("held/")), 1);
}

/// Seats are taken, nothing is logged, and a member loses its directory.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_member_that_is_emptied_before_the_forming_does_not_stall_the_restore() {
    let (_, _, backup) = lost().await;
    let mut cluster = Cluster::to_restore(&NAMES, backup);
    for name in NAMES {
        cluster.start(name).await;
    }
    eventually("the seats", || {
        let mut nodes = cluster.nodes.values();
        nodes.all(|node| node.status().cluster.is_some())
    })
    .await;
    let restored = cluster.nodes["n1"].status().cluster;
    for node in cluster.nodes.values() {
        assert!(!node.read(|machine| machine.is_formed()));
    }
    cluster.crash_all().await;
    std::fs::remove_dir_all(cluster.data_dir("n3")).unwrap();
    cluster.start("n1").await;
    cluster.start("n2").await;
    cluster.serving("n1").await;
    cluster.serving("n2").await;
    let emptied = cluster.start("n3").await;
    eventually("a seat as a learner", || {
        let id = emptied.status().node_id;
        let members = cluster.nodes["n1"].members();
        let mut members = members.iter();
        members.any(|member| id == Some(member.node_id) && !member.voter)
    })
    .await;
    assert_eq!(emptied.status().cluster, restored);
}

/// What the other first members compare, beside the backup.
#[tokio::test(flavor = "multi_thread")]
async fn first_members_with_another_mode_quiet_time_or_token_floor_form_nothing() {
    let (_, _, backup) = lost().await;
    let mut cluster = Cluster::to_restore(&["n1", "n2"], backup);
    cluster.start("n1").await;
    let others: [fn(&mut NodeConfig); 3] = [
        |config| config.quiet_time = Millis::from_secs(7),
        |config| config.token_floor = Some(1 << 52),
        |config| {
            if let Some(restore) = &mut config.restore {
                restore.mode = Some(Mode::Permissive);
            }
        },
    ];
    for adjust in others {
        let mut config = cluster.config("n2");
        adjust(&mut config);
        let node = Node::start(config).await.unwrap();
        stays_without_a_cluster(&node).await;
        stays_without_a_cluster(&cluster.nodes["n1"]).await;
        node.crash().await;
    }
    cluster.start("n2").await;
    cluster.serving("n2").await;
}

/// How far the wall clock of this test's nodes is ahead, in milliseconds.
static AHEAD: AtomicI64 = AtomicI64::new(0);
/// The same of one node.
static APART: AtomicI64 = AtomicI64::new(0);

fn shifted(by: i64) -> u64 {
    (Hooks::default().wall_millis)().saturating_add_signed(by)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_a_day_behind_needs_a_token_floor() {
    let (_, token, backup) = lost().await;
    AHEAD.store(-86_400_000, Ordering::Relaxed);
    let behind = |config: &mut NodeConfig| {
        config.token_floor = None;
        config.hooks.wall_millis = || shifted(AHEAD.load(Ordering::Relaxed));
    };
    let mut cluster = Cluster::to_restore(&["n1"], backup.clone());
    cluster.adjust = behind;
    let node = cluster.start("n1").await;
    stays_without_a_cluster(&node).await;
    cluster.crash("n1").await;

    let mut config = cluster.config("n1");
    let too_low = token + (1 << 31);
    config.token_floor = Some(too_low);
    let node = Node::start(config).await.unwrap();
    stays_without_a_cluster(&node).await;
    node.crash().await;

    let mut config = cluster.config("n1");
    let header = &backup.contents.header;
    // The second of the backup may lie behind that of its term.
    let made = header.wall.0 / 1_000;
    let floor = header
        .tokens
        .reached()
        .max(made << FencingToken::CLOCK_SHIFT)
        + (1 << 32);
    config.token_floor = Some(floor);
    let node = Node::start(config).await.unwrap();
    eventually("the restored cluster", || node.status().serving).await;
    assert!(node.read(|machine| machine.token_counter()) >= floor);
    assert_eq!(node.read(|machine| machine.token_floor()), None);
    node.crash().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_members_whose_clocks_are_apart_restore_nothing() {
    let (_, _, backup) = lost().await;
    APART.store(3_000, Ordering::Relaxed);
    let mut cluster = Cluster::to_restore(&NAMES, backup);
    cluster.adjust = |config| {
        config.token_floor = None;
        if config.name == "n2" {
            config.hooks.wall_millis = || shifted(APART.load(Ordering::Relaxed));
        }
    };
    for name in NAMES {
        cluster.start(name).await;
    }
    for name in NAMES {
        stays_without_a_cluster(&cluster.nodes[name]).await;
    }
    APART.store(0, Ordering::Relaxed);
    for name in NAMES {
        cluster.serving(name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drill_grants_at_once_and_is_no_descendant() {
    let (_, _, backup) = lost().await;
    let mut cluster = Cluster::to_restore(&["n1"], backup);
    if let Some(restore) = &mut cluster.restore {
        restore.drill = true;
    }
    cluster.start_all().await;
    let node = &cluster.nodes["n1"];
    let session = open(node, 1, Millis::from_secs(60)).await;
    assert_eq!(acquired(node, session, 1, "lease").await, 1);
    assert_eq!(holder(node, "lease"), Some((session.id, 1)));
    assert!(node.read(|machine| machine.lineage().is_empty()));
}
