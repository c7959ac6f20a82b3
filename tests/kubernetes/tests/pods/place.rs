//! A cluster that watches Pods, and Pods and nodes made by hand.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use ringfence_client::{CampaignError, Client, Elector, HeldLease, PodText, Session};
use ringfence_kubernetes::{ControlPlane, User};
use ringfence_tests::{Beside, Cluster, Options};
use serde_json::{Value, json};

/// Long enough that no healthy test reaches it.
pub(crate) const LONG: Duration = Duration::from_secs(90);

/// The lease of these tests.
pub(crate) const LEASE: &str = "shop/leader";

/// Above which number tokens start. A cluster whose tokens need not follow the wall clock serves a
/// second and a half sooner.
pub(crate) const TOKENS: u64 = 1 << 50;

/// Waits for `future`, and says what was waited for if it does not complete.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {LONG:?}: {what}"),
    }
}

/// See the module.
pub(crate) struct Place {
    pub(crate) cluster: Cluster,
    pub(crate) plane: Arc<ControlPlane>,
    pub(crate) pods: Api<Pod>,
    pub(crate) nodes: Api<Node>,
    namespace: String,
}

impl Place {
    /// So many nodes beside the Kubernetes that all tests share; `None` if there is none.
    pub(crate) async fn start(nodes: usize) -> Option<Self> {
        let plane = ControlPlane::shared().await?;
        Some(Self::beside(plane, nodes).await)
    }

