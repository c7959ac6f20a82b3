//! Three nodes that prove who calls: each judges callers by the same state, wherever they ask.

use std::time::Duration;

use ringfence_core::{
    AccessChange, Called, Caller, ChangeAccess, Command, Identity, LEVEL_ACCESS, Millis, Mode,
    NamePattern, Open, OpenId, Opened, Outcome, Principal, PrincipalPattern, Rejection, Rule,
    Secret, Verb,
};
use ringfence_raft::{KeepAlive, KeptAlive, MembershipError, Node, NodeConfig, StopReason};

use crate::harness::{Cluster, Session, eventually, open, propose, within};

const NAMES: [&str; 3] = ["n1", "n2", "n3"];

fn caller(principal: &str) -> Caller {
    Caller {
        principal: Principal::parse(principal).unwrap(),
        token: None,
        node: 1,
    }
}

fn honest() -> Caller {
    caller("cert:cn:honest")
}

fn thief() -> Caller {
    caller("cert:cn:thief")
}

fn rule(principals: &str, verb: Verb, names: Option<&str>) -> AccessChange {
    AccessChange::AddRule(Rule {
        principals: PrincipalPattern::parse(principals).unwrap(),
        verb,
        names: names.map(|names| NamePattern::parse(names).unwrap()),
    })
}

async fn change(node: &Node, changes: Vec<AccessChange>) {
    eventually("the level", || {
        node.read(|machine| machine.level() >= LEVEL_ACCESS)
    })
    .await;
    node.read_barrier().await.unwrap();
    let (cluster, based_on) =
        node.read(|machine| (machine.cluster().unwrap(), machine.access().set_at()));
    let change = Command::ChangeAccess(ChangeAccess {
        cluster,
        based_on,
        changes,
    });
    let changed = propose(node, called(caller("local"), change)).await;
    assert!(
        matches!(changed, Outcome::AccessChanged { .. }),
        "{changed:?}"
    );
}

fn called(caller: Caller, command: Command) -> Command {
    Command::Called(Box::new(Called { caller, command }))
}

/// All clients may acquire all leases.
pub(crate) async fn set(node: &Node, mode: Mode) {
    let rule = rule("*", Verb::Acquire, Some("*"));
    change(node, vec![rule, AccessChange::SetMode(mode)]).await;
}

async fn open_by(node: &Node, n: u8, ttl: Millis, by: Caller) -> Session {
    let secret = Secret::new([n; 16]);
    let open = Command::Open(Open {
        id: OpenId::new([n; 16]),
        secret,
        seen: None,
        ttl,
        identity: Identity::parse("client").unwrap(),
        acquire: None,
    });
    match propose(node, called(by, open)).await {
        Outcome::Opened(Opened { session: id, .. }) => Session { id, secret },
        other => panic!("{other:?}"),
    }
}

