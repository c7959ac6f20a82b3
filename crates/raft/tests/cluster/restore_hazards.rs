//! What may go wrong between the seats of a restored cluster and its first entries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use ringfence_core::{ClusterId, Millis};
use ringfence_raft::{Backup, Hooks, Node, NodeConfig, Restore, Role};

use crate::harness::{Cluster, acquired, eventually, open};

const NAMES: [&str; 3] = ["n1", "n2", "n3"];
const DAY_MS: i64 = 86_400_000;

async fn lost() -> (ClusterId, Arc<Backup>) {
    let mut cluster = Cluster::new(&["n1"]);
    cluster.adjust = |config| config.token_floor = None;
    cluster.start_all().await;
    let node = cluster.nodes["n1"].clone();
    let session = open(&node, 1, Millis::from_secs(60)).await;
    acquired(&node, session, 1, "lease").await;
    let backup = cluster.backup("n1");
    let id = node.status().cluster.unwrap();
    cluster.crash_all().await;
    (id, backup)
}

/// n2 comes first when the founder is gone.
fn n2_is_eager(config: &mut NodeConfig) {
    config.token_floor = None;
    if config.name != "n2" {
        config.timing.election_min = Duration::from_secs(4);
        config.timing.election_max = Duration::from_secs(5);
    }
}

async fn seated(cluster: &Cluster) {
    eventually("the seats", || {
        let mut nodes = cluster.nodes.values();
        nodes.all(|node| node.status().cluster.is_some())
    })
    .await;
}

/// Waits until a node without a cluster says that it waits for this.
async fn waits_for(cluster: &Cluster, name: &str, what: &str) {
    let node = &cluster.nodes[name];
    eventually(what, || {
        let waiting_for = node.status().waiting_for;
        waiting_for.is_some_and(|waiting_for| waiting_for.contains(what))
    })
    .await;
}

static UNREACHABLE: AtomicBool = AtomicBool::new(true);

/// Started without --restore by mistake: n2 takes a seat, n3 does not come so far. The operator sees
/// the mistake and starts all three with the same --restore. The founder waits, says whose directory is
/// to be emptied, and forms the restored cluster once it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_seated_before_the_flag_was_given_is_emptied_and_then_restores() {
    let (old, backup) = lost().await;
    let mut cluster = Cluster::new(&NAMES);
    cluster.adjust = |config| {
        n2_is_eager(config);
        if config.name == "n3" && UNREACHABLE.load(Ordering::Relaxed) {
            config.join = vec!["127.0.0.1:1".to_owned()];
        }
    };
    for name in NAMES {
        cluster.start(name).await;
    }
    let n2 = cluster.nodes["n2"].clone();
    eventually("the seat of n2", || n2.status().cluster.is_some()).await;
    drop(n2);
    cluster.crash_all().await;

    UNREACHABLE.store(false, Ordering::Relaxed);
    cluster.restore = Some(Restore {
        backup,
        rules: None,
        mode: None,
        drill: false,
    });
    for name in NAMES {
        cluster.start(name).await;
    }
    waits_for(&cluster, "n1", "empty the data directory of n2").await;
    for node in cluster.nodes.values() {
        assert!(!node.read(|machine| machine.is_formed()));
    }
    cluster.crash("n2").await;
    std::fs::remove_dir_all(cluster.data_dir("n2")).unwrap();
    cluster.start("n2").await;
    for (name, node) in &cluster.nodes {
        cluster.serving(name).await;
        assert_eq!(node.read(|machine| machine.lineage().to_vec()), [old]);
    }
}

/// The same --restore everywhere; --quiet-time and --token-floor on the founder only.
#[tokio::test(flavor = "multi_thread")]
async fn quiet_time_and_token_floor_of_one_member_hold_the_forming_up() {
    let (_, backup) = lost().await;
    static FLOOR: AtomicU64 = AtomicU64::new(0);
    let reached = backup.contents.header.tokens.reached();
    FLOOR.store(reached + (1 << 40), Ordering::Relaxed);
    static EVERYWHERE: AtomicBool = AtomicBool::new(false);
    let mut cluster = Cluster::to_restore(&NAMES, backup);
    cluster.adjust = |config| {
        n2_is_eager(config);
        if config.name == "n1" || EVERYWHERE.load(Ordering::Relaxed) {
            config.quiet_time = Millis::from_secs(3_600);
            config.token_floor = Some(FLOOR.load(Ordering::Relaxed));
        }
    };
    for name in NAMES {
        cluster.start(name).await;
    }
    waits_for(&cluster, "n1", "--quiet-time and --token-floor").await;
    EVERYWHERE.store(true, Ordering::Relaxed);
    for name in ["n2", "n3"] {
        cluster.crash(name).await;
        cluster.start(name).await;
    }
    cluster.serving("n2").await;
    cluster.nodes["n2"].read(|machine| {
        let (quiet, tokens) = (machine.summary().quiet, machine.token_counter());
        assert!(quiet > Millis::from_secs(3_500), "{quiet:?}");
        assert!(tokens >= FLOOR.load(Ordering::Relaxed), "{tokens}");
    });
}

