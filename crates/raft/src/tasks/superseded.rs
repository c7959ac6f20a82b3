//! A cluster that goes on in the place of this node's, restored from its backup.
//!
//! Nodes of two such clusters meet where one keeps an address that the other knows: each looks around
//! and is asked, and each says which clusters its own was restored from. A node that is shown its own
//! cluster there stops, so that an old majority that comes back does not serve beside the new cluster.
//!
//! A node whose peer port is not authenticated believes this only while it hears of no leader: one forged
//! answer could otherwise stop a cluster that works.
//!
//! The answers show the wall clocks of the members, too, so how far these are apart is noted here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ringfence_planted::{Bug, planted};
use ringfence_proto::raft as pb;

use crate::leader::term::Route;
use crate::shared::hello::Asked;
use crate::shared::inner::{Inner, Running};
use crate::types::stop::StopReason;

/// How often a node looks around while it hears of a leader.
const LOOK: Duration = Duration::from_secs(5);
/// And while it hears of none.
const LONELY_LOOK: Duration = Duration::from_secs(1);
/// For how long a node hears of no leader before it believes an answer without proof.
const UNPROVEN_AFTER: Duration = Duration::from_secs(3);

/// Stops this node if a node that it knows belongs to a cluster that was restored from this one.
pub(crate) async fn notice_superseded(inner: Arc<Inner>, running: Arc<Running>) {
    loop {
        let mut apart = None;
        for address in known_addresses(&inner, &running) {
            let Some(asked) = Asked::at(&inner, &address).await else {
                continue;
            };
            let answer = &asked.answer;
            if answer.cluster[..] != running.caller.seat.cluster.as_bytes()[..] {
                // What answers has shown the certificate of a peer, if this node demands one.
                stop_if_superseded(&inner, &answer.lineage, &address);
            } else if answer.incarnation[..] != inner.incarnation.as_bytes()[..] {
                apart = apart.max(asked.apart());
            }
        }
        inner.note_clocks(apart);
        if inner.stop.is_stopped() {
            return;
        }
        let lonely = matches!(&*inner.route.borrow(), Route::NoLeader);
        tokio::time::sleep(if lonely { LONELY_LOOK } else { LOOK }).await;
    }
}

/// The same by what a caller says of its own cluster.
pub(crate) fn asked_by(inner: &Inner, request: &pb::HelloRequest) {
    stop_if_superseded(
        inner,
        &request.lineage,
        &format!("(calls itself {})", request.name),
    );
}

/// All addresses at which nodes of another cluster may answer, this node's own included: the directory
/// of the new node there may have come in the place of this one.
fn known_addresses(inner: &Inner, running: &Running) -> BTreeSet<String> {
    let config = &inner.config;
    let first = config.initial_cluster.iter().map(|(_, address)| address);
    let membership = running.membership();
    let members = membership.nodes().map(|(_, peer)| &peer.peer_address);
    let known = first.chain(&config.join).chain(members);
    known
        .filter(|address| !address.is_empty())
        .cloned()
        .collect()
}

fn stop_if_superseded(inner: &Inner, lineage: &[bytes::Bytes], address: &str) {
    let Some(running) = inner.running.get() else {
        return;
    };
    let cluster = running.caller.seat.cluster;
    if !lineage
        .iter()
        .any(|older| older[..] == cluster.as_bytes()[..])
        || planted(Bug::SupersededGoesOn)
    {
        return;
    }
    if !inner.config.peer_authenticated() && !has_no_leader(inner, running) {
        tracing::warn!(
            %cluster,
            address,
            "a node says that its cluster was restored from this one; the peer port is not \
             authenticated and this cluster has a leader, so this node goes on: if it is true, stop \
             this cluster"
        );
        return;
    }
    let address = address.to_owned();
    inner.stop.stop(StopReason::Superseded { cluster, address });
}

/// Whether no leader can commit here, as far as this node knows. A leader that no majority answers any
/// more stays in its place, and commits nothing.
fn has_no_leader(inner: &Inner, running: &Running) -> bool {
    match &*inner.route.borrow() {
        Route::Leader(leading) if leading.members.has_one_voter() => false,
        Route::Leader(_) => {
            let acked = running.quorum_acked_ago(&inner.awake);
            acked.is_some_and(|ago| ago >= UNPROVEN_AFTER)
        }
        Route::NoLeader | Route::Follower(_) => {
            let unheard = inner.leader_unheard_for();
            unheard.is_none_or(|unheard| unheard >= UNPROVEN_AFTER)
        }
    }
}
