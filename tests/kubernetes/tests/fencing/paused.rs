//! Two API servers, one of which is stopped while the lease changes hands.

use std::sync::Arc;

use ringfence_kube::policy::Carrier;
use ringfence_kubernetes::{ControlPlane, User, kubectl};

use crate::stand::{CURRENT, Stand, until};
use crate::verdict::Verdict;
use crate::writer::{Op, Writer};

/// How often it is tried to catch an API server with an old copy.
const ROUNDS_MAX: u64 = 40;

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_was_stopped_admits_by_the_floor_and_refuses_by_the_mark() {
    let Some(mut plane) = ControlPlane::start().await else {
        return;
    };
    if kubectl().is_none() {
        return;
    }
    let second = plane.second_api_server().await;
    let there = plane.client_at(User::Default, &second.address()).await;
    let stand = Stand::beside(Arc::new(plane), Carrier::Impersonate, CURRENT, true).await;
    let stand = stand.unwrap();
    stand.until_in_force(CURRENT).await;
    let writer = |fence: &str| {
        let fence = Some(fence.to_owned());
        Writer::new(there.clone(), &stand.namespace, stand.carrier, fence)
    };
    let current = stand.fence(CURRENT);
    let stale = stand.fence(CURRENT - 1);
    until("the policies are in force at the second, too", || async {
        let mark = stand.fencing.canary_mark();
        writer(&stale).dry().write(Op::Create, "probe").await == Ok(Verdict::Stale)
            && writer(&current).dry().write(Op::Create, "probe").await == Ok(Verdict::Admitted)
            && writer(&current).dry().write(Op::MergePatch, &mark).await == Ok(Verdict::Stale)
    })
    .await;
    let holder = stand.writer(Some(&current));
    assert_eq!(
        holder.write(Op::Create, "stamped").await,
        Ok(Verdict::Admitted)
    );

    let (mut admitted, mut rounds) = (0, 0);
    while admitted == 0 && rounds < ROUNDS_MAX {
        rounds += 1;
        let old = stand.fence(CURRENT + rounds - 1);
        let new = stand.fence(CURRENT + rounds);
        second.pause();
        stand.raise(CURRENT + rounds).await;
        let holder = stand.writer(Some(&new));
        assert_eq!(
            holder.write(Op::MergePatch, "stamped").await,
            Ok(Verdict::Admitted)
        );
        // They wait at the second one, as those of a holder that was stopped with it.
        let zombie = writer(&old);
        let fresh = format!("fresh-{rounds}");
        let waiting = tokio::spawn(async move {
            tokio::join!(
                zombie.write(Op::Create, &fresh),
                zombie.write(Op::MergePatch, "stamped"),
            )
        });
        tokio::task::yield_now().await;
        second.resume();
        let (by_floor, by_mark) = waiting.await.unwrap();
        assert_eq!(by_mark, Ok(Verdict::Stale), "round {rounds}");
        match by_floor.unwrap() {
            Verdict::Admitted => admitted += 1,
            verdict => assert_eq!(verdict, Verdict::Stale),
        }
    }
    println!("of {rounds} stale creations {admitted} got past the floor, none past a mark");
    assert_eq!(
        admitted, 1,
        "the floor was never late; the control is missing"
    );
}
