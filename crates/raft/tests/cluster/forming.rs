//! Forming, joining, and what is refused.

use ringfence_core::Millis;
use ringfence_raft::{Node, Role, StartError, StopReason};

use crate::harness::{Cluster, acquired, eventually, holder, open, remove, within};

const NAMES: [&str; 3] = ["n1", "n2", "n3"];

#[tokio::test(flavor = "multi_thread")]
async fn no_cluster_is_formed_while_a_first_member_is_missing() {
    let mut cluster = Cluster::new(&NAMES);
    cluster.start("n1").await;
    cluster.start("n2").await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    for node in cluster.nodes.values() {
        assert_eq!(
            (node.status().cluster, node.status().role),
            (None, Role::Forming)
        );
    }
    cluster.start("n3").await;
    for name in NAMES {
        cluster.serving(name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_first_member_joins_as_a_new_node_and_forms_nothing() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let session = open(&cluster.nodes["n2"], 1, Millis::from_secs(60)).await;
    let token = acquired(&cluster.nodes["n2"], session, 1, "lease").await;
    let formed = cluster.nodes["n2"].status().cluster;
    cluster.crash("n1").await;
    std::fs::remove_dir_all(cluster.data_dir("n1")).unwrap();

    let node = cluster.start("n1").await;
    eventually("the lease on the new node", || {
        holder(&node, "lease") == Some((session.id, token))
    })
    .await;
    let status = node.status();
    assert_eq!(status.cluster, formed);
    assert!(
        status.node_id.unwrap() > 3,
        "an id is never used again: {status:?}"
    );
    assert_eq!(
        status.role,
        Role::Learner,
        "it has no vote until somebody gives it one"
    );

    let id = status.node_id.unwrap();
    within("its promotion", async {
        while node.promote_member(id, None, None).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let members = cluster.nodes["n2"].members_of_leader().await.unwrap();
    let voters: Vec<u64> = members
        .iter()
        .filter(|m| m.voter)
        .map(|m| m.node_id)
        .collect();
    assert_eq!(
        voters,
        [2, 3, id],
        "it takes the place of its former self in one change"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_member_takes_its_former_place_by_itself_if_it_may() {
    let mut cluster = Cluster::new(&NAMES);
    cluster.adjust = |config| config.replace_on_data_loss = true;
    cluster.start_all().await;
    cluster.crash("n3").await;
    std::fs::remove_dir_all(cluster.data_dir("n3")).unwrap();
    let node = cluster.start("n3").await;
    eventually("its vote in the place of the former one", || {
        let id = node.status().node_id;
        let members = node.members();
        members
            .iter()
            .any(|member| Some(member.node_id) == id && member.voter)
            && members.iter().all(|member| member.node_id != 3)
    })
    .await;
}

/// Brings a cluster to where its former has ordered the others to take their seats and was lost
/// before it began the log: then its seat is worth nothing, and theirs neither.
async fn seated_without_a_former() -> Cluster {
    let mut cluster = Cluster::new(&NAMES);
    // The former cannot open its own log, so it gets no further than to hand out the seats.
    cluster.with_disks();
    cluster.disks["n1"].hang();
    for name in NAMES {
        cluster.start(name).await;
    }
    eventually("both seats taken", || {
        let seated = |name: &&str| cluster.nodes[*name].status().cluster.is_some();
        NAMES[1..].iter().all(seated)
    })
    .await;
    assert_eq!(cluster.nodes["n1"].status().cluster, None);
    cluster
}

/// Ends the former and takes its directory away.
async fn lose_the_former(cluster: &mut Cluster) {
    cluster.crash("n1").await;
    // Its log is still being opened there, and finds nothing when the disk goes on.
    let elsewhere = cluster.data_dir("n1").with_extension("lost");
    std::fs::rename(cluster.data_dir("n1"), elsewhere).unwrap();
    cluster.disks["n1"].go_on();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_former_that_restarts_goes_on_forming() {
    let mut cluster = seated_without_a_former().await;
    let offered = cluster.nodes["n2"].status().cluster;
    cluster.crash("n1").await;
    cluster.disks["n1"].go_on();
    cluster.start("n1").await;
    for name in NAMES {
        cluster.serving(name).await;
    }
    assert_eq!(cluster.nodes["n1"].status().cluster, offered);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_members_whose_former_was_emptied_stop_and_say_what_to_do() {
    let mut cluster = seated_without_a_former().await;
    lose_the_former(&mut cluster).await;
    let former = cluster.start("n1").await;
    for name in &NAMES[1..] {
        let reason = within("its end", cluster.nodes[*name].stopped()).await;
        assert!(
            matches!(&reason, StopReason::NeverBegun { former, .. } if former == "n1"),
            "{reason:?}"
        );
        assert!(
            reason
                .to_string()
                .contains("empty this node's data directory")
        );
    }
    let status = former.status();
    assert_eq!(
        (status.cluster, status.role),
        (None, Role::Forming),
        "it forms no second cluster"
    );

    // What the message says is enough.
    for name in &NAMES[1..] {
        cluster.crash(name).await;
        std::fs::remove_dir_all(cluster.data_dir(name)).unwrap();
        cluster.start(name).await;
    }
    for name in NAMES {
        cluster.serving(name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_member_without_a_log_waits_while_another_one_is_away() {
    let mut cluster = seated_without_a_former().await;
    lose_the_former(&mut cluster).await;
    cluster.crash("n3").await;
    cluster.start("n1").await;
    // Longer than it takes to be sure when all nodes answer: n3 may have a log that counts.
    let stopped = tokio::time::timeout(
        std::time::Duration::from_secs(8),
        cluster.nodes["n2"].stopped(),
    );
    assert!(stopped.await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_node_stops_and_says_why() {
    let cluster = Cluster::formed(&NAMES).await;
    let leader = &cluster.nodes[&cluster.leader().await];
    let removed = &cluster.nodes[&cluster.a_follower().await];
    remove(leader, removed.status().node_id.unwrap()).await;
    assert_eq!(
        within("its end", removed.stopped()).await,
        StopReason::Removed
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_of_others_and_missing_logs_are_refused() {
    let mut cluster = Cluster::formed(&["n1"]).await;
    let start = |config| async {
        Node::start(config)
            .await
            .err()
            .map(|error| error.to_string())
    };
    let busy = start(cluster.config("n1")).await.unwrap();
    assert!(busy.contains("in use by another process"), "{busy}");
    cluster.crash("n1").await;

    let mut other = cluster.config("n1");
    other.name = "n9".to_owned();
    match Node::start(other).await.err() {
        Some(ref error @ StartError::OtherNode { ref found, .. }) => {
            assert_eq!(found, "n1");
            let step = "start it as \"n1\", or give \"n9\" a directory of its own";
            assert!(error.to_string().ends_with(step), "{error}");
        }
        unexpected => panic!("{unexpected:?}"),
    }
    std::fs::remove_dir_all(cluster.data_dir("n1").join("wal")).unwrap();
    let missing = start(cluster.config("n1")).await.unwrap();
    assert!(missing.contains("is missing or empty"), "{missing}");
}

#[tokio::test]
async fn a_log_segment_out_of_bounds_is_refused_before_anything_is_made() {
    let cluster = Cluster::new(&["n1"]);
    for bytes in [0, 4_096, 32_768, 65_536 + 1, (1 << 30) + 512] {
        let mut config = cluster.config("n1");
        config.wal_segment_bytes = bytes;
        let Some(StartError::Config { what, offered, why }) = Node::start(config).await.err()
        else {
            panic!("{bytes} bytes were taken");
        };
        assert_eq!((what, offered), ("wal-segment-bytes", bytes.to_string()));
        assert!(why.starts_with("65536 to 1073741824"), "{why}");
    }
    assert!(!cluster.data_dir("n1").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_another_formation_is_left_alone() {
    let ours = Cluster::formed(&["n1"]).await;
    let mut theirs = Cluster::formed(&["n1"]).await;
    let before = (
        ours.nodes["n1"].status().cluster,
        theirs.nodes["n1"].status().cluster,
    );
    assert_ne!(before.0, before.1);
    // A node whose directory is of one cluster is pointed at the other one.
    theirs.crash("n1").await;
    let mut config = theirs.config("n1");
    config.join = vec![ours.nodes["n1"].peer_address().to_string()];
    let node = Node::start(config).await.unwrap();
    eventually("its own cluster again", || node.status().serving).await;
    assert_eq!(node.status().cluster, before.1);
    assert_eq!(ours.nodes["n1"].members().len(), 1);
    node.crash().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_to_join_forms_nothing_while_those_are_away() {
    let mut ours = Cluster::formed(&["n1"]).await;
    let address = ours.nodes["n1"].peer_address().to_string();
    ours.crash("n1").await;
    // Alone it could form at once.
    let alone = Cluster::new(&["n2"]);
    let mut config = alone.config("n2");
    config.join = vec![address];
    let node = Node::start(config).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(
        (node.status().cluster, node.status().role),
        (None, Role::Forming)
    );
    let again = ours.start("n1").await;
    eventually("it leads again", || again.status().serving).await;
    let cluster = again.status().cluster;
    eventually("it joins", || node.status().cluster == cluster).await;
    node.crash().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_member_that_is_to_join_takes_no_seat_while_those_are_away() {
    let mut ours = Cluster::formed(&["n9"]).await;
    let address = ours.nodes["n9"].peer_address().to_string();
    ours.crash("n9").await;
    let pair = Cluster::new(&["n1", "n2"]);
    let mut joins = pair.config("n2");
    joins.join = vec![address];
    // The first one forms, and offers the second one its seat.
    let first = Node::start(pair.config("n1")).await.unwrap();
    let second = Node::start(joins).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(second.status().cluster, None);
    assert_eq!(first.status().cluster, None);
    let again = ours.start("n9").await;
    eventually("it leads again", || again.status().serving).await;
    let cluster = again.status().cluster;
    eventually("it joins", || second.status().cluster == cluster).await;
    first.crash().await;
    second.crash().await;
}

/// A Service in front of all of them, say, or a second name of a host.
#[tokio::test(flavor = "multi_thread")]
async fn first_members_that_are_to_join_each_other_by_other_addresses_form_their_cluster() {
    let mut cluster = Cluster::new(&NAMES);
    for name in NAMES {
        let mut config = cluster.config(name);
        let ports = NAMES.map(|other| cluster.config(other).peer_listen.port());
        config.join = ports.map(|port| format!("localhost:{port}")).to_vec();
        let node = Node::start(config).await.unwrap();
        cluster.nodes.insert(name.to_owned(), node);
    }
    for name in NAMES {
        cluster.serving(name).await;
    }
}

/// Seats are taken, nothing is logged, and a member loses its directory: it never announces which log
/// commands its release knows. It named the quiet time when it took its seat.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_emptied_before_the_forming_does_not_stall_a_quiet_time() {
    let mut cluster = Cluster::new(&["n1", "n2", "n3"]);
    cluster.adjust = |config| {
        config.token_floor = None;
        config.quiet_time = Millis::from_secs(3_600);
    };
    for name in ["n1", "n2", "n3"] {
        cluster.start(name).await;
    }
    eventually("the seats", || {
        let mut nodes = cluster.nodes.values();
        nodes.all(|node| node.status().cluster.is_some())
    })
    .await;
    for node in cluster.nodes.values() {
        assert!(!node.read(|machine| machine.is_formed()));
    }
    cluster.crash_all().await;
    std::fs::remove_dir_all(cluster.data_dir("n3")).unwrap();
    for name in ["n1", "n2"] {
        cluster.start(name).await;
    }
    for name in ["n1", "n2"] {
        cluster.serving(name).await;
        let quiet = cluster.nodes[name].read(|machine| machine.summary().quiet);
        assert!(quiet > Millis::from_secs(3_500), "{quiet:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_member_without_the_quiet_time_of_the_others_holds_the_forming_up() {
    let mut cluster = Cluster::new(&["n1", "n2"]);
    cluster.adjust = |config| {
        if config.name == "n1" {
            config.quiet_time = Millis::from_secs(3_600);
        }
    };
    for name in ["n1", "n2"] {
        cluster.start(name).await;
    }
    eventually("what n1 waits for", || {
        let waiting_for = cluster.nodes["n1"].status().waiting_for;
        waiting_for.is_some_and(|what| what.contains("n2") && what.contains("--quiet-time"))
    })
    .await;
    assert_eq!(cluster.nodes["n2"].status().cluster, None);
}
