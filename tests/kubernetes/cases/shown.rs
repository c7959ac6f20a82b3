//! What `kubectl` shows of a lease.

use std::process::Command;
use std::time::Duration;

use ringfence_kube::{MANAGED_BY, MANAGER};
use ringfence_kubernetes::{User, kubectl};

use crate::objects::token_of;
use crate::site::Site;

/// What kubectl prints, if there is one.
fn kubectl_says(site: &Site, arguments: &[&str]) -> Option<String> {
    let plane = &site.plane;
    let kubeconfig = plane.kubeconfig(User::Admin, &plane.address());
    let output = Command::new(kubectl()?)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["--namespace", &site.namespace])
        .args(arguments)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {told}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_5_kubectl_shows_holder_age_and_token_as_people_know_them() {
    let Some(site) = Site::start(1).await else {
        return;
    };
    let session = site.session("worker-1").await;
    let lease = site.acquire(&session, "leader").await;
    let token = lease.token().get();
    let held = site.objects.until_held("leader", "worker-1", token).await;
    assert_eq!(held.content.seconds, Some(15));
    assert_eq!(held.content.transitions, 0);
    let granted = held.content.since.unwrap().0;
    assert_eq!(granted, lease.granted_unix_ms());

    if let Some(table) = kubectl_says(&site, &["get", "lease", "leader"]) {
        let lines: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], ["NAME", "HOLDER", "AGE"]);
        assert_eq!(lines[1][..2], ["leader", "worker-1"]);
        assert!(lines[1][2].ends_with('s'), "{table}");
        let token_path = r"jsonpath={.metadata.annotations.ringfence\.io/token}";
        let shown = kubectl_says(&site, &["get", "lease", "leader", "-o", token_path]);
        assert_eq!(shown, Some(token.to_string()));
        let selector = format!("{MANAGED_BY}={MANAGER}");
        let listed = kubectl_says(&site, &["get", "lease", "-l", &selector, "-o", "name"]);
        assert_eq!(listed.unwrap().trim(), "lease.coordination.k8s.io/leader");
    }

    lease.release().await.unwrap();
    let free = |found: &ringfence_kube::Observed| found.content.holder.is_none();
    let released = site.objects.until("leader", free).await;
    assert_eq!(token_of(&released), Some(token), "it is the floor");

    let other = site.session("worker-2").await;
    let lease = site.acquire(&other, "leader").await;
    let next = lease.token().get();
    assert!(next > token);
    let held = site.objects.until_held("leader", "worker-2", next).await;
    assert_eq!(held.content.transitions, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_is_kept_alive_is_seen_to_be() {
    let Some(site) = Site::start(1).await else {
        return;
    };
    let client = ringfence_client::Client::connect(site.cluster.endpoints());
    let client = client.await.unwrap();
    let options = ringfence_client::SessionOptions {
        identity: "worker".to_owned(),
        ttl: Duration::from_secs(2),
    };
    let session = client.open_session(options).await.unwrap();
    let lease = site.acquire(&session, "beats").await;
    let token = lease.token().get();
    let first = site.objects.until_held("beats", "worker", token).await;

    let later = |found: &ringfence_kube::Observed| {
        found.content.renewed.unwrap().0 >= first.content.renewed.unwrap().0 + 4_000
    };
    let last = site.objects.until("beats", later).await;
    assert_eq!(last.content.since, first.content.since);
    assert_eq!(token_of(&last), Some(token));
    let renewals = site
        .figure(0, "ringfence_kube_mirror_writes_total{kind=\"renewed\"}")
        .await;
    assert!(renewals >= 2.0, "{renewals} renewals");
}
