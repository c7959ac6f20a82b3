//! Changes of the members. Only a leader makes them; other nodes hand them to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ClientWriteError, RaftError};
use ringfence_core::{Command, Outcome};
use ringfence_proto::raft as pb;

use crate::clock;
use crate::codec;
use crate::forward::{CallBody, Failed};
use crate::identity::Incarnation;
use crate::inner::{Inner, Running};
use crate::leading::{Leading, Route};
use crate::propose::ProposeError;
use crate::type_config::{Peer, TypeConfig};

/// How far behind the leader's log a learner may be to become a voter.
const CAUGHT_UP_ENTRIES: u64 = 1_000;
/// How long a change that was not done waits before it is tried again.
const RETRY_AFTER_MILLIS: u64 = 50;
/// How long a hand-over of leadership may take.
const HAND_OVER_MAX: Duration = Duration::from_secs(2);

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id, never used again.
    pub node_id: u64,
    /// Its name.
    pub name: String,
    /// host:port of other nodes' calls.
    pub peer_address: String,
    /// host:port of clients' calls.
    pub client_address: String,
    /// Its directory's incarnation.
    pub incarnation: Incarnation,
    /// Whether it has a vote.
    pub voter: bool,
    /// Whether it leads, as far as the answering node knows.
    pub leader: bool,
    /// The log index that it is known to have; only a leader knows.
    pub matched: Option<u64>,
}

/// Why the members were not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// The request makes no sense as things stand.
    #[error("refused: {why}")]
    Refused {
        /// Why.
        why: String,
    },
    /// Not done, but it may be tried again.
    #[error("not done: {why}")]
    NotDone {
        /// Why.
        why: String,
    },
    /// It may have happened; look at the members, then repeat it if need be.
    #[error("outcome unknown: {why}")]
    Unknown {
        /// Why.
        why: String,
    },
}

impl MembershipError {
    fn refused(why: impl Into<String>) -> Self {
        Self::Refused { why: why.into() }
    }
}

impl From<ProposeError> for MembershipError {
    fn from(error: ProposeError) -> Self {
        match error {
            ProposeError::NotDone { why, .. } => Self::NotDone { why },
            ProposeError::Unknown { why } | ProposeError::Fault { why } => Self::Unknown { why },
        }
    }
}