static SET_BACK: AtomicI64 = AtomicI64::new(0);

/// The clock of n2, which leads first, is set back by a day behind the seats. It forms nothing, and
/// offers leadership to a member that can.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_cannot_form_gives_way() {
    let (_, backup) = lost().await;
    let reached = backup.contents.header.tokens.reached();
    let mut cluster = Cluster::to_restore(&NAMES, backup);
    cluster.adjust = |config| {
        n2_is_eager(config);
        if config.name == "n2" {
            config.hooks.wall_millis = || {
                (Hooks::default().wall_millis)()
                    .saturating_add_signed(SET_BACK.load(Ordering::Relaxed))
            };
        }
    };
    for name in NAMES {
        cluster.start(name).await;
    }
    seated(&cluster).await;
    SET_BACK.store(-DAY_MS, Ordering::Relaxed);
    eventually("the log everywhere", || {
        cluster.nodes.values().all(|node| node.members().len() == 3)
    })
    .await;
    // n1 leads first, as the founder; nothing can be formed so soon.
    cluster.crash("n1").await;
    let n2 = cluster.nodes["n2"].clone();
    eventually("n2 to lead", || n2.status().role == Role::Leader).await;
    assert!(!n2.read(|machine| machine.is_formed()));
    cluster.serving("n3").await;
    assert_eq!(cluster.nodes["n3"].status().role, Role::Leader);
    cluster.nodes["n3"].read(|machine| assert!(machine.token_counter() > reached));
}

static ALONE: AtomicI64 = AtomicI64::new(0);

/// There is no other member to hand leadership to, and only the first entry of a term raises the tokens.
#[tokio::test(flavor = "multi_thread")]
async fn a_lone_member_forms_once_its_clock_is_set() {
    let (old, backup) = lost().await;
    let mut cluster = Cluster::to_restore(&["n1"], backup);
    cluster.adjust = |config| {
        config.token_floor = None;
        config.hooks.wall_millis = || {
            (Hooks::default().wall_millis)().saturating_add_signed(ALONE.load(Ordering::Relaxed))
        };
    };
    let node = cluster.start("n1").await;
    seated(&cluster).await;
    ALONE.store(-DAY_MS, Ordering::Relaxed);
    eventually("n1 to lead", || node.status().role == Role::Leader).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(!node.read(|machine| machine.is_formed()));
    ALONE.store(0, Ordering::Relaxed);
    cluster.serving("n1").await;
    assert_eq!(node.read(|machine| machine.lineage().to_vec()), [old]);
}

/// Its tokens begin at 1, so that no store admits them: no floor is allowed, 0 neither.
#[tokio::test(flavor = "multi_thread")]
async fn a_drill_with_a_token_floor_is_refused() {
    let (_, backup) = lost().await;
    let mut cluster = Cluster::to_restore(&["n1"], backup);
    if let Some(restore) = &mut cluster.restore {
        restore.drill = true;
    }
    for floor in [0, 7] {
        let mut config = cluster.config("n1");
        config.token_floor = Some(floor);
        let refused = Node::start(config).await.err().unwrap().to_string();
        assert!(
            refused.contains("token-floor") && refused.contains("leave it out"),
            "{floor}: {refused}"
        );
    }
}

static LOST_CLOCK: AtomicI64 = AtomicI64::new(0);
static NEW_CLOCK: AtomicI64 = AtomicI64::new(0);