async fn keep_alive(node: &Node, by: Option<Caller>, sessions: impl AsRef<[Session]>) -> KeptAlive {
    let request = KeepAlive {
        sessions: sessions
            .as_ref()
            .iter()
            .map(|one| (one.id, one.secret))
            .collect(),
        acknowledged: Vec::new(),
        caller: by,
    };
    within("an answer", async {
        loop {
            if let Ok(kept) = node.keep_alive(request.clone()).await {
                return kept;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn honest_and_thieving_keep_alives_are_told_apart_on_every_node() {
    let cluster = Cluster::formed(&NAMES).await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    set(&leader, Mode::Enforced).await;
    let of_honest = open_by(&leader, 1, Millis::from_secs(30), honest()).await;
    let of_thief = open_by(&leader, 2, Millis::from_secs(30), thief()).await;
    let refused = [(of_honest.id, Rejection::OtherPrincipal)];
    for node in cluster.nodes.values() {
        // Together, so that the leader may put them into one batch.
        let (kept, stolen, nobody) = tokio::join!(
            keep_alive(node, Some(honest()), [of_honest]),
            keep_alive(node, Some(thief()), [of_honest, of_thief]),
            keep_alive(node, None, [of_honest]),
        );
        assert_eq!(kept.ended, []);
        assert_eq!(stolen.ended, refused);
        assert_eq!(nobody.ended, refused);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_of_a_thief_alone_ends_though_keep_alives_come() {
    let cluster = Cluster::formed(&NAMES).await;
    let follower = cluster.nodes[&cluster.a_follower().await].clone();
    set(&follower, Mode::Enforced).await;
    let silent = open_by(&follower, 1, Millis(500), honest()).await;
    let banned = open_by(&follower, 2, Millis(500), thief()).await;
    change(&follower, vec![AccessChange::Ban(thief().principal)]).await;
    within("the end of both", async {
        loop {
            let kept = keep_alive(&follower, Some(thief()), [silent, banned]).await;
            let refusal = Rejection::Banned {
                principal: thief().principal,
            };
            let all = [silent.id, banned.id].map(|id| (id, refusal.clone()));
            assert_eq!(kept.ended, all, "no keep-alive is accepted");
            let gone = |session: Session| follower.read(|m| m.session(session.id).is_none());
            if gone(silent) && gone(banned) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_before_belongs_to_the_first_that_proves_its_secret() {
    let cluster = Cluster::formed(&NAMES).await;
    let follower = cluster.nodes[&cluster.a_follower().await].clone();
    let session = open(&follower, 1, Millis(600)).await;
    set(&follower, Mode::Enforced).await;
    let owner = || follower.read(|machine| machine.owner(session.id).cloned());
    within("its owner", async {
        while owner().is_none() {
            let kept = keep_alive(&follower, Some(honest()), [session]).await;
            assert_eq!(kept.ended, [], "it lives meanwhile");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    })
    .await;
    assert_eq!(owner(), Some(honest().principal));
    for node in cluster.nodes.values() {
        let kept = keep_alive(node, Some(honest()), [session]).await;
        assert_eq!(kept.ended, []);
        let stolen = keep_alive(node, Some(thief()), [session]).await;
        assert_eq!(stolen.ended, [(session.id, Rejection::OtherPrincipal)]);
    }
    // Keep-alives of an owned session are logged as numbers alone.
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let entries = || {
        let figures = leader.metrics();
        // On a busy machine time passes meanwhile.
        figures.last_log_index - figures.ticks
    };
    let before = entries();
    let batches = 5;
    for _ in 0..batches {
        keep_alive(&leader, Some(honest()), [session]).await;
    }
    let logged = entries() - before;
    assert!(logged < 2 * batches, "{logged} entries");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_changed_for_those_alone_who_may_operate() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let follower = cluster.nodes[&cluster.a_follower().await].clone();
    let operator = caller("cert:cn:operator");
    let may = rule("cert:cn:operator", Verb::Operate, None);
    change(&leader, vec![may, AccessChange::SetMode(Mode::Enforced)]).await;
    // A node that joins needs no client's right.
    let learner = cluster.join("n4").await;
    let id = learner.status().node_id.unwrap();

    for node in [&leader, &follower] {
        for by in [None, Some(thief())] {
            let refusals = [
                node.remove_member(id, by.clone()).await,
                node.force_remove_member(id, by.clone()).await,
                node.force_promote_member(id, None, by.clone()).await,
                node.transfer_leader(None, by.clone()).await.map(drop),
            ];
            for refused in refusals {
                let Err(MembershipError::Denied(refusal)) = refused else {
                    panic!("{refused:?}");
                };
                let Rejection::PermissionDenied { needed } = *refusal else {
                    panic!("{refusal:?}");
                };
                assert_eq!(needed.verb, Verb::Operate);
            }
        }
    }
    let members = leader.members();
    let voters = members.iter().filter(|member| member.voter).count();
    assert_eq!((members.len(), voters), (4, 3), "nothing was changed");

    within("its removal", async {
        let by = || Some(operator.clone());
        while let Err(error) = follower.remove_member(id, by()).await {
            let later = matches!(error, MembershipError::NotDone { .. });
            assert!(later, "{error}");
        }
    })
    .await;
    eventually("three members", || leader.members().len() == 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_takes_its_seat_and_leaves_it_without_a_clients_right() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    set(&leader, Mode::Enforced).await;
    cluster.adjust = |config| config.join_as_voter = true;
    let joined = cluster.join("n4").await;
    let id = joined.status().node_id.unwrap();
    let is_voter = || {
        let members = leader.members();
        let mut members = members.iter();
        members.any(|member| member.node_id == id && member.voter)
    };
    eventually("its vote", is_voter).await;
    within("its leave", async {
        while let Err(error) = joined.leave().await {
            let later = matches!(error, MembershipError::NotDone { .. });
            assert!(later, "{error}");
        }
    })
    .await;
    eventually("three members", || leader.members().len() == 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permissive_and_off_refuse_nobody_who_changes_members() {
    let cluster = Cluster::formed(&["n1"]).await;
    let node = &cluster.nodes["n1"];
    for mode in [Mode::Off, Mode::Permissive] {
        set(node, mode).await;
        for by in [None, Some(thief())] {
            let why = match node.transfer_leader(None, by).await {
                Err(MembershipError::Refused { why }) => why,
                other => panic!("{other:?}"),
            };
            assert_eq!(why, "there is no other voter");
        }
    }
}

/// Anyone who reaches the peer port would be taken for a node.
fn with_an_open_port(config: &mut NodeConfig) {
    config.peer_port_is_local = false;
}

/// How long a node is given to do what it must not.
const LONG_ENOUGH: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_an_open_peer_port_is_not_taken_in_while_rights_are_enforced() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    set(&leader, Mode::Enforced).await;
    cluster.adjust = with_an_open_port;
    let open = cluster.start_to_join("n4").await;
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!(open.status().node_id, None);
    assert_eq!(leader.members().len(), 3);
    open.crash().await;

    cluster.adjust = |_| {};
    cluster.join("n4").await;
    eventually("four members", || leader.members().len() == 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_are_not_enforced_while_a_learner_has_an_open_peer_port() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    cluster.adjust = with_an_open_port;
    let open = cluster.join("n4").await;
    let id = open.status().node_id.unwrap();
    // The mode is not set before the last port is authenticated.
    let why = leader.peers_authenticated().unwrap_err();
    assert!(why.contains("n4 (node"), "{why}");
    within("its removal", async {
        while let Err(error) = leader.remove_member(id, None).await {
            assert!(matches!(error, MembershipError::NotDone { .. }), "{error}");
        }
    })
    .await;
    set(&leader, Mode::Enforced).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_starts_again_with_an_open_peer_port_stops() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    set(&leader, Mode::Enforced).await;
    let name = cluster.a_follower().await;
    cluster.crash(&name).await;
    cluster.adjust = with_an_open_port;
    let open = cluster.start(&name).await;
    let reason = within("its end", open.stopped()).await;
    assert_eq!(reason, StopReason::OpenPeerPort);
    cluster.crash(&name).await;

    cluster.adjust = |_| {};
    cluster.start(&name).await;
    cluster.serving(&name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_has_its_mode_from_its_first_entry_on() {
    let mut cluster = Cluster::new(&NAMES);
    cluster.adjust = |config| config.mode = Mode::Enforced;
    cluster.start_all().await;
    for node in cluster.nodes.values() {
        let of_one_entry = || {
            node.read(|machine| {
                let access = machine.access();
                let formed = machine.settings_set_at();
                access.mode() == Mode::Enforced && access.set_at() == formed
            })
        };
        eventually("the mode", of_one_entry).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_cluster_is_formed_whose_rights_would_not_hold() {
    let mut cluster = Cluster::new(&NAMES);
    cluster.adjust = |config| {
        config.mode = Mode::Enforced;
        config.peer_port_is_local = config.name != "n3";
    };
    for name in NAMES {
        cluster.start(name).await;
    }
    tokio::time::sleep(LONG_ENOUGH).await;
    for node in cluster.nodes.values() {
        assert_eq!(node.read(|machine| machine.cluster()), None);
    }
    cluster.crash("n3").await;
    cluster.adjust = |config| config.mode = Mode::Enforced;
    cluster.start("n3").await;
    for name in NAMES {
        cluster.serving(name).await;
    }
}
