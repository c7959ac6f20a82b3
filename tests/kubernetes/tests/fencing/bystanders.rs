//! Those whom no policy judges: the namespace controller, the scheduler, kubelet, administrators. What
//! they do is never refused, whatever is missing; and what the account may do does not hang on them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, Config};
use ringfence_kube::TOKEN;
use ringfence_kube::policy::{Carrier, Fencing, FencingSpec, WithoutLease};
use ringfence_kubernetes::{ControlPlane, User, kubectl};
use serde_json::json;

use crate::stand::{CURRENT, Stand, until, until_judged, wish};
use crate::verdict::Verdict;
use crate::writer::Op;

/// A stand whose floor stands as the manifests bring it: the mirror has written nothing on it.
async fn without_a_token(carrier: Carrier, without_lease: WithoutLease) -> Option<Stand> {
    let mut stand = Stand::start(carrier, CURRENT).await?;
    stand.fencing = Fencing::new(FencingSpec {
        without_lease,
        ..wish(&stand.namespace, carrier)
    })
    .unwrap();
    stand.take_floor_away().await;
    stand.kubectl("apply", &stand.fencing.manifests());
    Some(stand)
}

/// The account's writes wait for the first grant, or for nothing, as it was wished.
async fn until_as_wished(stand: &Stand, without_lease: WithoutLease) {
    until("the account is judged as was wished", || async {
        let verdict = stand.would_create(CURRENT - 1).await;
        match without_lease {
            WithoutLease::Allow => verdict == Ok(Verdict::Admitted),
            WithoutLease::Deny => {
                verdict.is_err_and(|words| words.contains("carries no token: acquire the lease"))
            }
        }
    })
    .await;
}

/// A client that acts as a component of Kubernetes.
async fn acting_as(plane: &ControlPlane, user: &str, group: &str) -> Client {
    let mut config: Config = plane.config(User::Admin).await;
    for (name, value) in [("impersonate-user", user), ("impersonate-group", group)] {
        let header = (name.parse().unwrap(), value.parse().unwrap());
        config.headers.push(header);
    }
    Client::try_from(config).unwrap()
}

