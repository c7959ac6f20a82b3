//! What the nodes say: who answers, quorum, leader, lag, versions and ports.

use std::collections::BTreeSet;
use std::time::Duration;

use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::{ListMembersRequest, Member, StatusRequest, StatusResponse};
use ringfence_services::{WALL_HEADER, since_epoch};
use ringfence_tls::says_expired;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::machine::NO_ROOM;
use super::{Finding, Verdict};
use crate::cli::tls::Silence;
use crate::cli::{Global, view};

/// How many entries a voter may lack that counts as caught up.
const LAG_MAX: u64 = 1_000;
/// The most nodes that are asked: more than a cluster has.
const NODES_MAX: usize = 64;

/// A node, and what it said.
pub(in crate::cli) struct Answer {
    pub(in crate::cli) endpoint: String,
    pub(in crate::cli) said: Result<Said, Silence>,
}

/// What a node said, with its clock.
pub(in crate::cli) struct Said {
    pub(in crate::cli) status: StatusResponse,
    pub(in crate::cli) members: Vec<Member>,
    /// Whether its health service says that it can serve; `None` if it says nothing.
    serves: Option<bool>,
    pub(super) clock: Clock,
}

impl Said {
    /// What a node says of itself and of the members, without a clock that it shows.
    #[cfg(test)]
    pub(in crate::cli) fn new(status: StatusResponse, members: Vec<Member>) -> Self {
        Self {
            status,
            members,
            serves: None,
            clock: Clock {
                wall_ms: None,
                date: String::new(),
                asked: Duration::ZERO,
                answered: Duration::ZERO,
            },
        }
    }
}

/// The wall clock of a node, and what this machine's clock showed before and after it was asked.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    /// In milliseconds since 1970; older releases do not show it.
    pub(super) wall_ms: Option<u64>,
    /// As HTTP writes it, in whole seconds; empty if it is not shown.
    pub(super) date: String,
    pub(super) asked: Duration,
    pub(super) answered: Duration,
}

/// Asks the endpoints, and then the members that these name.
pub(in crate::cli) async fn ask_all(global: &Global) -> Vec<Answer> {
    let mut asked: BTreeSet<String> = global.endpoints().into_iter().collect();
    let first = asked.iter().cloned().map(|endpoint| ask(endpoint, global));
    let mut answers = futures_util::future::join_all(first).await;
    let said = answers
        .iter()
        .filter_map(|answer| answer.said.as_ref().ok());
    // A node that was asked under another address is not asked again.
    let known: BTreeSet<u64> = said.clone().map(|said| said.status.node_id).collect();
    let members = said.flat_map(|said| &said.members);
    let more = members.filter(|member| !known.contains(&member.node_id));
    let more: BTreeSet<String> = more
        .map(|member| member.client_address.clone())
        .filter(|address| asked.insert(address.clone()))
        .take(NODES_MAX)
        .collect();
    let more = more.into_iter().map(|endpoint| ask(endpoint, global));
    answers.extend(futures_util::future::join_all(more).await);
    answers
}

async fn ask(endpoint: String, global: &Global) -> Answer {
    let asking = async {
        let node = global.tls.connect(&endpoint, global.timeout).await?;
        let mut client = ClusterClient::new(node.channel.clone());
        let asked = since_epoch();
        let status = node.answer(client.status(StatusRequest {})).await?;
        let answered = since_epoch();
        let shown = |name: &str| {
            let value = status.metadata().get(name);
            value.and_then(|value| value.to_str().ok()).unwrap_or("")
        };
        let clock = Clock {
            wall_ms: shown(WALL_HEADER).parse().ok(),
            date: shown("date").to_owned(),
            asked,
            answered,
        };
        let members = client.list_members(ListMembersRequest {});
        let members = node.answer(members).await?;
        let mut health = HealthClient::new(node.channel.clone());
        let serves = health.check(HealthCheckRequest::default()).await.ok();
        let serves = serves.map(|said| said.into_inner().status() == ServingStatus::Serving);
        Ok::<_, Silence>(Said {
            status: status.into_inner(),
            members: members.into_inner().members,
            serves,
            clock,
        })
    };
    let said = match timeout(global.timeout, asking).await {
        Ok(said) => said,
        Err(_) => Err("no answer in time".to_owned().into()),
    };
    Answer { endpoint, said }
}

