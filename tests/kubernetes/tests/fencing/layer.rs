//! The client layer with real leases, before a real API server: what it puts on writes is what the
//! policies read, for the carriers with which it changes the write itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Method, Request};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Error;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::client::{Body, Client, ClientBuilder};
use ringfence_client::{HeldLease, Loss, SessionOptions};
use ringfence_kube::TOKEN;
use ringfence_kube::fenced::{Carrier, Fencing, Unsent, Verdict, stamp};
use ringfence_kube::policy;
use ringfence_kubernetes::{ControlPlane, User};
use ringfence_tests::{Beside, Cluster, Options, Signal};
use serde_json::json;
use tower::util::MapRequestLayer;

use crate::stand::{Form, LONG, Stand, WITHOUT_MUTATION, until, within};
use crate::writer::Op;

/// Longer than any of these tests.
pub(crate) const TTL: Duration = Duration::from_secs(60);
/// Over soon.
pub(crate) const SHORT: Duration = Duration::from_secs(2);

pub(crate) async fn one_node() -> Cluster {
    let options = Options {
        nodes: 1,
        beside: Beside::Anything,
        ..Options::default()
    };
    Cluster::start(options).await
}

pub(crate) async fn hold(cluster: &Cluster, namespace: &str, ttl: Duration) -> Arc<HeldLease> {
    let client = ringfence_client::Client::connect(cluster.endpoints()).await;
    let identity = "holder".to_owned();
    let options = SessionOptions { identity, ttl };
    let session = client.unwrap().open_session(options).await.unwrap();
    let acquire = session.acquire(format!("k8s/{namespace}/leader"));
    let held = within("a grant", acquire.wait(LONG).send()).await;
    Arc::new(held.unwrap())
}

/// A client whose writes carry the fence, and how many of them have left it.
pub(crate) async fn fenced(
    plane: &ControlPlane,
    held: &Arc<HeldLease>,
    carrier: Carrier,
) -> (Client, Arc<AtomicU64>) {
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    let counting = MapRequestLayer::new(move |request: Request<Body>| {
        if *request.method() != Method::GET {
            count.fetch_add(1, Ordering::Relaxed);
        }
        request
    });
    let mut config = plane.config(User::Default).await;
    config.default_retry = false;
    let builder = ClientBuilder::try_from(config).unwrap();
    let builder = builder.with_layer(&counting);
    let layer = Fencing::new(Arc::clone(held), carrier);
    (builder.with_layer(&layer).build(), sent)
}

/// A lease that is held, the policies that judge by it, and a client under it.
struct Scene {
    stand: Stand,
    held: Arc<HeldLease>,
    sent: Arc<AtomicU64>,
    client: Client,
    maps: Api<ConfigMap>,
    _cluster: Cluster,
}

impl Scene {
    async fn start(carrier: Carrier, told: impl Into<Form>) -> Option<Self> {
        let plane = ControlPlane::shared().await?;
        let stand = Stand::beside(Arc::clone(&plane), told, 1, true).await?;
        let cluster = one_node().await;
        let held = hold(&cluster, &stand.namespace, TTL).await;
        let token = held.token().get();
        stand.raise(token).await;
        stand.until_in_force(token).await;
        let (client, sent) = fenced(&plane, &held, carrier).await;
        let maps = Api::namespaced(client.clone(), &stand.namespace);
        Some(Self {
            stand,
            held,
            sent,
            client,
            maps,
            _cluster: cluster,
        })
    }

    /// Creates the object, and writes it in every way that goes with every carrier; each leaves the
    /// token on it.
    async fn write_in_many_ways(&self, name: &str) {
        let object = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        let created = self.maps.create(&PostParams::default(), &object).await;
        self.marked("create", created);
        let mut stamped = stamp(&self.maps, &self.held, [name, "absent"])
            .await
            .unwrap();
        assert_eq!(stamped.absent, ["absent"]);
        let mut read = stamped.objects.remove(0);
        read.data = Some([("apple".to_owned(), "3".to_owned())].into());
        let replaced = self.maps.replace(name, &PostParams::default(), &read).await;
        self.marked("replace", replaced);
        let data = json!({"data": {"apple": "4"}});
        for (way, patch) in [
            ("merge patch", Patch::Merge(data.clone())),
            ("strategic patch", Patch::Strategic(data)),
        ] {
            let params = PatchParams::default();
            let patched = self.maps.patch(name, &params, &patch).await;
            self.marked(way, patched);
        }
        let steps = json!([{"op": "replace", "path": "/data/apple", "value": "5"}]);
        let path = format!("/api/v1/namespaces/{}/configmaps", self.stand.namespace);
        let request = Request::patch(format!("{path}/{name}"));
        let request = request.header(CONTENT_TYPE, "application/json-patch+json");
        let request = request.body(steps.to_string().into_bytes()).unwrap();
        self.marked("JSON patch", self.client.request(request).await);
    }

    fn marked(&self, way: &str, done: Result<ConfigMap, Error>) {
        let object = done.unwrap_or_else(|error| panic!("{way}: {error}"));
        let annotations = object.metadata.annotations.unwrap_or_default();
        let token = self.held.token().to_string();
        assert_eq!(annotations.get(TOKEN), Some(&token), "{way}");
    }

