//! A cluster of ours beside a Kubernetes: what most tests begin with.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::api::{Api, ObjectMeta, PostParams};
use ringfence_client::{Client, HeldLease, Session, SessionOptions};
use ringfence_kube::FLOORS;
use ringfence_kubernetes::{ControlPlane, User};
use ringfence_tests::{Beside, Cluster, Options};

use crate::objects::Objects;

/// Long enough that no healthy test reaches it.
pub(crate) const LONG: Duration = Duration::from_secs(90);

/// Above which number tokens start. A cluster whose tokens need not follow the wall clock serves a
/// second and a half sooner.
const TOKENS: u64 = 1 << 50;

/// Waits for `future`, and says what was waited for if it does not complete.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {LONG:?}: {what}"),
    }
}

/// Nodes that mirror to a namespace of their own.
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) plane: Arc<ControlPlane>,
    pub(crate) namespace: String,
    pub(crate) objects: Objects,
}

impl Site {
    /// Starts so many nodes beside the Kubernetes that all tests share; `None` if there is none.
    pub(crate) async fn start(nodes: usize) -> Option<Self> {
        let plane = ControlPlane::shared().await?;
        Some(Self::beside(plane, nodes).await)
    }

    /// Starts so many nodes beside this Kubernetes.
    pub(crate) async fn beside(plane: Arc<ControlPlane>, nodes: usize) -> Self {
        Self::with(plane, nodes, &[]).await
    }

    /// The same, with more flags for the nodes.
    pub(crate) async fn with(plane: Arc<ControlPlane>, nodes: usize, more: &[&str]) -> Self {
        let namespace = plane.namespace("mirror").await;
        let kubeconfig = may_mirror(&plane, &namespace).await;
        let mut flags = vec![
            "--kube-mirror".to_owned(),
            "--kubeconfig".to_owned(),
            kubeconfig.display().to_string(),
            "--kube-namespace".to_owned(),
            namespace.clone(),
        ];
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        let cluster = Cluster::start(Options {
            nodes,
            flags,
            beside: match nodes {
                1 => Beside::Anything,
                _ => Beside::Few,
            },
            token_floor: Some(TOKENS),
            ..Options::default()
        });
        let admin = plane.client(User::Admin).await;
        Self {
            cluster: cluster.await,
            objects: Objects::of(admin, &namespace),
            plane,
            namespace,
        }
    }

    /// The name of the lease that is the object of this name.
    pub(crate) fn lease(&self, object: &str) -> String {
        format!("k8s/{}/{object}", self.namespace)
    }

    /// A session of a holder.
    pub(crate) async fn session(&self, identity: &str) -> Session {
        let client = Client::connect(self.cluster.endpoints()).await.unwrap();
        let options = SessionOptions {
            identity: identity.to_owned(),
            ttl: Duration::from_secs(15),
        };
        client.open_session(options).await.unwrap()
    }

    /// The lease that is the object of this name, granted.
    pub(crate) async fn acquire(&self, session: &Session, object: &str) -> HeldLease {
        let acquire = session.acquire(self.lease(object)).wait(LONG).send();
        within("a grant", acquire).await.unwrap()
    }

    /// What a node shows of itself.
    pub(crate) async fn figures(&self, at: usize) -> String {
        let shown = ringfence_kubernetes::figures(&self.cluster.http(at)).await;
        shown.expect("a node answers")
    }

    /// A figure of a node's; 0 if it is not shown.
    pub(crate) async fn figure(&self, at: usize, name: &str) -> f64 {
        let address = self.cluster.http(at);
        let shown = ringfence_kubernetes::figure(&address, name).await;
        shown.unwrap_or(0.0)
    }

    /// Waits until a figure of the only node's is what it should be.
    pub(crate) async fn until_figure(&self, name: &str, is: impl Fn(f64) -> bool) {
        within(name, async {
            while !is(self.figure(0, name).await) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }
}

/// The rights that a mirror of one namespace needs, and no others; a kubeconfig of who has them.
async fn may_mirror(plane: &ControlPlane, namespace: &str) -> PathBuf {
    let admin = plane.client(User::Admin).await;
    let rule = |group: &str, resource: &str, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    };
    let metadata = ObjectMeta {
        name: Some("ringfence-mirror".to_owned()),
        ..ObjectMeta::default()
    };
    let role = Role {
        metadata: metadata.clone(),
        rules: Some(vec![
            rule(
                "coordination.k8s.io",
                "leases",
                &["get", "list", "watch", "create", "patch"],
            ),
            rule("", "events", &["create"]),
        ]),
    };
    let binding = RoleBinding {
        metadata,
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "Role".to_owned(),
            name: "ringfence-mirror".to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: "User".to_owned(),
            name: User::Ringfence.name().to_owned(),
            ..Subject::default()
        }]),
    };
    // In the namespace of floors other tests have done the same.
    for namespace in [namespace, FLOORS] {
        let roles: Api<Role> = Api::namespaced(admin.clone(), namespace);
        made(roles.create(&PostParams::default(), &role).await);
        let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), namespace);
        made(bindings.create(&PostParams::default(), &binding).await);
    }
    plane.kubeconfig(User::Ringfence, &plane.address())
}

fn made<T: std::fmt::Debug>(answer: Result<T, kube::Error>) {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        answer => drop(answer.unwrap()),
    }
}