/// What the answers show.
pub(super) async fn findings(answers: &[Answer], global: &Global) -> Vec<Finding> {
    let mut findings: Vec<Finding> = answers.iter().map(answered).collect();
    let said: Vec<&Said> = answers
        .iter()
        .filter_map(|answer| answer.said.as_ref().ok())
        .collect();
    // The leader knows how far each has come.
    let knows = said.iter().max_by_key(|said| {
        let leads = said.status.node_id == said.status.leader_id;
        (leads, said.status.applied_index)
    });
    let Some(knows) = knows else {
        return findings;
    };
    let voters = Voters::of(&knows.members, &said);
    findings.push(quorum(&voters));
    findings.push(leader(&said, &voters));
    findings.extend(said.iter().filter_map(|said| ready(said)));
    findings.extend(full_disks(knows));
    findings.extend(lag(knows));
    findings.extend(versions(&said));
    let ports = knows.members.iter().map(|member| port(member, global));
    findings.extend(futures_util::future::join_all(ports).await);
    findings
}

fn answered(answer: &Answer) -> Finding {
    let found = |found: String| Finding::good("node", &answer.endpoint, found);
    match &answer.said {
        Ok(said) => {
            let status = &said.status;
            found(format!("{}, {}", status.name, status.role))
        }
        Err(silence) if silence.denied.is_some() && says_expired(&silence.why) => {
            found(silence.why.clone()).but(
                Verdict::Problem,
                "let the CA sign a new certificate for this client, and name it with its key: --cert and \
                 --key",
            )
        }
        Err(silence) if silence.denied.is_some() => found(silence.why.clone()).but(
            Verdict::Problem,
            "show a credential that the node takes: --token-file, or --cert with --key",
        ),
        Err(silence) if says_expired(&silence.why) => found(silence.why.clone()).but(
            Verdict::Problem,
            "let the CA sign a new certificate with the same names, and put it and its key in the place of \
             the node's files: it takes them up without a restart; see \
             deploy/RECOVERY.md#a-certificate-has-expired",
        ),
        Err(silence) => found(silence.why.clone()).but(
            Verdict::Problem,
            "start the node, or look at its log; the address may be another node's or TLS may be \
             missing (--cacert), and a firewall may keep this machine out",
        ),
    }
}

/// How many voters there are, and how many of them answer.
struct Voters {
    all: usize,
    here: usize,
}

impl Voters {
    fn of(members: &[Member], said: &[&Said]) -> Self {
        let voters = members.iter().filter(|member| member.voter);
        let answers = |member: &&Member| {
            let of = |said: &&Said| said.status.node_id == member.node_id;
            said.iter().any(of)
        };
        Self {
            all: voters.clone().count(),
            here: voters.filter(answers).count(),
        }
    }

    fn majority(&self) -> usize {
        self.all / 2 + 1
    }
}

/// Whether a majority of the voters answers, and whether it would without one more.
fn quorum(voters: &Voters) -> Finding {
    let (all, here, majority) = (voters.all, voters.here, voters.majority());
    let answer = if here == 1 { "answers" } else { "answer" };
    let found = format!("{here} of {all} voters {answer}, a majority is {majority}");
    let finding = Finding::good("quorum", "cluster", found);
    if all == 0 {
        let next = "the cluster is not formed: start all nodes of --initial-cluster";
        return finding.but(Verdict::Problem, next);
    }
    if here < majority {
        let next = "start voters until a majority runs: see \
                    deploy/RECOVERY.md#the-majority-is-down";
        return finding.but(Verdict::Problem, next);
    }
    if here == majority && here < all {
        let next = "start the voters that do not answer: one more failure stops the cluster";
        return finding.but(Verdict::Warning, next);
    }
    if all < 3 {
        let next = "three voters survive the failure of one, and fewer survive none: start further nodes \
                    with --join and --join-as-voter until there are three, see \
                    deploy/OPERATE.md#members";
        return finding.but(Verdict::Warning, next);
    }
    finding
}

