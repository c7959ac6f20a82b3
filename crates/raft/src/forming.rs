//! How a node comes to a cluster: it forms one with the other first members, or joins one.
//!
//! A cluster is formed only when every listed first member answers, and answers that it is empty.
//! One that belongs to a cluster says so, and the asker joins that cluster as a new node; one that
//! does not answer means waiting. So an emptied first member never forms a second cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use ringfence_core::ClusterId;
use ringfence_proto::raft as pb;
use ringfence_tls::Connector;

use crate::identity::{Incarnation, Seat, random_bytes};
use crate::inner::{Inner, Running};
use crate::membership::leader_peer_address;
use crate::network::connect;
use crate::seat::take_seat;
use crate::stop::StopReason;
use crate::type_config::Peer;

/// How long a node is given to say who it is.
const HELLO_MAX: Duration = Duration::from_millis(500);
/// How long adopting an identity or being taken in may take: both write to disk.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);
/// How long an empty node waits before it asks around again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How often it says what it is waiting for, if that stays the same.
const SAY_EVERY: u32 = 50;
/// How long a node that has its seat waits before it asks again whether the log will begin.
const BEGIN_LOOK: Duration = Duration::from_secs(1);
/// How often in a row it must hear that it will not.
const NEVER_ROUNDS: u32 = 3;
/// How long it still answers then, so that the others hear the same of it.
const NEVER_LINGER: Duration = Duration::from_secs(3);

