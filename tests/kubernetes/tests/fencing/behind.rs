//! What is behind the webhook hears its refusals: the client layer, and the canary.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Error};
use ringfence_client::{FencingToken, HeldLease, LeaseName, Loss};
use ringfence_kube::fenced::{self, Carrier, Held, Verdict, own_user};
use ringfence_kubernetes::User;
use serde_json::json;

use crate::canary::arguments;
use crate::process::run;
use crate::stand::{Stand, until};
use crate::webhook::Site;

/// A holder who has not heard that its grant has ended, as one that was stopped for a while.
#[derive(Clone)]
struct Unaware {
    name: LeaseName,
    token: FencingToken,
    told: Arc<AtomicBool>,
}

impl Unaware {
    fn of(lease: &HeldLease) -> Self {
        Self {
            name: lease.name().clone(),
            token: lease.token(),
            told: Arc::default(),
        }
    }
}

impl Held for Unaware {
    fn name(&self) -> &LeaseName {
        &self.name
    }

    fn token(&self) -> FencingToken {
        self.token
    }

    fn loss(&self) -> Option<Loss> {
        let told = self.told.load(Ordering::Relaxed);
        told.then_some(Loss::Reported)
    }

    fn report_stale(&self) {
        self.told.store(true, Ordering::Relaxed);
    }
}

async fn client(stand: &Stand, held: &Unaware) -> Client {
    let user = own_user(&stand.account).await.unwrap();
    let config = stand.plane.config(User::Default).await;
    fenced::client(config, held.clone(), Carrier::impersonate(user)).unwrap()
}

async fn write(client: &Client, namespace: &str, name: &str) -> Result<ConfigMap, Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(json!({"data": {"written": "1"}}));
    maps.patch(name, &PatchParams::default(), &patch).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_layer_ends_a_lease_that_the_webhook_calls_stale() {
    let Some(site) = Site::start("fail").await else {
        return;
    };
    let session = site.session("alice").await;
    let lease = site.acquire(&session, "shards/1").await;
    for (name, of) in [("one", "shards/1"), ("two", "shards/2")] {
        site.object(name, of).await;
    }
    let held = Unaware::of(&lease);
    let client = client(&site.stand, &held).await;
    let namespace = site.stand.namespace.as_str();
    let verdict = async |name| Verdict::of(&write(&client, namespace, name).await.expect_err(name));
    write(&client, namespace, "one").await.unwrap();

    // Another lease's object: refused, and the lease goes on.
    let refused = verdict("two").await;
    let Verdict::Refused(words) = &refused else {
        panic!("{refused:?}");
    };
    assert!(words.contains(" is of another lease"), "{words}");
    assert!(!refused.is_lost());
    assert_eq!(held.loss(), None);

    // Its grant ends, and only the webhook knows.
    let fence = lease.fence();
    lease.release().await.unwrap();
    let stale = verdict("one").await;
    let words = format!("stale fence {fence}: its grant has ended");
    assert_eq!(stale, Verdict::Stale(words));
    assert_eq!(held.loss(), Some(Loss::Reported));
    assert!(matches!(verdict("one").await, Verdict::Unsent(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_the_webhook_refuses_has_passed_the_canary() {
    let Some(site) = Site::start("fail").await else {
        return;
    };
    let stand = &site.stand;
    stand.kubectl("apply", &stand.fencing.manifests());
    let arguments = arguments(stand, User::Default);
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    arguments.push("--once");
    let is_said = async |line: &str, code: i32| {
        let output = run(&arguments).await;
        let told = String::from_utf8_lossy(&output.stdout);
        told.contains(line) && output.status.code() == Some(code)
    };
    // The fences that it tries were never granted, so that the webhook refuses all of them; the API
    // server asks the policies first.
    until("the policies refuse", || {
        is_said(
            "floor: a stale write is refused\nmark: a stale write is refused\n",
            0,
        )
    })
    .await;
    for (rule, other) in [("floor", "mark"), ("mark", "floor")] {
        let name = format!("{rule}.leader.{}.ringfence.io", stand.namespace);
        stand.remove("validatingadmissionpolicybinding", &name);
        let open = format!("{rule}: NO POLICY REFUSES A STALE WRITE");
        until("the rule is seen to be open", || is_said(&open, 1)).await;
        let holds = format!("{other}: a stale write is refused");
        assert!(is_said(&holds, 1).await, "{other}");
        stand.kubectl("apply", &stand.fencing.manifests());
    }
}
