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
use ringfence_tls::RarelyEach;

use crate::bootstrap::restoring::{begins_how, check_port, check_restore};
use crate::bootstrap::seat::take_seat;
use crate::membership::list::FIRST_MEMBERS_MAX;
use crate::network::connect;
use crate::platform::runtime;
use crate::shared::hello::{Asked, first_members, hello, lineage_of, tls_of};
use crate::shared::inner::Inner;
use crate::store::identity::{Seat, digest_to_pb};
use crate::types::incarnation::Incarnation;
use crate::types::type_config::Peer;

/// How long adopting an identity or being taken in may take: both write to disk.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);
/// How long an empty node waits before it asks around again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Asks around until this node has its seat.
pub(crate) async fn find_seat(inner: Arc<Inner>) {
    let mut lines = RarelyEach::default();
    loop {
        if inner.running.get().is_some() || inner.stop.is_stopped() {
            return;
        }
        match one_round(&inner).await {
            Ok(()) => return,
            Err(waiting_for) => {
                *inner.waiting_for.lock() = Some(waiting_for.clone());
                if let Some(unsaid) = lines.say(&waiting_for) {
                    tracing::info!(%waiting_for, unsaid, "this node has no cluster yet");
                }
            }
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
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
    let asked = join_all(others.iter().map(|address| Asked::at(inner, address))).await;
    let answers: BTreeMap<&String, Asked> = others
        .into_iter()
        .zip(asked)
        .filter_map(|(at, answer)| Some((at, answer?)))
        .collect();

    for (address, Asked { answer, .. }) in &answers {
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
        Some((founder, _)) if founder == me => form(inner, &first, &answers).await,
        Some((founder, _)) if first.iter().any(|(name, _)| name == me) => {
            Err(format!("{founder}, which calls the first members together"))
        }
        _ => Err("a member of a cluster to join".to_owned()),
    }
}

/// The addresses of a cluster that this node was configured to join, beside those of first members.
fn to_join<'a>(inner: &'a Inner, first: &[(String, String)]) -> Vec<&'a String> {
    let is_first = |at: &&String| first.iter().any(|(_, address)| address == *at);
    let told = inner.config.join.iter();
    told.filter(|at| !is_first(at)).collect()
}

/// Whether no cluster but the one that is being formed answers at the addresses that this node was
/// configured to join, all of them having answered. Otherwise that cluster comes first: it may only
/// be out of reach, or not lead yet.
///
/// First members may answer there, too, under another address; the first ones have their seats while
/// the others wait for theirs.
fn none_to_join<'a>(
    mut answers: impl Iterator<Item = (&'a String, Option<&'a pb::HelloResponse>)>,
    forming: Option<ClusterId>,
) -> Result<(), String> {
    let is_forming = |answer: &pb::HelloResponse| {
        !answer.formed && forming.is_some() && ClusterId::from_slice(&answer.cluster) == forming
    };
    let waiting = answers.find_map(|(address, answer)| match answer {
        Some(answer) if answer.cluster.is_empty() || is_forming(answer) => None,
        Some(answer) if !answer.formed => {
            Some(format!("{address}, whose cluster has no leader yet"))
        }
        _ => Some(format!("{address}, which it is to join")),
    });
    waiting.map_or(Ok(()), Err)
}

