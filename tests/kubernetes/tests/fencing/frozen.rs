//! A copy of Leases that freezes when the last binding goes, and what keeps it alive.

use std::sync::Arc;

use ringfence_kube::policy::{Carrier, Fencing, FencingSpec};
use ringfence_kubernetes::{ControlPlane, kubectl};

use crate::stand::{CURRENT, Stand, until, wish};
use crate::verdict::Verdict;

/// How the floor of a lease is judged that was made after the last one went: `true` if by the copy
/// of then. Nothing else with a Lease as its parameter may stand on this API server.
async fn floor_is_frozen(plane: &Arc<ControlPlane>, keeper: bool) -> bool {
    let carrier = Carrier::FieldManager;
    let gone = Stand::beside(Arc::clone(plane), carrier, CURRENT, keeper).await;
    let gone = gone.unwrap();
    gone.until_in_force(CURRENT).await;
    let mut other = Stand::without_policies(Arc::clone(plane), carrier, CURRENT).await;
    other.fencing = Fencing::new(FencingSpec {
        keeper,
        ..wish(&other.namespace, carrier)
    })
    .unwrap();

    // It goes away, and with it what it needs, but not what all need.
    let without = FencingSpec {
        keeper: false,
        ..wish(&gone.namespace, carrier)
    };
    gone.kubectl("delete", &Fencing::new(without).unwrap().manifests());
    until("nothing is judged any more", || async {
        gone.would_create(1).await == Ok(Verdict::Admitted)
    })
    .await;

    let newer = CURRENT + 100;
    other.raise(newer).await;
    other.kubectl("apply", &other.fencing.manifests());
    until("some floor is in force", || async {
        other.would_create(CURRENT - 1).await == Ok(Verdict::Stale)
    })
    .await;
    let stale = other.would_create(newer - 1).await;
    match stale.unwrap() {
        Verdict::Admitted => true,
        Verdict::Stale => false,
        verdict => panic!("{verdict:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_keeper_no_lease_freezes_the_floor_of_another() {
    let Some(plane) = ControlPlane::start().await else {
        return;
    };
    if kubectl().is_none() {
        return;
    }
    let mut plane = Arc::new(plane);
    assert!(
        floor_is_frozen(&plane, false).await,
        "without the keeper nothing froze: the API server has got better, and the keeper may go"
    );
    // What is frozen stays so until the API server is started again.
    let alone = Arc::get_mut(&mut plane).expect("nobody else uses it");
    alone.kill_api_server();
    alone.start_api_server().await;
    assert!(!floor_is_frozen(&plane, true).await);
}