/// The founder's clock was right when it took its seat; the machine is started again with one that lies
/// before the backup, as no clock of a first member may.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_falls_behind_the_backup_after_the_seats_forms_nothing() {
    LOST_CLOCK.store(-10 * DAY_MS, Ordering::Relaxed);
    let mut old = Cluster::new(&["n1"]);
    old.adjust = |config| {
        config.token_floor = None;
        config.hooks.wall_millis = || {
            (Hooks::default().wall_millis)()
                .saturating_add_signed(LOST_CLOCK.load(Ordering::Relaxed))
        };
    };
    old.start_all().await;
    let node = old.nodes["n1"].clone();
    let session = open(&node, 1, Millis::from_secs(60)).await;
    // One long term: ten days later, with the same counter.
    LOST_CLOCK.store(0, Ordering::Relaxed);
    acquired(&node, session, 1, "before").await;
    let backup = old.backup("n1");
    // Another term of the lost cluster, behind the backup.
    old.crash_all().await;
    old.start_all().await;
    let token = acquired(&old.nodes["n1"].clone(), session, 2, "after").await;
    old.crash_all().await;

    let mut cluster = Cluster::to_restore(&["n1"], backup.clone());
    cluster.adjust = |config| {
        config.token_floor = None;
        config.hooks.wall_millis = || {
            (Hooks::default().wall_millis)()
                .saturating_add_signed(NEW_CLOCK.load(Ordering::Relaxed))
        };
    };
    cluster.start("n1").await;
    seated(&cluster).await;
    cluster.crash("n1").await;
    NEW_CLOCK.store(-5 * DAY_MS, Ordering::Relaxed);
    let node = cluster.start("n1").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    node.read(|machine| {
        let (reached, made) = (machine.token_counter(), backup.contents.header.wall);
        assert!(
            !machine.is_formed() || reached > token,
            "a clock five days before the backup ({made:?}) has formed the cluster: its tokens begin at \
             {reached}, and the lost cluster granted {token}"
        );
    });
}

/// Holds: neither the secret of a session nor its handle's bytes are in the file.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_holds_no_secret_of_a_session() {
    let cluster = Cluster::formed(&["n1"]).await;
    let node = cluster.nodes["n1"].clone();
    let session = open(&node, 0xa7, Millis::from_secs(60)).await;
    acquired(&node, session, 1, "lease").await;
    let mut bytes = Vec::new();
    ringfence_raft::write_backup(&node.frozen(), &mut bytes).unwrap();
    assert!(bytes.windows(5).any(|part| part == b"lease"));
    assert!(!bytes.windows(8).any(|part| part == [0xa7; 8]));
}

/// 11.2: nothing is served until a majority has it. Two of three have their seats, the backup and the
/// log when the founder's machine is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_majority_restores_the_cluster_without_the_founder() {
    let (_, backup) = lost().await;
    let mut cluster = Cluster::to_restore(&NAMES, backup);
    cluster.adjust = n2_is_eager;
    for name in NAMES {
        cluster.start(name).await;
    }
    seated(&cluster).await;
    eventually("the log everywhere", || {
        cluster.nodes.values().all(|node| node.members().len() == 3)
    })
    .await;
    cluster.crash("n1").await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let n2 = &cluster.nodes["n2"];
    assert!(
        n2.read(|machine| machine.is_formed()),
        "n2 is {:?}, has the backup and a majority, and forms nothing for 15 s",
        n2.status().role
    );
}

/// The same, and the founder comes back on an empty disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_founder_that_is_emptied_before_the_forming_does_not_end_the_restore() {
    let (_, backup) = lost().await;
    let mut cluster = Cluster::to_restore(&NAMES, backup);
    cluster.adjust = |config| {
        n2_is_eager(config);
        config.replace_on_data_loss = true;
    };
    for name in NAMES {
        cluster.start(name).await;
    }
    seated(&cluster).await;
    eventually("the log everywhere", || {
        cluster.nodes.values().all(|node| node.members().len() == 3)
    })
    .await;
    cluster.crash("n1").await;
    std::fs::remove_dir_all(cluster.data_dir("n1")).unwrap();
    cluster.start("n1").await;
    tokio::time::sleep(Duration::from_secs(25)).await;
    let n2 = &cluster.nodes["n2"];
    let formed = n2.read(|machine| machine.is_formed());
    assert!(
        formed,
        "25 s later: n2 is {:?}, n3 {:?}, n1 {:?} of {:?}",
        n2.status().role,
        cluster.nodes["n3"].status().role,
        cluster.nodes["n1"].status().role,
        cluster.nodes["n1"].status().cluster,
    );
}