impl From<RaftError<TypeConfig, ClientWriteError<TypeConfig>>> for MembershipError {
    fn from(error: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> Self {
        let why = error.to_string();
        match error {
            RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => Self::NotDone { why },
            RaftError::APIError(ClientWriteError::ChangeMembershipError(_)) => {
                Self::Refused { why }
            }
            RaftError::APIError(
                ClientWriteError::LogEntryDiscarded(_) | ClientWriteError::PreconditionFailed(_),
            )
            | RaftError::Fatal(_) => Self::Unknown { why },
        }
    }
}

pub(crate) fn failure_to_pb(error: &MembershipError) -> pb::Failure {
    use pb::failure::Kind;
    let (kind, why) = match error {
        MembershipError::Refused { why } => (Kind::Refused, why),
        MembershipError::NotDone { why } => (Kind::NotDone, why),
        MembershipError::Unknown { why } => (Kind::Unknown, why),
    };
    pb::Failure {
        kind: kind.into(),
        why: why.clone(),
        retry_after_ms: RETRY_AFTER_MILLIS,
    }
}

/// The members as this node knows them.
pub(crate) fn members(running: &Running, leader: Option<u64>) -> Vec<Member> {
    let metrics = running.raft.metrics();
    let now = metrics.borrow_watched();
    let membership = now.membership_config.clone();
    let voters: BTreeSet<u64> = membership.voter_ids().collect();
    let matched = |id: &u64| {
        let replication = now.replication.as_ref()?;
        replication.get(id)?.as_ref().map(|log_id| log_id.index)
    };
    let member = |(id, peer): (&u64, &Arc<Peer>)| Member {
        node_id: *id,
        name: peer.name.clone(),
        peer_address: peer.peer_address.clone(),
        client_address: peer.client_address.clone(),
        incarnation: peer.incarnation,
        voter: voters.contains(id),
        leader: leader == Some(*id),
        matched: matched(id),
    };
    membership.nodes().map(member).collect()
}

/// Makes a change here if this node leads, or hands it to the leader. What cannot be done yet is
/// tried again for a while.
pub(crate) async fn change(
    inner: &Arc<Inner>,
    change: pb::ChangeMembers,
) -> Result<pb::MembersChanged, MembershipError> {
    let deadline = clock::since_boot() + inner.config.timing.leader_wait;
    loop {
        match change_once(inner, change.clone()).await {
            Err(MembershipError::NotDone { .. }) if clock::since_boot() < deadline => {
                tokio::time::sleep(Duration::from_millis(RETRY_AFTER_MILLIS)).await;
            }
            done => return done,
        }
    }
}

async fn change_once(
    inner: &Arc<Inner>,
    change: pb::ChangeMembers,
) -> Result<pb::MembersChanged, MembershipError> {
    let route = inner.route.borrow().clone();
    match route {
        Route::Leader(_) => change_as_leader(inner, change).await,
        Route::Follower(forwarder) => match forwarder.ask(CallBody::ChangeMembers(change)).await {
            Ok(answer) => match answer.0 {
                pb::answer::Body::MembersChanged(changed) => Ok(changed),
                _ => Err(MembershipError::Unknown {
                    why: "an answer of another kind".into(),
                }),
            },
            Err(Failed::Refused(ProposeError::NotDone {
                why,
                retry_after: None,
                ..
            })) => Err(MembershipError::Refused { why }),
            Err(failed) => Err(ProposeError::from(failed).into()),
        },
        Route::Nowhere => Err(MembershipError::NotDone {
            why: "no node leads".into(),
        }),
    }
}

fn leading(inner: &Inner) -> Result<(Arc<Running>, Arc<Leading>), MembershipError> {
    let Route::Leader(leading) = inner.route.borrow().clone() else {
        return Err(MembershipError::NotDone {
            why: "this node does not lead".into(),
        });
    };
    let running = inner.running.get().cloned();
    let running = running.ok_or(MembershipError::NotDone {
        why: "no cluster yet".into(),
    })?;
    Ok((running, leading))
}

/// Makes a change as the leader.
pub(crate) async fn change_as_leader(
    inner: &Arc<Inner>,
    change: pb::ChangeMembers,
) -> Result<pb::MembersChanged, MembershipError> {
    use pb::change_members::Change;
    let (running, leading) = leading(inner)?;
    let _one_at_a_time = inner.changing.lock().await;
    let node_id = match change.change {
        Some(Change::Add(member)) => {
            let (_, peer) = codec::peer_from_pb(member)
                .map_err(|error| MembershipError::refused(error.to_string()))?;
            add(&running, &leading, peer).await?
        }
        Some(Change::Promote(promote)) => promote_one(&running, promote).await?,
        Some(Change::Remove(node_id)) => remove(&running, node_id).await?,
        Some(Change::TransferLeader(to)) => hand_over(&running, to).await?,
        Some(Change::List(pb::Nothing {})) => 0,
        None => {
            return Err(MembershipError::refused(
                "this node does not know the change",
            ));
        }
    };
    let leader = inner.route.borrow().leader();
    let members = members(&running, leader)
        .into_iter()
        .map(member_to_pb)
        .collect();
    Ok(pb::MembersChanged { node_id, members })
}

/// Takes a node in as a learner under a new id; one that is a member already keeps its id.
async fn add(running: &Running, leading: &Leading, peer: Peer) -> Result<u64, MembershipError> {
    if peer.name.is_empty() || peer.peer_address.is_empty() {
        return Err(MembershipError::refused(
            "a member needs a name and a peer address",
        ));
    }
    let membership = running.membership();
    let known = membership
        .nodes()
        .find(|(_, known)| known.incarnation == peer.incarnation);
    if let Some((id, _)) = known {
        return Ok(*id);
    }
    // A learner of this name had its directory emptied before it ever got a vote.
    let learners: BTreeSet<u64> = membership.membership().learner_ids().collect();
    let former = membership
        .nodes()
        .filter(|(_, known)| known.name == peer.name);
    let former: BTreeSet<u64> = former
        .map(|(id, _)| *id)
        .filter(|id| learners.contains(id))
        .collect();
    if !former.is_empty() {
        drop(
            running
                .raft
                .change_membership(ChangeMembers::RemoveNodes(former), false)
                .await?,
        );
    }
    let drawn = leading.write(&Command::DrawNodeId).await?;
    let Outcome::NodeId(node_id) = drawn.outcome else {
        return Err(MembershipError::NotDone {
            why: format!("no id: {:?}", drawn.outcome),
        });
    };
    tracing::info!(node_id, %peer, "a node joins as a learner");
    drop(
        running
            .raft
            .add_learner(node_id, Arc::new(peer), false)
            .await?,
    );
    Ok(node_id)
}

/// Gives a learner a vote, in the place of another member if there is one to replace.
async fn promote_one(
    running: &Running,
    promote: pb::change_members::Promote,
) -> Result<u64, MembershipError> {
    let node_id = promote.node_id;
    let membership = running.membership();
    let Some(peer) = membership.get_node(&node_id) else {
        return Err(MembershipError::refused(format!(
            "node {node_id} is no member"
        )));
    };
    let mut voters: BTreeSet<u64> = membership.voter_ids().collect();
    let replaced = if promote.replaces == 0 {
        let same_name = |id: &u64| membership.get_node(id).is_some_and(|p| p.name == peer.name);
        voters
            .iter()
            .copied()
            .filter(|id| *id != node_id)
            .find(same_name)
    } else if membership.get_node(&promote.replaces).is_some() {
        Some(promote.replaces)
    } else {
        let why = format!("node {}, to be replaced, is no member", promote.replaces);
        return Err(MembershipError::refused(why));
    };
    if voters.contains(&node_id) && replaced.is_none() {
        return Ok(node_id);
    }
    let (last, matched) = progress(running, node_id);
    if matched.is_none_or(|matched| matched + CAUGHT_UP_ENTRIES < last) {
        return Err(MembershipError::NotDone {
            why: format!("node {node_id} has not caught up: it has {matched:?} of {last}"),
        });
    }
    voters.insert(node_id);
    if let Some(replaced) = replaced {
        voters.remove(&replaced);
    }
    tracing::info!(node_id, ?replaced, "a learner gets a vote");
    drop(running.raft.change_membership(voters, false).await?);
    Ok(node_id)
}

async fn remove(running: &Running, node_id: u64) -> Result<u64, MembershipError> {
    let membership = running.membership();
    if membership.get_node(&node_id).is_none() {
        return Err(MembershipError::refused(format!(
            "node {node_id} is no member"
        )));
    }
    let voters: BTreeSet<u64> = membership.voter_ids().collect();
    let change = if voters.contains(&node_id) {
        if voters.len() == 1 {
            return Err(MembershipError::refused("it is the last voter"));
        }
        ChangeMembers::RemoveVoters(BTreeSet::from([node_id]))
    } else {
        ChangeMembers::RemoveNodes(BTreeSet::from([node_id]))
    };
    // One that led on without a vote would never hear that it was removed.
    if node_id == running.caller.seat.node_id {
        let leader = hand_over(running, 0).await?;
        return Err(MembershipError::NotDone {
            why: format!("it led; now node {leader} leads and is to remove it"),
        });
    }
    tracing::info!(node_id, "a member is removed");
    drop(running.raft.change_membership(change, false).await?);
    Ok(node_id)
}

/// Hands leadership to a voter, and waits until it leads.
pub(crate) async fn hand_over(running: &Running, to: u64) -> Result<u64, MembershipError> {
    let me = running.caller.seat.node_id;
    let voters: BTreeSet<u64> = running.membership().voter_ids().collect();
    let matched: BTreeMap<u64, u64> = voters
        .iter()
        .filter(|id| **id != me)
        .filter_map(|id| progress(running, *id).1.map(|matched| (*id, matched)))
        .collect();
    let target = if to == 0 {
        matched
            .iter()
            .max_by_key(|(_, matched)| **matched)
            .map(|(id, _)| *id)
    } else {
        Some(to)
    };
    let target = target.ok_or_else(|| MembershipError::refused("there is no other voter"))?;
    if target == me {
        return Ok(me);
    }
    let (last, at) = progress(running, target);
    if !voters.contains(&target) {
        return Err(MembershipError::refused(format!(
            "node {target} is no voter"
        )));
    }
    // A hand-over to somebody who lacks entries costs a whole election.
    if at.is_none_or(|at| at + CAUGHT_UP_ENTRIES < last) {
        return Err(MembershipError::NotDone {
            why: format!("node {target} has not caught up"),
        });
    }
    let handed = running.raft.trigger().transfer_leader(target).await;
    handed.map_err(|fatal| MembershipError::Unknown {
        why: fatal.to_string(),
    })?;
    let mut metrics = running.raft.server_metrics();
    let waited = tokio::time::timeout(HAND_OVER_MAX, async {
        loop {
            let leader = metrics.borrow_watched().current_leader;
            if let Some(leader) = leader.filter(|leader| *leader != me) {
                return Ok(leader);
            }
            if metrics.changed().await.is_err() {
                return Err(MembershipError::Unknown {
                    why: "the node stops".into(),
                });
            }
        }
    });
    waited.await.unwrap_or_else(|_| {
        Err(MembershipError::Unknown {
            why: "nobody has taken over in time".into(),
        })
    })
}

/// The leader's last index, and what a member is known to have of it.
fn progress(running: &Running, node_id: u64) -> (u64, Option<u64>) {
    let metrics = running.raft.metrics();
    let now = metrics.borrow_watched();
    let matched = now
        .replication
        .as_ref()
        .and_then(|replication| replication.get(&node_id));
    let matched = matched.and_then(|log_id| log_id.as_ref().map(|log_id| log_id.index));
    (now.last_log_index.unwrap_or(0), matched)
}

/// Answers a node that wants to join.
pub(crate) async fn answer_join(inner: &Arc<Inner>, request: pb::JoinRequest) -> pb::JoinResponse {
    let mut answer = pb::JoinResponse::default();
    let Some(running) = inner.running.get() else {
        answer.why_not = "this node belongs to no cluster".to_owned();
        return answer;
    };
    if !matches!(&*inner.route.borrow(), Route::Leader(_)) {
        answer.why_not = "this node does not lead".to_owned();
        answer.leader_peer_address = leader_peer_address(inner).unwrap_or_default();
        return answer;
    }
    let member = pb::Member {
        node_id: 0,
        name: request.name,
        peer_address: request.peer_address,
        client_address: request.client_address,
        incarnation: request.incarnation,
    };
    let change = pb::ChangeMembers {
        change: Some(pb::change_members::Change::Add(member)),
    };
    match change_as_leader(inner, change).await {
        Ok(changed) => {
            answer.node_id = changed.node_id;
            answer.cluster = running.caller.seat.cluster.as_bytes().to_vec().into();
        }
        Err(error) => answer.why_not = error.to_string(),
    }
    answer
}

/// Where the leader takes calls of nodes.
pub(crate) fn leader_peer_address(inner: &Inner) -> Option<String> {
    let running = inner.running.get()?;
    let leader = inner.route.borrow().leader()?;
    running
        .membership()
        .get_node(&leader)
        .map(|peer| peer.peer_address.clone())
}

fn member_to_pb(member: Member) -> pb::MemberState {
    let peer = Peer {
        name: member.name,
        peer_address: member.peer_address,
        client_address: member.client_address,
        incarnation: member.incarnation,
    };
    pb::MemberState {
        member: Some(codec::peer_to_pb(member.node_id, &peer)),
        voter: member.voter,
        leader: member.leader,
        matched: member.matched,
    }
}

pub(crate) fn member_from_pb(state: pb::MemberState) -> Option<Member> {
    let (node_id, peer) = codec::peer_from_pb(state.member?).ok()?;
    Some(Member {
        node_id,
        name: peer.name,
        peer_address: peer.peer_address,
        client_address: peer.client_address,
        incarnation: peer.incarnation,
        voter: state.voter,
        leader: state.leader,
        matched: state.matched,
    })
}
