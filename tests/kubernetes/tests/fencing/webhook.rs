//! The webhook: a real API server asks a real cluster about each write.

use std::path::PathBuf;
use std::time::Duration;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use ringfence_client::{Client, HeldLease, Session, SessionOptions};
use ringfence_kube::policy::Carrier;
use ringfence_testkit::ports::Port;
use ringfence_tests::{Cluster, Options, Signal};
use serde_json::json;
use tempfile::TempDir;

use crate::process::{Running, run, text};
use crate::stand::{CURRENT, LONG, Stand, until, until_judged, within};
use crate::verdict::Verdict;
use crate::writer::{Op, Writer};

/// Certificates of one authority, in files that may change.
struct Certificates {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Certificates {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = authority.self_signed(&key).unwrap().pem();
        std::fs::write(folder.path().join("ca.pem"), pem).unwrap();
        Self {
            folder,
            issuer: Issuer::new(authority, key),
        }
    }

    /// A new certificate for this name, in the place of the one before.
    fn issue(&self, name: &str) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = certificate.signed_by(&key, &self.issuer).unwrap();
        for (file, text) in [
            ("tls.crt", certificate.pem()),
            ("tls.key", key.serialize_pem()),
        ] {
            let half = self.folder.path().join(format!("{file}.half"));
            std::fs::write(&half, text).unwrap();
            std::fs::rename(half, self.file(file)).unwrap();
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// A cluster, the webhook before it, and a namespace without any policy.
pub(crate) struct Site {
    cluster: Cluster,
    webhook: Running,
    certificates: Certificates,
    pub(crate) stand: Stand,
    configuration: String,
    listen: String,
}

impl Drop for Site {
    fn drop(&mut self) {
        // It is not of one namespace, and would stay in the way of all that have this account.
        let arguments = [
            "delete",
            "validatingwebhookconfiguration",
            &self.configuration,
        ];
        self.stand.plane.kubectl(&arguments, "");
    }
}

impl Site {
    pub(crate) async fn start(failure_policy: &str) -> Option<Self> {
        ringfence_kubernetes::kubectl()?;
        let plane = ringfence_kubernetes::ControlPlane::shared().await?;
        let stand = Stand::without_policies(plane, Carrier::Impersonate, 2).await;
        let cluster = Cluster::start(Options {
            // So its tokens need not follow the wall clock, and it serves sooner.
            token_floor: Some(1 << 50),
            ..Options::default()
        });
        let cluster = cluster.await;
        let certificates = Certificates::new();
        certificates.issue("127.0.0.1");
        let port = Port::any();
        let listen = port.address().to_string();
        let endpoints = cluster.endpoints().join(",");
        let file = |name: &str| text(&certificates.file(name)).to_owned();
        let (certificate, key, authority) = (file("tls.crt"), file("tls.key"), file("ca.pem"));
        let serve = [
            ["webhook", "serve"],
            ["--listen", &listen],
            ["--cert-file", &certificate],
            ["--key-file", &key],
            ["--carrier", "impersonate"],
            ["--endpoints", &endpoints],
        ];
        let webhook = Running::start(serve.as_flattened()).await;
        let url = format!("https://{listen}");
        let manifest = [
            ["webhook", "manifest"],
            ["--resource", "configmaps"],
            ["--resource", "deployments.apps"],
            ["--service-account", "default/default"],
            ["--url", &url],
            ["--ca-file", &authority],
            ["--failure-policy", failure_policy],
        ];
        let printed = run(manifest.as_flattened()).await;
        assert!(printed.status.success(), "{printed:?}");
        // Of this namespace alone, for the sake of the other tests.
        let configuration = format!("fence.{}.ringfence.io", stand.namespace);
        let narrow = format!(
            "    namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {}}}}}\n",
            stand.namespace
        );
        let manifest = String::from_utf8(printed.stdout).unwrap();
        let manifest = manifest.replacen(
            "metadata:\n  name: fence.ringfence.io",
            &format!("metadata:\n  name: {configuration}"),
            1,
        );
        stand.let_impersonate().await;
        stand.kubectl("apply", &(manifest + &narrow));
        let site = Self {
            cluster,
            webhook,
            certificates,
            stand,
            configuration,
            listen,
        };
        until_judged("the API server asks", Verdict::Malformed, || {
            site.create(Some("nothing"))
        })
        .await;
        Some(site)
    }

    /// While the cluster does not answer: so many large questions that not all find a place. Those that
    /// find none are refused at once, and do not wait for the others.
    async fn crowd(&self, fence: &str) {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": "UPDATE", "object": {"data": "a".repeat(7 << 20)},
                "userInfo": {"extra": {"ringfence.io/fence": [fence]}},
            },
        });
        let review = review.to_string().into_bytes();
        let asked = (0..8).map(async |_| {
            let ask = http::Request::post("/judge").body(review.clone()).unwrap();
            let answer = self.caller().await.request_text(ask).await;
            let Err(kube::Error::Api(status)) = answer else {
                panic!("{answer:?}");
            };
            status.message
        });
        let told = futures_util::future::join_all(asked).await;
        let crowded = told.iter().filter(|words| words.contains("no place"));
        assert!((1..8).contains(&crowded.count()), "{told:?}");
        let crowded = "ringfence_kube_webhook_reviews_total{outcome=\"crowded\"}";
        let crowded = self.webhook.figure(crowded).await;
        assert!(crowded.is_some_and(|crowded| crowded >= 1.0), "{crowded:?}");
    }

    /// Whether a new connection to the webhook comes about.
    async fn greets(&self) -> bool {
        let probe = http::Request::get("/livez").body(Vec::new()).unwrap();
        self.caller().await.request_text(probe).await.is_ok()
    }

    /// Who speaks to the webhook as the API server does, by a connection of its own.
    async fn caller(&self) -> kube::Client {
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "w",
            "contexts": [{"name": "w", "context": {"cluster": "w", "user": "w"}}],
            "clusters": [{"name": "w", "cluster": {
                "server": format!("https://{}", self.listen),
                "certificate-authority": self.certificates.file("ca.pem"),
            }}],
            "users": [{"name": "w", "user": {}}],
        });
        let kubeconfig = Kubeconfig::from_yaml(&kubeconfig.to_string()).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let mut config = config.unwrap();
        config.default_retry = false;
        kube::Client::try_from(config).unwrap()
    }

    pub(crate) async fn session(&self, identity: &str) -> Session {
        let client = Client::connect(self.cluster.endpoints()).await.unwrap();
        let options = SessionOptions {
            identity: identity.to_owned(),
            ttl: Duration::from_secs(15),
        };
        client.open_session(options).await.unwrap()
    }

    pub(crate) async fn acquire(&self, session: &Session, lease: &str) -> HeldLease {
        let acquire = session.acquire(lease).wait(LONG).send();
        within("a grant", acquire).await.unwrap()
    }

    fn writer(&self, fence: Option<&str>) -> Writer {
        self.stand.writer(fence)
    }

    /// What would become of the creation of an object.
    async fn create(&self, fence: Option<&str>) -> Result<Verdict, String> {
        self.writer(fence).dry().write(Op::Create, "probe").await
    }

    /// An object that names its lease.
    pub(crate) async fn object(&self, name: &str, lease: &str) {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"written": "0"},
            "metadata": {"name": name, "annotations": {"ringfence.io/lease": lease}},
        });
        self.stand.put(object).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_rule_judges_writes_under_many_leases_by_what_the_cluster_says() {
    let Some(mut site) = Site::start("fail").await else {
        return;
    };
    let (alice, bob) = (site.session("alice").await, site.session("bob").await);
    let one = site.acquire(&alice, "shards/1").await;
    let two = site.acquire(&bob, "shards/2").await;
    site.object("one", "shards/1").await;
    site.object("two", "shards/2").await;
    let patch = |fence: String, name: &'static str| {
        let writer = site.writer(Some(&fence));
        async move { writer.write(Op::MergePatch, name).await }
    };
    assert_eq!(
        patch(one.fence().to_string(), "one").await,
        Ok(Verdict::Admitted)
    );
    assert_eq!(
        patch(two.fence().to_string(), "two").await,
        Ok(Verdict::Admitted)
    );
    assert_eq!(
        patch(one.fence().to_string(), "two").await,
        Ok(Verdict::Foreign)
    );
    assert_eq!(
        patch(two.fence().to_string(), "one").await,
        Ok(Verdict::Foreign)
    );
    assert_eq!(site.create(None).await, Ok(Verdict::Missing));
    // It names no lease: a fence of any.
    assert_eq!(
        site.create(Some(&two.fence().to_string())).await,
        Ok(Verdict::Admitted)
    );
    let forged = format!("shards/1#{}", one.token().get() + (1 << 40));
    assert_eq!(patch(forged, "one").await, Ok(Verdict::Forged));

    // Its grant ends: at once, and with no mirror in between.
    let fence = one.fence().to_string();
    one.release().await.unwrap();
    assert_eq!(patch(fence.clone(), "one").await, Ok(Verdict::Stale));
    let next = site.acquire(&bob, "shards/1").await;
    assert_eq!(patch(fence.clone(), "one").await, Ok(Verdict::Stale));
    assert_eq!(
        patch(next.fence().to_string(), "one").await,
        Ok(Verdict::Admitted)
    );
    let deleting = site.writer(Some(&fence));
    assert_eq!(deleting.write(Op::Delete, "one").await, Ok(Verdict::Stale));

    // Leases are never asked about, and no other client waits.
    site.stand.raise(CURRENT).await;
    let admin = site.stand.admin_writer().dry();
    assert_eq!(
        admin.write(Op::Create, "probe").await,
        Ok(Verdict::Admitted)
    );

    // New certificates, while it runs: one that no client believes, and one that is good again.
    assert!(site.greets().await);
    site.certificates.issue("elsewhere.test");
    until("the new certificate is shown", || async {
        !site.greets().await
    })
    .await;
    site.certificates.issue("127.0.0.1");
    until("the next one is shown", || site.greets()).await;
    assert_eq!(
        patch(next.fence().to_string(), "one").await,
        Ok(Verdict::Admitted)
    );

    // Without an answer the manifest's failure policy refuses.
    for node in 0..site.cluster.len() {
        site.cluster.signal(node, Signal::Kill);
    }
    let refused = site
        .writer(Some(&next.fence().to_string()))
        .write(Op::MergePatch, "one")
        .await;
    assert!(
        refused
            .as_ref()
            .is_err_and(|words| words.starts_with("500: ")),
        "{refused:?}"
    );
    let unanswered = "ringfence_kube_webhook_reviews_total{outcome=\"unanswered\"}";
    site.webhook
        .until_figure(unanswered, |count| count > 0.0)
        .await;
    for node in 0..site.cluster.len() {
        site.cluster.spawn(node);
    }
    let forged = format!("shards/1#{}", 1_u64 << 62);
    until_judged("the cluster answers again", Verdict::Forged, || {
        site.create(Some(&forged))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_cluster_a_failure_policy_may_admit() {
    let Some(mut site) = Site::start("ignore").await else {
        return;
    };
    let session = site.session("alice").await;
    let lease = site.acquire(&session, "shards/1").await;
    let fence = lease.fence().to_string();
    lease.release().await.unwrap();
    assert_eq!(site.create(Some(&fence)).await, Ok(Verdict::Stale));
    for node in 0..site.cluster.len() {
        site.cluster.signal(node, Signal::Stop);
    }
    assert_eq!(site.create(Some(&fence)).await, Ok(Verdict::Admitted));
    site.crowd(&fence).await;
    for node in 0..site.cluster.len() {
        site.cluster.signal(node, Signal::Continue);
    }
    until_judged("the cluster answers again", Verdict::Stale, || {
        site.create(Some(&fence))
    })
    .await;
}
