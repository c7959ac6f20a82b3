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

use crate::identity::{Incarnation, Seat, random_bytes};
use crate::inner::Inner;
use crate::membership::leader_peer_address;
use crate::network::connect;
use crate::seat::take_seat;
use crate::type_config::Peer;

/// How long a node is given to say who it is.
const HELLO_MAX: Duration = Duration::from_millis(500);
/// How long adopting an identity or being taken in may take: both write to disk.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);
/// How long an empty node waits before it asks around again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How often it says what it is waiting for.
const SAY_EVERY: u32 = 50;

/// Asks around until this node has its seat.
pub(crate) async fn find_seat(inner: Arc<Inner>) {
    for round in 0_u32.. {
        if inner.running.get().is_some() || inner.stop.is_stopped() {
            return;
        }
        match one_round(&inner).await {
            Ok(()) => return,
            Err(waiting_for) if round % SAY_EVERY == 0 => {
                tracing::info!(%waiting_for, "this node has no cluster yet");
            }
            Err(_) => {}
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
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

async fn hello(inner: &Inner, address: &str) -> Option<pb::HelloResponse> {
    let mut client = connect(address)?;
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
        members.push((id, empty_member(name, address, answer, offered)?));
        let names: Vec<&String> = first.iter().map(|(name, _)| name).collect();
        if answer.first_members.iter().ne(names) {
            let theirs = answer.first_members.join(", ");
            return Err(format!(
                "{name} to be told the same first members: it names {theirs}"
            ));
        }
    }
    let cluster = match offered {
        Some(cluster) => cluster,
        None => draw_cluster(inner)?,
    };
    for (id, peer) in members
        .iter()
        .filter(|(_, peer)| peer.name != inner.config.name)
    {
        adopt(cluster, *id, peer).await?;
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

/// A first member that is empty, or has taken its seat in the cluster that was offered to it.
fn empty_member(
    name: &str,
    address: &str,
    answer: &pb::HelloResponse,
    offered: Option<ClusterId>,
) -> Result<Peer, String> {
    if answer.name != name {
        return Err(format!(
            "{name} at {address}, where {} answers",
            answer.name
        ));
    }
    let offered = offered.as_ref().map(|cluster| &cluster.as_bytes()[..]);
    if !answer.cluster.is_empty() && Some(&answer.cluster[..]) != offered {
        return Err(format!(
            "{name}, which belongs to a cluster that never began to work"
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
        .save(&inner.config.data_dir)
        .map_err(|error| error.to_string())?;
    Ok(cluster)
}

async fn adopt(cluster: ClusterId, id: u64, peer: &Peer) -> Result<(), String> {
    let waiting = |why: &str| format!("{} to take its seat: {why}", peer.name);
    let mut client = connect(&peer.peer_address).ok_or_else(|| waiting("no valid address"))?;
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
    let mut client = connect(address).ok_or_else(|| waiting("no valid address"))?;
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
    let seat = inner.identity().seat;
    let Some(seat) = seat else { return answer };
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