/// A Pod's life, as the scheduler and kubelet write it; they have all rights, so that only a policy
/// could refuse them.
pub(crate) async fn a_pod_lives_and_dies(stand: &Stand, name: &str) {
    let marked = json!({TOKEN: CURRENT.to_string()});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": marked},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{"name": "one", "image": "none"}],
        },
    });
    stand.put(pod).await;
    let scheduler = acting_as(&stand.plane, "system:kube-scheduler", "system:masters").await;
    let path = format!("/api/v1/namespaces/{}/pods/{name}/binding", stand.namespace);
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "one"},
    });
    let bound = http::Request::post(path)
        .header("content-type", "application/json")
        .body(binding.to_string().into_bytes());
    let bound = scheduler.request::<serde_json::Value>(bound.unwrap()).await;
    bound.unwrap();

    let kubelet = acting_as(&stand.plane, "system:node:one", "system:masters").await;
    let pods: Api<Pod> = Api::namespaced(kubelet, &stand.namespace);
    let running = Patch::Strategic(json!({"status": {"phase": "Running"}}));
    let params = PatchParams::default();
    let written = pods.patch_status(name, &params, &running).await.unwrap();
    assert_eq!(written.status.unwrap().phase.as_deref(), Some("Running"));
    let at_once = DeleteParams::default().grace_period(0);
    drop(pods.delete(name, &at_once).await.unwrap());
    assert!(pods.get_opt(name).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_floor_only_the_account_waits_for_it() {
    for without_lease in [WithoutLease::Allow, WithoutLease::Deny] {
        let carrier = Carrier::Impersonate;
        let Some(stand) = without_a_token(carrier, without_lease).await else {
            return;
        };
        until_as_wished(&stand, without_lease).await;
        let admin = stand.admin_writer();
        for op in [Op::Create, Op::Update, Op::MergePatch, Op::Delete] {
            let done = admin.write(op, "prices").await;
            assert_eq!(done, Ok(Verdict::Admitted), "{without_lease:?} {op:?}");
        }
        a_pod_lives_and_dies(&stand, "one").await;

        // The mark needs no floor.
        stand.raise(CURRENT).await;
        let fence = stand.fence(CURRENT);
        let holder = stand.writer(Some(&fence));
        until_judged("the holder writes", Verdict::Admitted, || {
            holder.write(Op::Create, "marked")
        })
        .await;
        stand.take_floor_away().await;
        let stale = stand.fence(CURRENT - 1);
        let stale = stand.writer(Some(&stale));
        until("the floor is gone", || async {
            stand.would_create(CURRENT - 1).await == Ok(Verdict::Admitted)
        })
        .await;
        assert_eq!(
            stale.write(Op::MergePatch, "marked").await,
            Ok(Verdict::Stale)
        );
        for op in [Op::Create, Op::MergePatch, Op::Delete] {
            let done = admin.write(op, "prices").await;
            assert_eq!(done, Ok(Verdict::Admitted), "{without_lease:?} {op:?}");
        }
        a_pod_lives_and_dies(&stand, "two").await;
    }
}

/// What an account that may write Leases in the lease's namespace does there has no say.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_leases_lower_no_floor() {
    let Some(stand) = Stand::start(Carrier::Impersonate, CURRENT).await else {
        return;
    };
    stand.remove_in_namespace("lease", "leader");
    let forged = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "leader", "annotations": {"ringfence.io/token": "1"}},
    });
    stand.put(forged).await;
    // The API server's copy may be late, so this is no proof within a moment.
    for _ in 0..20 {
        let stale = stand.would_create(CURRENT - 1).await;
        assert_eq!(stale, Ok(Verdict::Stale));
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// A Lease of the floor's name counts by the mirror's label alone.
#[tokio::test(flavor = "multi_thread")]
async fn an_unlabelled_lease_is_no_floor() {
    let carrier = Carrier::Impersonate;
    let Some(stand) = without_a_token(carrier, WithoutLease::Deny).await else {
        return;
    };
    stand.raise(CURRENT).await;
    let newest = || stand.would_create(CURRENT);
    until_judged("the floor counts", Verdict::Admitted, newest).await;
    stand.unlabel_floor().await;
    until_as_wished(&stand, WithoutLease::Deny).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_deleted_and_built_again_and_its_floor_stays() {
    let Some(mut plane) = ControlPlane::start().await else {
        return;
    };
    if kubectl().is_none() || plane.start_namespace_controller().is_none() {
        return;
    }
    let plane = Arc::new(plane);
    for without_lease in [WithoutLease::Deny, WithoutLease::Allow] {
        let carrier = Carrier::Impersonate;
        let stand = Stand::beside(Arc::clone(&plane), carrier, CURRENT, true).await;
        let mut stand = stand.unwrap();
        stand.fencing = Fencing::new(FencingSpec {
            without_lease,
            ..wish(&stand.namespace, carrier)
        })
        .unwrap();
        stand.kubectl("apply", &stand.fencing.manifests());
        stand.until_in_force(CURRENT).await;
        let fence = stand.fence(CURRENT);
        let holder = stand.writer(Some(&fence));
        let made = holder.write(Op::Create, "prices").await;
        assert_eq!(made, Ok(Verdict::Admitted));
        a_pod_lives_and_dies(&stand, "one").await;

        let namespaces: Api<Namespace> = Api::all(stand.admin.clone());
        let begun = namespaces
            .delete(&stand.namespace, &DeleteParams::default())
            .await;
        drop(begun.unwrap());
        until("the namespace is gone", || async {
            let found = namespaces.get_opt(&stand.namespace).await;
            found.unwrap().is_none()
        })
        .await;

        let again = json!({"apiVersion": "v1", "kind": "Namespace",
                           "metadata": {"name": stand.namespace}});
        let again: Namespace = serde_json::from_value(again).unwrap();
        let made = namespaces.create(&PostParams::default(), &again).await;
        drop(made.unwrap());
        stand.allow().await;
        stand.kubectl("apply", &stand.fencing.manifests());
        // No client has acquired the lease since, and no Lease shows it: the floor has outlived
        // both.
        let admin = stand.admin_writer();
        let made = admin.write(Op::Create, "prices").await;
        assert_eq!(made, Ok(Verdict::Admitted));
        until_judged("the holder writes again", Verdict::Admitted, || {
            stand.would_create(CURRENT)
        })
        .await;
        let stale = stand.would_create(CURRENT - 1).await;
        assert_eq!(stale, Ok(Verdict::Stale), "{without_lease:?}");
    }
}
