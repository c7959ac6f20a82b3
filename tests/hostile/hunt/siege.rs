//! The hunt at the peer ports.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::{ListMembersRequest, StatusRequest};
use ringfence_tests::{Caller, Cluster, Journal};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::bandit::Bandit;
use super::chaos::Chaos;
use super::doors::{Certificates, nodes};
use super::ends::{at_rest, nodes_are_well};
use super::figures::Figures;
use super::forger::Siege;
use super::honest::Honest;
use super::known::{HIDDEN, Known, SILENT_IDENTITY};
use super::stage::Stage;
use super::{seed, time};
use crate::measure::PATIENCE;
use crate::sockets::raise_own_limit;

/// How many processes of each kind there are.
const MANY: u64 = 2;
/// The TTL of a session that its client leaves alone.
const SILENT: Duration = Duration::from_secs(3);
/// Two TTLs and a second, a change of leader or two, and a machine that does other things.
const SILENT_MAX: Duration = Duration::from_secs(60);
/// How far above the wall clock tokens may be, in seconds.
const AHEAD_MAX: u64 = 60;

/// Who is at the peer ports.
#[derive(Clone, Copy)]
enum At {
    /// Processes with the certificate of a node.
    Peers,
    /// Processes without one.
    Strangers,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forging_peer_logs_nothing_of_a_leaders_and_ends_no_lease() {
    let figures = besieged_by(At::Peers).await;
    for came in ["refused", "logged", "keep-alive answered"] {
        assert!(
            figures.total("all of forger", came) > 0,
            "nothing was {came}"
        );
    }
    assert!(figures.total("all of peer", "answered") > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_at_the_peer_ports_end_no_lease_and_keep_no_node_out() {
    raise_own_limit();
    let figures = besieged_by(At::Strangers).await;
    for who in [
        "a client's certificate",
        "another authority",
        "no certificate",
    ] {
        assert!(figures.total(who, "") > 0, "{who} was not shown");
    }
    assert!(figures.total("all of strangers", "a socket") > 0);
    assert!(figures.total("nodes after a fault", "back") > 0);
}

async fn besieged_by(who: At) -> Arc<Figures> {
    let (seed, time) = (seed(), time());
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::new();
    let figures = Arc::new(Figures::default());
    let mut stage = Stage::set(&certificates.flags(folder.path())).await;
    let caller = stage.cluster.caller();
    let [bank, shop, mate] = stage
        .honest
        .each_ref()
        .map(|token| caller.with_token(token));
    let honest = vec![bank.clone(), shop.clone(), bank.clone(), shop, mate];
    let honest = Honest::start(honest, &figures).await;
    let siege = Arc::new(Siege {
        nodes: nodes(&stage.cluster, &certificates.of_a_node()).await,
        known: Known::new(honest.stolen(), bytes::Bytes::new()),
        figures: Arc::clone(&figures),
        until: Journal::now() + time,
    });

    let mut processes = JoinSet::new();
    for n in 0..MANY {
        let seed = seed.wrapping_add(100 * (n + 1));
        match who {
            At::Peers => {
                let connector = certificates.of_a_node();
                processes.spawn(Arc::clone(&siege).forge(connector.clone(), seed));
                processes.spawn(Arc::clone(&siege).speak(connector, seed + 1));
            }
            At::Strangers => {
                for (at, (who, connector)) in (1..).zip([
                    ("a client's certificate", certificates.of_a_client()),
                    ("another authority", certificates.of_another_authority()),
                    ("no certificate", certificates.without()),
                ]) {
                    processes.spawn(Arc::clone(&siege).knock(who, connector, seed + at));
                }
                processes.spawn(Arc::clone(&siege).crowd(seed));
                processes.spawn(Arc::clone(&siege).crowd(seed + 50));
            }
        }
    }
    processes.spawn(silence(bank, Arc::clone(&figures), siege.until));

    let random = StdRng::seed_from_u64(seed);
    let mut chaos = Chaos::new(&mut stage.cluster, random, &figures, &stage.operator);
    chaos.disturb(siege.until).await;
    let peaks = chaos.peaks;
    while let Some(ended) = processes.join_next().await {
        ended.expect("no hostile process has panicked");
    }
    let (grants, keep_alives) = honest.progress();
    println!("the honest: {grants} grants passed on, {keep_alives} keep-alives");
    let recording = honest.finish(seed).await;
    stays_as_it_was(&stage.cluster, &figures).await;

    let raider = Bandit::with_small_right("raider", stage.raider.clone(), "token:raider");
    let dump = at_rest(&mut stage.cluster).await;
    let entries = dump.replay_all(&[raider], &recording, &figures);
    dump.is_only_leaders(&figures);
    println!(
        "{time:?}: {entries} entries; memory at most {:?} MiB",
        peaks.map(|peak| peak >> 20)
    );
    figures.show();
    nodes_are_well(&stage.cluster, peaks, &figures);
    figures.assert_nothing_was_found(seed);
    assert!(grants > 0 && keep_alives > 0 && figures.total("faults", "") > 0);
    figures
}

/// Sessions that their client leaves alone end in time, although they are named in forged renewals.
async fn silence(caller: Caller, figures: Arc<Figures>, until: Duration) {
    while Journal::now() < until {
        let name = format!("{HIDDEN}/silent-{}", rand::random::<u32>());
        let Ok(session) = caller.open(SILENT_IDENTITY, SILENT).await else {
            continue;
        };
        let number = session.number();
        let Ok(grant) = caller.acquire(&session, number, &name, None).await else {
            continue;
        };
        let ended = async {
            loop {
                match caller.check(&name, grant.token).await {
                    Ok(checked) if checked.verdict != 1 => return,
                    _ => sleep(Duration::from_millis(200)).await,
                }
            }
        };
        match timeout(SILENT_MAX, ended).await {
            Ok(()) => figures.count("silent sessions", "ended in time"),
            Err(_) => figures.found(&format!("a silent session lives after {SILENT_MAX:?}")),
        }
    }
}

/// Three voters, and tokens that the wall clock explains.
async fn stays_as_it_was(cluster: &Cluster, figures: &Figures) {
    let leader = cluster.wait_for_leader(PATIENCE).await;
    let mut client = ClusterClient::new(cluster.caller().channel(leader));
    let members = client
        .list_members(ListMembersRequest {})
        .await
        .unwrap()
        .into_inner();
    let voters = members.members.iter().filter(|member| member.voter).count();
    if members.members.len() != 3 || voters != 3 {
        figures.found(&format!("the members are others: {members:?}"));
    }
    let status = client.status(StatusRequest {}).await.unwrap().into_inner();
    if status.last_token >> 20 > wall_seconds() + AHEAD_MAX {
        figures.found(&format!("a token of the future: {}", status.last_token));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "tokens count the seconds of the wall clock"
)]
fn wall_seconds() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_secs()
}
