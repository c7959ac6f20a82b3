//! Keep-alives that acknowledge losses which there never were, from many connections, and a holder
//! beside them. Each attacker has a session of its own: of another one's no loss is acknowledged.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use ringfence_proto::v1::{Acknowledged, KeepAliveRequest};
use tokio::task::JoinSet;

use crate::attackers::connect;
use crate::holder::Holder;
use crate::keep_alives::asks_on;
use crate::measure::WHOLE_MACHINE;

/// The TTL of the holder, as beside invented sessions.
const TTL: Duration = Duration::from_secs(10);
/// The TTL of the attackers, who would have to open new sessions otherwise.
const ATTACKERS_TTL: Duration = Duration::from_secs(300);
/// Connections to the leader, and to each other node.
const CONNECTIONS: [usize; 2] = [30, 15];
/// As many as a message may acknowledge.
const LOSSES: u64 = 10_000;
/// Entries of all else meanwhile: batches of keep-alives, at most twenty a second, and ticks.
const OTHERS: u64 = 1_000;
/// Messages of each connection that are under way.
const UNDER_WAY: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn attack_16_invented_losses_reach_no_log_and_make_no_holder_late() {
    let _alone = WHOLE_MACHINE.lock().await;
    let holder = Holder::begin(TTL).await;
    let caller = holder.cluster.caller();
    let answered = Arc::new(AtomicU64::new(0));
    let mut attack = JoinSet::new();
    for (at, endpoint) in holder.cluster.endpoints().iter().enumerate() {
        for _ in 0..CONNECTIONS[usize::from(at != holder.leader)] {
            let own = caller.open("attacker", ATTACKERS_TTL).await.unwrap().handle;
            let invented = |n| Acknowledged {
                session: own.session,
                token: 1 << 50 | n,
            };
            let request = KeepAliveRequest {
                id: 1,
                acknowledged: (0..LOSSES).map(invented).collect(),
                sessions: vec![own.clone()],
            };
            let request = Bytes::from(request.encode_to_vec());
            let channel = connect(endpoint).await;
            attack.spawn(asks_on(channel, request, UNDER_WAY, answered.clone()));
        }
    }
    let before = holder.cluster.applied(holder.leader).await;
    let answered = holder.lasts(attack, &answered).await;
    let entries = holder.cluster.applied(holder.leader).await - before;
    println!("{entries} entries for {answered} messages");
    assert!(entries <= 2 * answered + OTHERS, "the log has them");
}