/// Whether all nodes are of one cluster and know the same leader, and whether that one has a majority: a
/// node goes on to name a leader that is gone, and a leader to lead whom no majority answers.
fn leader(said: &[&Said], voters: &Voters) -> Finding {
    let clusters: BTreeSet<String> = said
        .iter()
        .map(|said| view::hex(&said.status.cluster_id))
        .collect();
    if clusters.len() > 1 {
        let listed: Vec<&str> = clusters.iter().map(String::as_str).collect();
        return Finding::good(
            "leader",
            "cluster",
            format!("clusters {}", listed.join(", ")),
        )
        .but(
            Verdict::Problem,
            "these nodes belong to different clusters: name the endpoints of one, and stop an old \
             cluster that was restored",
        );
    }
    let leaders: BTreeSet<u64> = said.iter().map(|said| said.status.leader_id).collect();
    match leaders.iter().copied().collect::<Vec<_>>()[..] {
        [0] => Finding::good("leader", "cluster", "none").but(
            Verdict::Problem,
            "without a leader nothing is granted: look at quorum above and at the logs of the nodes, and \
             see deploy/RECOVERY.md#the-majority-is-down",
        ),
        [one] => {
            let found = |found: &str| Finding::good("leader", "cluster", format!("node {one}{found}"));
            let itself = said.iter().find(|said| said.status.node_id == one);
            if voters.here < voters.majority() {
                found(", and no majority answers").but(
                    Verdict::Problem,
                    "nothing is granted until a majority of the voters runs: start them, see \
                     deploy/RECOVERY.md#the-majority-is-down",
                )
            } else if itself.is_some_and(|said| said.serves == Some(false)) {
                found(", and it is not ready").but(
                    Verdict::Problem,
                    "its /readyz and its log say why; if no majority answers it, the nodes do not reach \
                     each other: see the peer ports below, and deploy/RECOVERY.md#the-majority-is-down",
                )
            } else {
                found("")
            }
        }
        _ => Finding::good("leader", "cluster", format!("nodes {leaders:?}")).but(
            Verdict::Warning,
            "the nodes do not agree at this moment: look again; if it stays, a node is cut off from the \
             others",
        ),
    }
}

/// The members whose disks have no room, as the leader has heard of them.
fn full_disks(knows: &Said) -> impl Iterator<Item = Finding> {
    let is_full = |member: &&Member| member.condition.as_ref().is_some_and(|known| known.no_room);
    knows.members.iter().filter(is_full).map(|member| {
        let found = Finding::good("disk room", &member.name, "no room for more log");
        found.but(Verdict::Problem, NO_ROOM)
    })
}

/// Whether a node can serve, as its `/readyz` says; `None` of one without a health service.
fn ready(said: &Said) -> Option<Finding> {
    let of = &said.status.name;
    Some(match said.serves? {
        true => Finding::good("ready", of, "it can serve"),
        false => Finding::good("ready", of, "it cannot serve").but(
            Verdict::Problem,
            "look again in a moment if it was started just now; /readyz at its HTTP port, and its log, say \
             why and name the runbook",
        ),
    })
}

fn lag(knows: &Said) -> Vec<Finding> {
    if knows.status.node_id != knows.status.leader_id {
        return Vec::new();
    }
    let last = knows.status.last_log_index;
    let others = knows.members.iter();
    let others = others.filter(|member| member.node_id != knows.status.node_id);
    others
        .map(|member| {
            let lag = last.saturating_sub(member.matched_index);
            let finding = Finding::good("lag", &member.name, view::counted(lag, "entry"));
            match lag > LAG_MAX {
                false => finding,
                true => finding.but(
                    Verdict::Warning,
                    "look again: a number that falls is a node that catches up; if it does not, look at \
                     its disk and its log",
                ),
            }
        })
        .collect()
}