/// Forms the cluster, as the first member with the lowest name.
async fn form(
    inner: &Arc<Inner>,
    first: &[(String, String)],
    answers: &BTreeMap<&String, Asked>,
) -> Result<(), String> {
    let offered = inner.identity.lock().forming;
    let to_join = to_join(inner, first);
    let joined = |at| (at, answers.get(at).map(|asked| &asked.answer));
    none_to_join(to_join.into_iter().map(joined), offered)?;
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
        let asked = answers.get(address);
        let Asked { answer, .. } = asked.ok_or_else(|| format!("{name} at {address}"))?;
        members.push((id, first_member(name, address, answer)?));
        let belongs = ClusterId::from_slice(&answer.cluster);
        if let Some(cluster) = belongs.filter(|cluster| Some(*cluster) != offered) {
            seated.push((name, cluster, answer.begun));
        }
        let names: Vec<&String> = first.iter().map(|(name, _)| name).collect();
        if answer.first_members.iter().ne(names) {
            let theirs = answer.first_members.join(", ");
            return Err(format!(
                "{name} to be given the same first members: it names {theirs}"
            ));
        }
    }
    if !seated.is_empty() {
        return Err(never_begun(&seated));
    }
    check_restore(inner, first, answers)?;
    let restores = inner.begins_with();
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
    take_seat(inner, seat, members, restores)
        .await
        .map_err(|error| {
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

/// Why the founder waits although all first members have answered: some took seats in a cluster that
/// it does not know. It never forms a second one, since only an operator can know that the first one
/// is lost.
fn never_begun(seated: &[(&String, ClusterId, bool)]) -> String {
    if let Some((name, cluster, _)) = seated.iter().find(|(_, _, begun)| *begun) {
        return format!(
            "a leader of cluster {cluster}, to which {name} belongs: start all its members"
        );
    }
    let names: Vec<&str> = seated.iter().map(|(name, _, _)| name.as_str()).collect();
    let (names, (_, cluster, _)) = (names.join(" and "), seated[0]);
    format!(
        "an operator to empty the data directory of {names} and to start it again: it took a seat in \
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
    let cluster = ClusterId::new(runtime::random_bytes());
    let mut identity = inner.identity.lock();
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
        member: Some(crate::types::codec::peer_to_pb(id, peer)),
        restores: digest_to_pb(inner.begins_with().as_ref()),
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
        peer_authenticated: inner.config.peer_authenticated(),
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
    take_seat(inner, seat, Vec::new(), None)
        .await
        .map_err(|error| {
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
        process: inner.process.clone(),
        restores: digest_to_pb(inner.begins_with().as_ref()),
        wall: (inner.config.hooks.wall_millis)(),
        lineage: lineage_of(inner),
        ..pb::HelloResponse::default()
    };
    let (seat, forming) = {
        let identity = inner.identity.lock();
        (identity.seat, identity.forming)
    };
    answer.offers = forming.map_or_else(Bytes::new, |cluster| {
        Bytes::copy_from_slice(cluster.as_bytes())
    });
    let Some(seat) = seat else { return answer };
    // A node that is still opening its log may have one.
    answer.begun = inner
        .running
        .get()
        .is_none_or(|running| running.log.has_begun());
    answer.cluster = Bytes::copy_from_slice(seat.cluster.as_bytes());
    answer.node_id = seat.node_id;
    answer.leader_peer_address = inner.leader_peer_address().unwrap_or_default();
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
            && was_taken_in(request.node_id, at)
            && known.is_none_or(|peer| peer.incarnation.as_bytes()[..] != request.incarnation[..])
    });
    answer
}

/// Whether a node with this id was a member by the membership that the log holds at index `at`, if
/// not in it. The id of one that joined is the index of an entry before the one that took it in: who
/// has not come that far has not seen the node yet, and knows nothing of its end.
fn was_taken_in(node_id: u64, at: u64) -> bool {
    node_id <= FIRST_MEMBERS_MAX as u64 || node_id < at
}

/// Takes the seat that the founder of a cluster offers.
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
    let restores = inner.begins_with();
    let taken = inner.identity.lock().seat;
    if let Some(taken) = taken.filter(|taken| *taken != seat) {
        return Err(format!("it belongs to {}", taken.cluster));
    }
    if request.restores[..] != digest_to_pb(restores.as_ref())[..] {
        return Err(format!(
            "it {}",
            begins_how(&digest_to_pb(restores.as_ref()))
        ));
    }
    if taken.is_some() {
        return Ok(());
    }
    check_port(inner).map_err(|why| format!("it waits for {why}"))?;
    let to_join = to_join(inner, &inner.config.initial_cluster);
    let asked = join_all(to_join.iter().map(|address| hello(inner, address))).await;
    let answers = to_join.into_iter().zip(asked.iter().map(Option::as_ref));
    none_to_join(answers, Some(cluster)).map_err(|cluster| format!("it waits for {cluster}"))?;
    take_seat(inner, seat, Vec::new(), restores)
        .await
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voter_that_is_behind_knows_nothing_of_a_node_that_joined_later() {
        assert!(
            was_taken_in(3, 1),
            "a first member is one from the beginning"
        );
        assert!(
            was_taken_in(100, 101),
            "the entry behind the draw took it in"
        );
        assert!(!was_taken_in(100, 90), "it was drawn later");
    }
}
