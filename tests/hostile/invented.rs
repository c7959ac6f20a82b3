//! Keep-alives of sessions that were never opened, from many connections, and a holder beside them.
//! No caller proves anything, so to the node all of them are one principal.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::task::JoinSet;

use crate::attackers::{connect, largest};
use crate::holder::Holder;
use crate::keep_alives::asks_on;
use crate::measure::WHOLE_MACHINE;

/// The TTL of the holder, whose keep-alives are sent three times as often. While such keep-alives had no
/// rate, they came later than 5 s from some thirty connections on, alone on two cores; other tests run
/// beside this one.
const TTL: Duration = Duration::from_secs(10);
/// Connections to the leader, and to each other node, that name as many sessions as a message may.
const LARGE: [usize; 2] = [30, 8];
const SESSIONS: u64 = 10_000;
/// Connections to the leader that name no more than a connection may, whatever its principal does.
const SMALL: usize = 60;
const FEW: u64 = 100;
/// Messages of each of them that are under way.
const UNDER_WAY: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn attack_16_keep_alives_of_invented_sessions_make_those_of_a_holder_no_later_than_its_ttl() {
    let _alone = WHOLE_MACHINE.lock().await;
    let holder = Holder::begin(TTL).await;
    let answered = Arc::new(AtomicU64::new(0));
    let mut attack = JoinSet::new();
    let large = Bytes::from(largest(SESSIONS).encode_to_vec());
    let small = Bytes::from(largest(FEW).encode_to_vec());
    for (at, endpoint) in holder.cluster.endpoints().iter().enumerate() {
        let is_leader = at == holder.leader;
        let attackers = (0..LARGE[usize::from(!is_leader)]).map(|_| &large);
        let attackers = attackers.chain((0..SMALL).map(|_| &small).filter(|_| is_leader));
        for request in attackers {
            let channel = connect(endpoint).await;
            let (request, answered) = (request.clone(), answered.clone());
            attack.spawn(asks_on(channel, request, UNDER_WAY, answered));
        }
    }
    holder.lasts(attack, &answered).await;
}