/// Whether all nodes run one version, and the cluster uses what they know.
fn versions(said: &[&Said]) -> Vec<Finding> {
    let versions: BTreeSet<&str> = said
        .iter()
        .map(|said| said.status.version.as_str())
        .collect();
    let listed: Vec<&str> = versions.iter().copied().collect();
    let one = Finding::good("version", "cluster", listed.join(", "));
    let one = match listed.len() {
        1 => one,
        _ => one.but(Verdict::Warning, "finish the upgrade of the older nodes"),
    };
    let known = said.iter().map(|said| said.status.log_version).min();
    let level = said.iter().map(|said| said.status.level).max();
    let (known, level) = (known.unwrap_or_default(), level.unwrap_or_default());
    let found = format!("level {level}, these nodes know {known}");
    let two = Finding::good("level", "cluster", found);
    let two = match level < known {
        false => two,
        true => two.but(
            Verdict::Warning,
            "a member is older, or does not answer: the level rises once every member knows it",
        ),
    };
    vec![one, two]
}

/// Whether the port for other nodes can be reached from here.
async fn port(member: &Member, global: &Global) -> Finding {
    let address = &member.peer_address;
    let connected = timeout(global.timeout, TcpStream::connect(address)).await;
    let found = match connected {
        Ok(Ok(_)) => return Finding::good("peer port", &member.name, format!("{address} is open")),
        Ok(Err(why)) => why.to_string(),
        Err(_) => "no answer in time".to_owned(),
    };
    Finding::good("peer port", &member.name, format!("{address}: {found}")).but(
        Verdict::Warning,
        "the other nodes must reach this address; this machine need not, if a firewall is meant to keep \
         it out",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Failure;

    fn said(node_id: u64, serves: Option<bool>) -> Said {
        let status = StatusResponse {
            node_id,
            leader_id: 1,
            ..StatusResponse::default()
        };
        let said = Said::new(status, Vec::new());
        Said { serves, ..said }
    }

    #[test]
    fn each_node_is_ready_or_says_so() {
        let verdict = |serves| ready(&said(2, serves)).map(|found| found.verdict);
        assert_eq!(verdict(Some(true)), Some(Verdict::Good));
        assert_eq!(verdict(Some(false)), Some(Verdict::Problem));
        assert_eq!(verdict(None), None, "it has no health service");
    }

    #[test]
    fn a_single_voter_is_no_cluster_that_survives_a_failure() {
        let found = quorum(&Voters { all: 1, here: 1 });
        assert_eq!(found.verdict, Verdict::Warning);
        assert!(found.next.contains("--join-as-voter"), "{}", found.next);
    }

    #[test]
    fn a_node_with_an_expired_certificate_is_to_get_a_new_one() {
        let next = |why: &str, denied: bool| {
            let answer = Answer {
                endpoint: "n1:7420".to_owned(),
                said: Err(Silence {
                    why: why.to_owned(),
                    denied: denied.then(|| Failure::unauthenticated(why)),
                }),
            };
            answered(&answer).next
        };
        let server = "TLS: its certificate has expired; give the server a new one";
        assert!(next(server, false).contains("#a-certificate-has-expired"));
        let client = "TLS: this client's certificate has expired; give a new one";
        assert!(next(client, true).contains("for this client"));
        assert!(next("connection refused", false).starts_with("start the node"));
    }

    #[test]
    fn a_leader_without_a_majority_is_a_problem_with_a_next_step() {
        let member = |node_id| Member {
            node_id,
            voter: true,
            ..Member::default()
        };
        let members = [1, 2, 3].map(member);
        let verdict = |said: &[Said]| {
            let said: Vec<&Said> = said.iter().collect();
            let found = leader(&said, &Voters::of(&members, &said));
            (found.verdict, found.next.contains("#the-majority-is-down"))
        };
        let fine = (Verdict::Good, false);
        let bad = (Verdict::Problem, true);
        let three = |first| [said(1, first), said(2, Some(true)), said(3, Some(true))];
        assert_eq!(verdict(&three(Some(true))), fine);
        assert_eq!(verdict(&three(None)), fine, "it says nothing of its health");
        assert_eq!(verdict(&three(Some(true))[..2]), fine);
        // All answer this machine, and do not reach each other.
        assert_eq!(verdict(&three(Some(false))), bad);
        // It is alone, or it is gone, and the one that is left still names it.
        assert_eq!(verdict(&[said(1, Some(true))]), bad);
        assert_eq!(verdict(&[said(2, Some(false))]), bad);
    }
}