    /// So many nodes beside this Kubernetes.
    pub(crate) async fn beside(plane: Arc<ControlPlane>, nodes: usize) -> Self {
        let namespace = plane.namespace("pods").await;
        let admin = plane.client(User::Admin).await;
        let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), &namespace);
        let account = json!({"metadata": {"name": "default"}});
        let account = serde_json::from_value(account).unwrap();
        accounts
            .create(&PostParams::default(), &account)
            .await
            .unwrap();
        allow(&admin, &namespace).await;
        let kubeconfig = plane.kubeconfig(User::Ringfence, &plane.address());
        let flags = [
            "--kube-pods",
            "--kubeconfig",
            &kubeconfig.display().to_string(),
        ];
        let options = Options {
            nodes,
            flags: flags.map(str::to_owned).to_vec(),
            beside: match nodes {
                1 => Beside::Anything,
                _ => Beside::Few,
            },
            probed: nodes > 1,
            token_floor: Some(TOKENS),
            ..Options::default()
        };
        Self {
            cluster: Cluster::start(options).await,
            pods: Api::namespaced(admin.clone(), &namespace),
            nodes: Api::all(admin),
            plane,
            namespace,
        }
    }

    /// A new Pod that runs, on this node or on none; what a session is bound to.
    pub(crate) async fn pod(&self, name: &str, node: Option<&str>) -> ringfence_client::Pod {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": node,
                "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "none"}],
            },
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let made = self
            .pods
            .create(&PostParams::default(), &pod)
            .await
            .unwrap();
        self.say(name, json!({"phase": "Running"})).await;
        let text = PodText {
            namespace: &self.namespace,
            name,
            uid: made.metadata.uid.as_deref().unwrap(),
            container: "main",
        };
        ringfence_client::Pod::parse(text).unwrap()
    }

    /// Sets the status of a Pod, as a kubelet does.
    pub(crate) async fn say(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        let params = PatchParams::default();
        let said = self.pods.patch_status(name, &params, &patch).await;
        said.unwrap();
    }

    /// Deletes a Pod and does not wait for its processes, as `kubectl delete --force` does.
    pub(crate) async fn delete_by_force(&self, name: &str) {
        let now = DeleteParams::default().grace_period(0);
        self.pods.delete(name, &now).await.unwrap();
    }

    /// A new node that is ready.
    pub(crate) async fn node(&self) -> String {
        let node = json!({"metadata": {"generateName": "node-"}});
        let node: Node = serde_json::from_value(node).unwrap();
        let made = self.nodes.create(&PostParams::default(), &node).await;
        let name = made.unwrap().metadata.name.unwrap();
        self.node_is_ready(&name, "True").await;
        name
    }

    /// Sets whether a node is ready: `True`, `False` or `Unknown`.
    pub(crate) async fn node_is_ready(&self, node: &str, ready: &str) {
        let conditions = json!([{"type": "Ready", "status": ready}]);
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        let params = PatchParams::default();
        let said = self.nodes.patch_status(node, &params, &patch).await;
        said.unwrap();
    }

    /// Marks a node as out of service, as an operator does.
    pub(crate) async fn out_of_service(&self, node: &str) {
        let taint = json!({
            "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute",
        });
        let patch = Patch::Merge(json!({"spec": {"taints": [taint]}}));
        let params = PatchParams::default();
        self.nodes.patch(node, &params, &patch).await.unwrap();
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.cluster.endpoints()).await.unwrap()
    }

    /// A candidate for life.
    pub(crate) async fn elector(&self, pod: &ringfence_client::Pod, identity: &str) -> Elector {
        let client = self.client().await;
        Elector::builder(&client)
            .identity(identity)
            .for_life(pod.clone())
            .build()
    }

    /// The lease, once this candidate leads.
    pub(crate) async fn lead(&self, pod: &ringfence_client::Pod, identity: &str) -> HeldLease {
        let elector = self.elector(pod, identity).await;
        within("a leader for life", elector.campaign(LEASE).lead())
            .await
            .unwrap()
    }

    /// A candidate that waits in the queue, and completes when it leads.
    pub(crate) async fn waiting(
        &self,
        pod: &ringfence_client::Pod,
        identity: &str,
    ) -> impl Future<Output = HeldLease> + use<> {
        let before = self.waiters().await;
        let elector = self.elector(pod, identity).await;
        let leading = tokio::spawn(async move {
            let held: Result<HeldLease, CampaignError> = elector.campaign(LEASE).lead().await;
            held.unwrap()
        });
        within("a place in the queue", async {
            while self.waiters().await <= before {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        async { within("the next leader", leading).await.unwrap() }
    }

    async fn waiters(&self) -> u32 {
        let lease = self.cluster.caller().get(LEASE).await.unwrap();
        lease.map_or(0, |lease| lease.waiters)
    }

    /// The token of who holds the lease.
    pub(crate) async fn holder(&self) -> Option<u64> {
        let lease = self.cluster.caller().get(LEASE).await.unwrap();
        Some(lease?.holder?.token)
    }

    /// Nothing was ended although there was time for it: the watcher has seen a change that came
    /// after what was done before this.
    pub(crate) async fn nothing_ended(&self, held: &HeldLease) {
        let name = format!("probe-{}", held.token().get() % 1_000_000);
        let pod = self.pod(&name, None).await;
        let session = self.session(&pod).await;
        self.say(&name, json!({"phase": "Failed"})).await;
        until_ended(&session).await;
        self.delete_by_force(&name).await;
        assert_eq!(
            self.holder().await,
            Some(held.token().get()),
            "it was ended"
        );
        assert!(held.is_valid());
    }

    /// Runs a command line as an operator does; what it printed.
    pub(crate) async fn ringfence(&self, args: &[&str]) -> String {
        let mut command = tokio::process::Command::new(ringfence_tests::server());
        command.args(args).arg("--endpoints");
        let run = command.arg(self.cluster.endpoints().join(",")).output();
        let ran = run.await.unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "ringfence {args:?}: {said}");
        String::from_utf8(ran.stdout).unwrap()
    }

    /// A session for a Pod.
    pub(crate) async fn session(&self, pod: &ringfence_client::Pod) -> Session {
        self.client()
            .await
            .open_session_for(pod, "probe")
            .await
            .unwrap()
    }
}

/// Waits until the cluster says that a session has ended: asking it is what tells.
pub(crate) async fn until_ended(session: &Session) {
    within("the session's end", async {
        while session.is_live() {
            session.acquire("shop/probe").send().await.ok();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// What the watcher needs, and no other right.
async fn allow(admin: &kube::Client, namespace: &str) {
    let name = format!("ringfence-{namespace}");
    let role = json!({
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}],
    });
    let role: ClusterRole = serde_json::from_value(role).unwrap();
    let roles: Api<ClusterRole> = Api::all(admin.clone());
    roles.create(&PostParams::default(), &role).await.unwrap();
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "name": User::Ringfence.name(), "apiGroup": "rbac.authorization.k8s.io"}],
    });
    let binding: ClusterRoleBinding = serde_json::from_value(binding).unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(admin.clone());
    bindings
        .create(&PostParams::default(), &binding)
        .await
        .unwrap();
}
