//! A webhook of another party that fails for some objects: all others are shown as ever.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, Error};
use ringfence_kubernetes::User;
use serde_json::json;
use tokio::net::TcpListener;

use crate::site::{Site, within};

const AWAY: &str = "ringfence_kube_mirror_failures_total{kind=\"away\"}";
const CONNECTED: &str = "ringfence_kube_mirror_connected";

/// A webhook that is asked about Leases of one namespace whose names begin with `obstructed`.
struct Webhook {
    api: Api<ValidatingWebhookConfiguration>,
    name: String,
}

impl Webhook {
    async fn at(url: String, site: &Site) -> Self {
        let admin: Client = site.plane.client(User::Admin).await;
        let name = format!("obstructed.{}.example.com", site.namespace);
        let configuration = json!({
            "metadata": {"name": name},
            "webhooks": [{
                "name": name,
                "clientConfig": {"url": url},
                "rules": [{
                    "apiGroups": ["coordination.k8s.io"], "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE"], "resources": ["leases"],
                }],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": site.namespace}},
                "matchConditions": [{
                    "name": "obstructed",
                    "expression": "object.metadata.name.startsWith('obstructed')",
                }],
                "failurePolicy": "Fail",
                "timeoutSeconds": 30,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }],
        });
        let configuration = serde_json::from_value(configuration).unwrap();
        let api = Api::all(admin);
        api.create(&PostParams::default(), &configuration)
            .await
            .unwrap();
        Self { api, name }
    }

    async fn delete(self) {
        let params = DeleteParams::default();
        drop(self.api.delete(&self.name, &params).await.unwrap());
    }
}

/// Waits until a write of such an object fails, or is not answered.
async fn until_obstructed(site: &Site) -> Option<Error> {
    let try_it = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let lease = json!({"metadata": {"name": "obstructed-trial"}});
    let lease = serde_json::from_value(lease).unwrap();
    within("a webhook that is asked", async {
        loop {
            let tried = site.objects.leases.create(&try_it, &lease);
            match tokio::time::timeout(Duration::from_secs(3), tried).await {
                Ok(Ok(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
                Ok(Err(error)) => return Some(error),
                Err(_) => return None,
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_is_down_for_some_objects_holds_up_no_others() {
    let Some(site) = Site::start(1).await else {
        return;
    };
    let session = site.session("worker").await;
    let webhook = Webhook::at("https://127.0.0.1:1/".to_owned(), &site).await;
    let said = until_obstructed(&site).await.unwrap().to_string();
    assert!(said.contains("failed calling webhook"), "{said}");

    let obstructed = site.acquire(&session, "obstructed").await;
    site.until_figure("ringfence_kube_mirror_refused", |refused| refused == 1.0)
        .await;
    for n in 0..5 {
        let name = format!("free-{n}");
        let lease = site.acquire(&session, &name).await;
        let token = lease.token().get();
        site.objects.until_held(&name, "worker", token).await;
    }
    assert_eq!(site.figure(0, AWAY).await, 0.0);
    assert_eq!(site.figure(0, CONNECTED).await, 1.0);

    webhook.delete().await;
    let token = obstructed.token().get();
    let objects = &site.objects;
    objects.until_held("obstructed", "worker", token).await;
    site.until_figure("ringfence_kube_mirror_refused", |refused| refused == 0.0)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_is_silent_about_some_objects_holds_up_no_others() {
    let Some(site) = Site::start(1).await else {
        return;
    };
    let session = site.session("worker").await;
    // The kernel takes the connections, and no process ever reads them.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let webhook = Webhook::at(format!("https://{}/", silent.local_addr().unwrap()), &site).await;
    assert!(until_obstructed(&site).await.is_none());

    let obstructed = site.acquire(&session, "obstructed").await;
    let denied = "ringfence_kube_mirror_failures_total{kind=\"denied\"}";
    let others = async {
        loop {
            let lease = site.acquire(&session, "free").await;
            let token = lease.token().get();
            site.objects.until_held("free", "worker", token).await;
            lease.release().await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        () = others => {}
        () = site.until_figure(denied, |denied| denied >= 1.0) => {}
    }
    assert_eq!(site.figure(0, AWAY).await, 0.0);

    webhook.delete().await;
    let token = obstructed.token().get();
    let objects = &site.objects;
    objects.until_held("obstructed", "worker", token).await;
}