/// Asks around until this node has its seat.
pub(crate) async fn find_seat(inner: Arc<Inner>) {
    let mut said = String::new();
    for round in 0_u32.. {
        if inner.running.get().is_some() || inner.stop.is_stopped() {
            return;
        }
        match one_round(&inner).await {
            Ok(()) => return,
            Err(waiting_for) if said != waiting_for || round % SAY_EVERY == 0 => {
                tracing::info!(%waiting_for, "this node has no cluster yet");
                said = waiting_for;
            }
            Err(_) => {}
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Waits until the log of this node's new cluster begins. If the former has lost its directory
/// before it began the log, that never happens: then this node says so, and stops.
pub(crate) async fn await_beginning(inner: Arc<Inner>, running: Arc<Running>) {
    let first = first_members(&inner);
    let Some((former, _)) = first
        .first()
        .filter(|(former, _)| *former != inner.config.name)
    else {
        return;
    };
    let cluster = running.caller.seat.cluster;
    let (mut never, mut said) = (0, String::new());
    while !running.log.has_begun() && !inner.stop.is_stopped() {
        tokio::time::sleep(BEGIN_LOOK).await;
        match will_begin(&inner, &first, cluster).await {
            Err(NeverBegins) if running.log.has_begun() => return,
            Err(NeverBegins) => never += 1,
            Ok(waiting_for) => {
                never = 0;
                if said != waiting_for {
                    tracing::info!(%cluster, %waiting_for, "the log of the cluster has not begun");
                    said = waiting_for;
                }
            }
        }
        if never == NEVER_ROUNDS {
            tokio::time::sleep(NEVER_LINGER).await;
            break;
        }
    }
    if !running.log.has_begun() {
        let former = former.clone();
        inner.stop.stop(StopReason::NeverBegun { cluster, former });
    }
}

/// Nobody has a log of the cluster, and its former does not know of it any more.
struct NeverBegins;

/// Says for whom the beginning of the log waits. That it never comes is sure only once every first
/// member has answered: one that is away may hold what a majority has acknowledged.
async fn will_begin(
    inner: &Arc<Inner>,
    first: &[(String, String)],
    cluster: ClusterId,
) -> Result<String, NeverBegins> {
    let others = first.iter().filter(|(name, _)| *name != inner.config.name);
    let asked = others.clone().map(|(_, address)| hello(inner, address));
    let answers = join_all(asked).await;
    let mut former_forgot = false;
    for (at, ((name, address), answer)) in others.zip(answers).enumerate() {
        let Some(answer) = answer.filter(|answer| answer.name == *name) else {
            return Ok(format!("{name} at {address} to answer"));
        };
        let belongs = ClusterId::from_slice(&answer.cluster);
        if belongs.is_some_and(|belongs| belongs != cluster) || answer.formed || answer.begun {
            return Ok(format!("{name} at {address}, which has a log, to send it"));
        }
        // The former is the first of all.
        if at == 0 {
            let offers = ClusterId::from_slice(&answer.offers) == Some(cluster);
            former_forgot = belongs.is_none() && !offers;
        }
    }
    if former_forgot {
        return Err(NeverBegins);
    }
    Ok("the first member with the lowest name to begin it".to_owned())
}

/// The names and addresses of the first members, sorted by name.
fn first_members(inner: &Inner) -> Vec<(String, String)> {
    let mut members = inner.config.initial_cluster.clone();
    members.sort();
    members
}

async fn one_round(inner: &Arc<Inner>) -> Result<(), String> {
    let me = &inner.config.name;
    let first = first_members(inner);
    let others: Vec<&String> = first
        .iter()
        .filter(|(name, _)| name != me)
        .map(|(_, address)| address)
        .chain(&inner.config.join)
        .collect();
    let asked = join_all(others.iter().map(|address| hello(inner, address))).await;
    let answers: BTreeMap<&String, pb::HelloResponse> = others
        .into_iter()
        .zip(asked)
        .filter_map(|(at, answer)| Some((at, answer?)))
        .collect();

    for (address, answer) in &answers {
        if !answer.cluster.is_empty() && answer.formed {
            let to = [answer.leader_peer_address.as_str(), address.as_str()];
            return join(
                inner,
                to.into_iter().find(|at| !at.is_empty()).unwrap_or(address),
            )
            .await;
        }
    }
    match first.first() {
        Some((former, _)) if former == me => form(inner, &first, &answers).await,
        Some((former, _)) if first.iter().any(|(name, _)| name == me) => {
            Err(format!("{former}, which calls the first members together"))
        }
        _ => Err("a member of a cluster to join".to_owned()),
    }
}

/// What this node connects to others with, if there is TLS between them.
fn tls_of(inner: &Inner) -> Option<&Connector> {
    Some(&inner.config.peer_tls.as_ref()?.connect)
}

async fn hello(inner: &Inner, address: &str) -> Option<pb::HelloResponse> {
    let mut client = connect(address, tls_of(inner))?;
    let request = pb::HelloRequest {
        name: inner.config.name.clone(),
        incarnation: Bytes::copy_from_slice(inner.incarnation.as_bytes()),
        ..pb::HelloRequest::default()
    };
    let answer = tokio::time::timeout(HELLO_MAX, client.hello(request)).await;
    Some(answer.ok()?.ok()?.into_inner())
}

/// Forms the cluster, as the first member with the lowest name.
async fn form(
    inner: &Arc<Inner>,
    first: &[(String, String)],
    answers: &BTreeMap<&String, pb::HelloResponse>,
) -> Result<(), String> {
    let offered = inner.identity().forming;
    let mut members = Vec::new();
    let mut seated = Vec::new();
    for (id, (name, address)) in (1..).zip(first) {
        if *name == inner.config.name {
            let peer = Peer {
                name: name.clone(),
                peer_address: address.clone(),
                client_address: inner.config.client_advertise.clone(),
                incarnation: inner.incarnation,
            };
            members.push((id, peer));
            continue;
        }
        let answer = answers
            .get(address)
            .ok_or_else(|| format!("{name} at {address}"))?;
        members.push((id, first_member(name, address, answer)?));
        let belongs = ClusterId::from_slice(&answer.cluster);
        if let Some(cluster) = belongs.filter(|cluster| Some(*cluster) != offered) {
            seated.push((name, cluster, answer.begun));
        }
        let names: Vec<&String> = first.iter().map(|(name, _)| name).collect();
        if answer.first_members.iter().ne(names) {
            let theirs = answer.first_members.join(", ");
            return Err(format!(
                "{name} to be told the same first members: it names {theirs}"
            ));
        }
    }
    if !seated.is_empty() {
        return Err(never_begun(&seated));
    }
    let cluster = match offered {
        Some(cluster) => cluster,
        None => draw_cluster(inner)?,
    };
    for (id, peer) in members
        .iter()
        .filter(|(_, peer)| peer.name != inner.config.name)
    {
        adopt(inner, cluster, *id, peer).await?;
    }
    let seat = Seat {
        cluster,
        node_id: id_of(&members, &inner.config.name),
    };
    take_seat(inner, seat, members).await.map_err(|error| {
        tracing::error!(%error, "forming the cluster failed");
        format!("its own directory: {error}")
    })
}

fn id_of(members: &[(u64, Peer)], name: &str) -> u64 {
    members
        .iter()
        .find(|(_, peer)| peer.name == name)
        .map_or(1, |(id, _)| *id)
}

/// What a former waits for if others took seats in a cluster that it does not know, all of them
/// having answered. It never forms a second one: that somebody has to decide.
fn never_begun(seated: &[(&String, ClusterId, bool)]) -> String {
    if let Some((name, cluster, _)) = seated.iter().find(|(_, _, begun)| *begun) {
        return format!(
            "a leader of cluster {cluster}, to which {name} belongs: start all its members"
        );
    }
    let names: Vec<&str> = seated.iter().map(|(name, _, _)| name.as_str()).collect();
    let (names, (_, cluster, _)) = (names.join(" and "), seated[0]);
    format!(
        "somebody to empty the data directory of {names} and to start it again: it took a seat in \
         cluster {cluster}, which a former directory of this node was to begin; no first member \
         has a log, so nothing was ever written there and nothing is lost"
    )
}

/// A first member as it describes itself.
fn first_member(name: &str, address: &str, answer: &pb::HelloResponse) -> Result<Peer, String> {
    if answer.name != name {
        return Err(format!(
            "{name} at {address}, where {} answers",
            answer.name
        ));
    }
    let incarnation = Incarnation::from_slice(&answer.incarnation);
    Ok(Peer {
        name: name.to_owned(),
        peer_address: address.to_owned(),
        client_address: answer.client_address.clone(),
        incarnation: incarnation.ok_or_else(|| format!("{name} to say which incarnation it is"))?,
    })
}

/// Draws the cluster's id and keeps it, so that a restart in between offers the same one.
fn draw_cluster(inner: &Inner) -> Result<ClusterId, String> {
    let cluster = ClusterId::new(random_bytes());
    let mut identity = inner.identity();
    identity.forming = Some(cluster);
    identity
        .save(inner.files(), &inner.config.data_dir)
        .map_err(|error| error.to_string())?;
    Ok(cluster)
}

async fn adopt(inner: &Inner, cluster: ClusterId, id: u64, peer: &Peer) -> Result<(), String> {
    let waiting = |why: &str| format!("{} to take its seat: {why}", peer.name);
    let mut client =
        connect(&peer.peer_address, tls_of(inner)).ok_or_else(|| waiting("no valid address"))?;
    let request = pb::AdoptRequest {
        cluster: Bytes::copy_from_slice(cluster.as_bytes()),
        member: Some(crate::codec::peer_to_pb(id, peer)),
    };
    match tokio::time::timeout(EXCHANGE_MAX, client.adopt(request)).await {
        Ok(Ok(answer)) => match answer.into_inner() {
            answer if answer.adopted => Ok(()),
            answer => Err(waiting(&answer.why_not)),
        },
        Ok(Err(status)) => Err(waiting(status.message())),
        Err(_) => Err(waiting("no answer")),
    }
}

/// Joins the cluster of a member, as a new node.
async fn join(inner: &Arc<Inner>, address: &str) -> Result<(), String> {
    let waiting = |why: &str| format!("the cluster of {address} to take it in: {why}");
    let mut client = connect(address, tls_of(inner)).ok_or_else(|| waiting("no valid address"))?;
    let request = pb::JoinRequest {
        name: inner.config.name.clone(),
        peer_address: inner.peer_advertise.clone(),
        client_address: inner.config.client_advertise.clone(),
        incarnation: Bytes::copy_from_slice(inner.incarnation.as_bytes()),
    };
    let answer = tokio::time::timeout(EXCHANGE_MAX, client.join(request)).await;
    let answer = answer.map_err(|_| waiting("no answer"))?;
    let answer = answer
        .map_err(|status| waiting(status.message()))?
        .into_inner();
    let cluster = ClusterId::from_slice(&answer.cluster).filter(|_| answer.node_id != 0);
    let cluster = cluster.ok_or_else(|| waiting(&answer.why_not))?;
    let seat = Seat {
        cluster,
        node_id: answer.node_id,
    };
    take_seat(inner, seat, Vec::new()).await.map_err(|error| {
        tracing::error!(%error, "joining the cluster failed");
        format!("its own directory: {error}")
    })
}

/// Says who this node is.
pub(crate) fn answer_hello(inner: &Inner, request: &pb::HelloRequest) -> pb::HelloResponse {
    let first = first_members(inner);
    let mut answer = pb::HelloResponse {
        name: inner.config.name.clone(),
        incarnation: Bytes::copy_from_slice(inner.incarnation.as_bytes()),
        client_address: inner.config.client_advertise.clone(),
        first_members: first.into_iter().map(|(name, _)| name).collect(),
        ..pb::HelloResponse::default()
    };
    let (seat, forming) = {
        let identity = inner.identity();
        (identity.seat, identity.forming)
    };
    answer.offers = forming.map_or_else(Bytes::new, |cluster| {
        Bytes::copy_from_slice(cluster.as_bytes())
    });
    let Some(seat) = seat else { return answer };
    // Whoever is still opening its log may have one.
    answer.begun = inner
        .running
        .get()
        .is_none_or(|running| running.log.has_begun());
    answer.cluster = Bytes::copy_from_slice(seat.cluster.as_bytes());
    answer.node_id = seat.node_id;
    answer.leader_peer_address = leader_peer_address(inner).unwrap_or_default();
    // Until the first entry is applied here the node may only know that it was called together.
    let applied = inner.state.machine().cluster().is_some();
    answer.formed = applied || inner.route.borrow().leader().is_some();
    answer.removed = inner.running.get().is_some_and(|running| {
        let committed = running.committed_membership();
        let at = committed.log_id().map_or(0, |log_id| log_id.index);
        let known = committed.get_node(&request.node_id);
        request.cluster == answer.cluster
            && request.node_id != 0
            && request.membership_index < at
            && known.is_none_or(|peer| peer.incarnation.as_bytes()[..] != request.incarnation[..])
    });
    answer
}

/// Takes the seat that the former of a cluster offers.
pub(crate) async fn answer_adopt(
    inner: &Arc<Inner>,
    request: pb::AdoptRequest,
) -> pb::AdoptResponse {
    match try_adopt(inner, request).await {
        Ok(()) => pb::AdoptResponse {
            adopted: true,
            why_not: String::new(),
        },
        Err(why_not) => pb::AdoptResponse {
            adopted: false,
            why_not,
        },
    }
}

async fn try_adopt(inner: &Arc<Inner>, request: pb::AdoptRequest) -> Result<(), String> {
    let cluster =
        ClusterId::from_slice(&request.cluster).ok_or("the cluster id is not 16 bytes")?;
    let member = request.member.ok_or("the offer names no member")?;
    if member.name != inner.config.name {
        return Err(format!(
            "the seat is for {}, this is {}",
            member.name, inner.config.name
        ));
    }
    if member.incarnation[..] != inner.incarnation.as_bytes()[..] {
        return Err("the seat is for another incarnation of this node".to_owned());
    }
    if !inner
        .config
        .initial_cluster
        .iter()
        .any(|(name, _)| *name == member.name)
    {
        return Err("this node was not started as a first member".to_owned());
    }
    let seat = Seat {
        cluster,
        node_id: member.node_id,
    };
    if let Some(taken) = inner.identity().seat {
        let same = taken == seat;
        return if same {
            Ok(())
        } else {
            Err(format!("it belongs to {}", taken.cluster))
        };
    }
    take_seat(inner, seat, Vec::new())
        .await
        .map_err(|error| error.to_string())
}