    async fn apply(&self, name: &str) -> Result<ConfigMap, Error> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"pear": "1"},
        });
        let params = PatchParams::apply("controller");
        self.maps.patch(name, &params, &Patch::Apply(object)).await
    }

    /// A deletion carries nothing: the policies demand the version that is deleted, and that is no
    /// word about the lease.
    async fn delete_by_version(&self, name: &str) {
        let deleted = self.maps.delete(name, &DeleteParams::default()).await;
        let verdict = Verdict::of(&deleted.unwrap_err());
        let Verdict::Refused(words) = &verdict else {
            panic!("{verdict:?}");
        };
        assert!(words.contains(" names no version"), "{words}");
        assert!(!verdict.is_lost());
        assert_eq!(self.held.loss(), None);
        let read = self.maps.get(name).await.unwrap();
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                resource_version: read.metadata.resource_version,
                uid: None,
            }),
            ..DeleteParams::default()
        };
        self.maps.delete(name, &params).await.unwrap();
    }

    /// A client with a later grant has written: the API server refuses, the lease ends here, and
    /// nothing more leaves.
    async fn end_by_refusal(&self, name: &str) {
        let token = self.held.token();
        let later = self.stand.fence(token.get() + 1);
        let later = self.stand.writer(Some(&later));
        let done = later.write(Op::MergePatch, name).await;
        assert_eq!(done, Ok(crate::verdict::Verdict::Admitted));

        let verdict = self.patch(name).await;
        let Verdict::Stale(words) = &verdict else {
            panic!("{verdict:?}");
        };
        let offered = format!("stale fence {}#{token}", self.held.name());
        assert!(words.starts_with(&offered), "{words}");
        assert_eq!(self.held.loss(), Some(Loss::Reported));
        let sent = self.sent.load(Ordering::Relaxed);
        let lost = Unsent::Lost {
            name: self.held.name().clone(),
            token,
            loss: Loss::Reported,
        };
        assert_eq!(self.patch(name).await, Verdict::Unsent(lost));
        assert_eq!(self.sent.load(Ordering::Relaxed), sent, "it was sent");
    }

    async fn patch(&self, name: &str) -> Verdict {
        refused(&self.maps, name).await
    }
}

/// Why a patch is not done.
pub(crate) async fn refused(maps: &Api<ConfigMap>, name: &str) -> Verdict {
    let patch = Patch::Merge(json!({"data": {"apple": "9"}}));
    let done = maps.patch(name, &PatchParams::default(), &patch).await;
    Verdict::of(&done.unwrap_err())
}

#[tokio::test(flavor = "multi_thread")]
async fn by_the_field_manager_the_layer_fences_all_but_apply_and_deletions() {
    let (carrier, told) = (Carrier::FieldManager, policy::Carrier::FieldManager);
    let Some(scene) = Scene::start(carrier, told).await else {
        return;
    };
    scene.write_in_many_ways("prices").await;
    let applied = Verdict::of(&scene.apply("prices").await.unwrap_err());
    assert_eq!(applied, Verdict::Unsent(Unsent::Apply));

    let labels = json!({"app": "a"});
    let containers = json!([{"name": "a", "image": "a"}]);
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"}, "spec": spec,
    });
    scene.stand.put(deployment).await;
    let deployments: Api<Deployment> =
        Api::namespaced(scene.client.clone(), &scene.stand.namespace);
    let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
    let params = PatchParams::default();
    let scaled = deployments.patch_scale("shop", &params, &two).await;
    assert_eq!(scaled.unwrap().spec.unwrap().replicas, Some(2));

    scene.delete_by_version("prices").await;
    scene.write_in_many_ways("prices").await;
    scene.end_by_refusal("prices").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_the_sequence_the_layer_fences_all_that_carries_a_whole_object() {
    let (carrier, told) = (Carrier::Sequence, policy::Carrier::Sequence);
    let Some(scene) = Scene::start(carrier, told).await else {
        return;
    };
    scene.write_in_many_ways("prices").await;
    scene.marked("apply", scene.apply("pears").await);
    scene.marked("apply again", scene.apply("pears").await);
    scene.delete_by_version("pears").await;
    scene.end_by_refusal("prices").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_mutation_the_layer_writes_the_mark_itself() {
    let carrier = Carrier::SequenceWithMark;
    let Some(scene) = Scene::start(carrier, WITHOUT_MUTATION).await else {
        return;
    };
    scene.write_in_many_ways("prices").await;
    scene.marked("apply", scene.apply("pears").await);
    scene.marked("apply again", scene.apply("pears").await);
    scene.delete_by_version("pears").await;
    scene.end_by_refusal("prices").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_the_layer_writes_is_admitted_by_policies_that_write_it_too() {
    let (carrier, told) = (Carrier::SequenceWithMark, policy::Carrier::Sequence);
    let Some(scene) = Scene::start(carrier, told).await else {
        return;
    };
    scene.write_in_many_ways("prices").await;
    scene.marked("apply", scene.apply("pears").await);
    scene.end_by_refusal("prices").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_whose_window_has_passed_sends_nothing_more() {
    let Some(plane) = ControlPlane::shared().await else {
        return;
    };
    let (told, carrier) = (policy::Carrier::Impersonate, Carrier::FieldManager);
    let stand = Stand::without_policies(Arc::clone(&plane), told, 2).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "prices"}});
    stand.put(map).await;
    let mut cluster = one_node().await;
    let held = hold(&cluster, &stand.namespace, SHORT).await;
    let (client, sent) = fenced(&plane, &held, carrier).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, &stand.namespace);
    // It is unknown by now who holds it.
    cluster.signal(0, Signal::Stop);
    until("the window passes", || async { held.loss().is_some() }).await;

    let verdict = refused(&maps, "prices").await;
    let lost = Unsent::Lost {
        name: held.name().clone(),
        token: held.token(),
        loss: Loss::WindowPassed,
    };
    assert!(verdict.is_lost());
    assert_eq!(verdict, Verdict::Unsent(lost));
    assert_eq!(sent.load(Ordering::Relaxed), 0, "it was sent");
    // Reads go on, and show that nothing was written.
    assert_eq!(maps.get("prices").await.unwrap().data, None);
}
