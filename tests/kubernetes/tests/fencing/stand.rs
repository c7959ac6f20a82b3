//! A namespace with a mirrored Lease and the policies that stand on it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::api::{ApiResource, GroupVersionKind};
use ringfence_core::FencingToken;
use ringfence_kube::policy::{Carrier, Fencing, FencingSpec, LOWER};
use ringfence_kube::{FLOORS, MANAGED_BY, MANAGER, TOKEN};
use ringfence_kubernetes::{ControlPlane, User, kubectl};
use serde_json::{Value, json};

use crate::verdict::Verdict;
use crate::writer::{Op, Writer};

/// Long enough that no healthy test reaches it.
pub(crate) const LONG: Duration = Duration::from_secs(90);

/// The token of the grant in force: beyond what a floating-point number can tell apart.
pub(crate) const CURRENT: u64 = (1 << 53) + 1;

/// How writes carry their fence, and who writes the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) carrier: Carrier,
    /// Policies write it; otherwise the client does.
    pub(crate) mutation: bool,
}

impl From<Carrier> for Form {
    fn from(carrier: Carrier) -> Self {
        let mutation = true;
        Self { carrier, mutation }
    }
}

/// What Kubernetes below 1.36 takes.
pub(crate) const WITHOUT_MUTATION: Form = Form {
    carrier: Carrier::Sequence,
    mutation: false,
};

/// Waits for `future`, and says what was waited for if it does not complete.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {LONG:?}: {what}"),
    }
}

/// Waits until a condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    within(what, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    })
    .await;
}

/// Shows the same for every carrier, all of them at once: most of it is waiting for the API server.
pub(crate) async fn with_every_carrier<F>(shown: impl Fn(Carrier) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let all = Carrier::ALL.map(|carrier| tokio::spawn(shown(carrier)));
    for one in all {
        one.await.unwrap();
    }
}

/// Waits until a write is judged so; shows how it was judged last if it never is.
pub(crate) async fn until_judged<F>(what: &str, so: Verdict, judged: impl Fn() -> F)
where
    F: Future<Output = Result<Verdict, String>>,
{
    let last = std::sync::Mutex::new(None);
    let waiting = async {
        loop {
            let verdict = judged().await;
            if verdict == Ok(so) {
                return;
            }
            *last.lock().unwrap() = Some(verdict);
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    };
    if tokio::time::timeout(LONG, waiting).await.is_err() {
        let last = last.into_inner().unwrap();
        panic!("not within {LONG:?}: {what}; it was {last:?}, expected {so:?}");
    }
}

/// See the module.
pub(crate) struct Stand {
    pub(crate) plane: Arc<ControlPlane>,
    pub(crate) admin: Client,
    /// The fenced account.
    pub(crate) account: Client,
    pub(crate) namespace: String,
    pub(crate) fencing: Fencing,
    pub(crate) carrier: Carrier,
}

/// What is guarded in these tests.
pub(crate) const GUARDED: [&str; 3] = ["configmaps", "pods", "deployments.apps"];

/// What is wished for here, unless it is changed.
pub(crate) fn wish(namespace: &str, form: impl Into<Form>) -> FencingSpec {
    let Form { carrier, mutation } = form.into();
    FencingSpec {
        resources: GUARDED.map(|name| name.parse().unwrap()).to_vec(),
        account: Some("default/default".parse().unwrap()),
        mutation,
        ..FencingSpec::new(format!("{namespace}/leader"), carrier)
    }
}

impl Stand {
    /// Beside the API server that all tests share; `None` if there is none, or no kubectl.
    pub(crate) async fn start(form: impl Into<Form>, floor: u64) -> Option<Self> {
        let plane = ControlPlane::shared().await?;
        let stand = Self::beside(plane, form, floor, true).await?;
        stand.until_in_force(floor).await;
        Some(stand)
    }

    /// The same beside another one, and without waiting for anything; `None` if there is no kubectl.
    pub(crate) async fn beside(
        plane: Arc<ControlPlane>,
        form: impl Into<Form>,
        floor: u64,
        keeper: bool,
    ) -> Option<Self> {
        kubectl()?;
        let form = form.into();
        let mut stand = Self::without_policies(plane, form, floor).await;
        let wish = FencingSpec {
            keeper,
            ..wish(&stand.namespace, form)
        };
        stand.fencing = Fencing::new(wish).unwrap();
        stand.kubectl("apply", &stand.fencing.manifests());
        Some(stand)
    }

    /// A namespace with its Lease and roles alone.
    pub(crate) async fn without_policies(
        plane: Arc<ControlPlane>,
        form: impl Into<Form>,
        floor: u64,
    ) -> Self {
        let form = form.into();
        let namespace = plane.namespace("fencing").await;
        let stand = Self {
            admin: plane.client(User::Admin).await,
            account: plane.client(User::Default).await,
            fencing: Fencing::new(wish(&namespace, form)).unwrap(),
            plane,
            namespace,
            carrier: form.carrier,
        };
        stand.allow().await;
        stand.raise(floor).await;
        stand
    }

    /// The roles that the account has without us.
    pub(crate) async fn allow(&self) {
        let rule = |groups: &[&str], resources: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": ["*"]});
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "writer", "namespace": self.namespace},
            "rules": [
                rule(&[""], &["configmaps", "pods", "pods/status", "pods/eviction", "pods/resize",
                              "pods/ephemeralcontainers", "pods/exec", "pods/proxy", "pods/binding",
                              "bindings"]),
                rule(&["apps"], &["deployments", "deployments/scale", "deployments/status"]),
            ],
        });
        self.put(role).await;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "writer", "namespace": self.namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
            "subjects": [{"kind": "User", "name": User::Default.name()}],
        });
        self.put(binding).await;
    }

    /// Lets the account impersonate itself with a fence, as the manifests for that carrier do.
    pub(crate) async fn let_impersonate(&self) {
        let manifests = self.fencing.manifests();
        let rights: Vec<&str> = manifests
            .split("---\n")
            .filter(|yaml| yaml.contains("name: fence.leader."))
            .collect();
        self.kubectl("apply", &rights.join("---\n"));
    }

    /// Creates an object, as an admin.
    pub(crate) async fn put(&self, object: Value) -> DynamicObject {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let api = self.api(&object);
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    fn api(&self, object: &DynamicObject) -> Api<DynamicObject> {
        let types = object.types.clone().unwrap();
        let (group, version) = types
            .api_version
            .split_once('/')
            .unwrap_or(("", &types.api_version));
        let kind = GroupVersionKind::gvk(group, version, &types.kind);
        Api::namespaced_with(
            self.admin.clone(),
            &self.namespace,
            &ApiResource::from_gvk(&kind),
        )
    }

    /// Deletes an object, as people do.
    pub(crate) fn remove(&self, kind: &str, name: &str) {
        self.plane.kubectl(&["delete", kind, name], "");
    }

    /// Deletes the floor.
    pub(crate) async fn take_floor_away(&self) {
        let leases: Api<Lease> = Api::namespaced(self.admin.clone(), FLOORS);
        let floor = &self.fencing.floor_object_name().name;
        let gone = leases.delete(floor, &DeleteParams::default()).await;
        gone.unwrap();
    }

    /// Takes the mirror's label off the floor.
    pub(crate) async fn unlabel_floor(&self) {
        let leases: Api<Lease> = Api::namespaced(self.admin.clone(), FLOORS);
        let floor = &self.fencing.floor_object_name().name;
        let patch = Patch::Merge(json!({"metadata": {"labels": {MANAGED_BY: null}}}));
        let patched = leases.patch(floor, &PatchParams::default(), &patch).await;
        drop(patched.unwrap());
    }

    /// Deletes an object of the namespace, as people do.
    pub(crate) fn remove_in_namespace(&self, kind: &str, name: &str) {
        let arguments = ["delete", kind, name, "--namespace", &self.namespace];
        self.plane.kubectl(&arguments, "");
    }

    /// A writer that is not fenced.
    pub(crate) fn admin_writer(&self) -> Writer {
        Writer::new(self.admin.clone(), &self.namespace, self.carrier, None)
    }

    /// Puts a token on the mirrored Lease and on its floor, as the mirror does.
    pub(crate) async fn raise(&self, token: u64) {
        raise(&self.admin, &self.namespace, token).await;
    }

    /// Hands manifests to kubectl, as people do. It does not hold them against the schemas of all that
    /// there is, which would take most of a test's time; [`strictly`](Self::strictly) does.
    pub(crate) fn kubectl(&self, command: &str, manifests: &str) {
        let mut arguments = vec![command, "--filename", "-"];
        if command == "apply" {
            arguments.push("--validate=ignore");
        }
        self.plane.kubectl(&arguments, manifests);
    }

    /// Applies the manifests as people do; gives what kubectl says.
    pub(crate) fn strictly(&self) -> String {
        let arguments = ["apply", "--validate=strict", "--filename", "-"];
        self.plane.kubectl(&arguments, &self.fencing.manifests())
    }

    /// A fence of this lease.
    pub(crate) fn fence(&self, token: u64) -> String {
        self.fencing.fence(FencingToken::new(token).unwrap())
    }

    /// Who writes with this text as its fence, or without any.
    pub(crate) fn writer(&self, fence: Option<&str>) -> Writer {
        let fence = fence.map(str::to_owned);
        let writer = Writer::new(self.account.clone(), &self.namespace, self.carrier, fence);
        writer.marks(!self.fencing.mutates())
    }

    /// What would become of the creation of an object.
    pub(crate) async fn would_create(&self, token: u64) -> Result<Verdict, String> {
        let fence = self.fence(token);
        let writer = self.writer(Some(&fence)).dry();
        writer.write(Op::Create, "probe").await
    }

    /// Waits until all policies are in force: the API server takes up each, in any order.
    /// A floor of 1 refuses nothing.
    pub(crate) async fn until_in_force(&self, floor: u64) {
        let fence = self.fence(CURRENT.max(floor));
        let mark = self.fencing.canary_mark();
        until_judged("the mark is in force", Verdict::Stale, || async {
            let writer = self.writer(Some(&fence)).dry();
            writer.write(Op::MergePatch, &mark).await
        })
        .await;
        let newest = CURRENT.max(floor);
        until_judged("the stamp is in force", Verdict::Admitted, || {
            self.would_create(newest)
        })
        .await;
        if floor > 1 {
            until_judged("the floor is in force", Verdict::Stale, || {
                self.would_create(floor - 1)
            })
            .await;
        }
        let kept = Some(FencingToken::MAX.to_string());
        until("marks are kept", || async {
            let written = self.would_annotate(&mark, json!({TOKEN: "1"})).await;
            match self.fencing.mutates() {
                true => written.is_ok_and(|mark| mark == kept),
                false => written.is_err(),
            }
        })
        .await;
        until("lowering is judged", || async {
            let another = json!({TOKEN: "1", LOWER: "2"});
            self.would_annotate(&mark, another).await.is_err()
        })
        .await;
    }

    /// The mark that a ConfigMap would have if an admin wrote these annotations.
    async fn would_annotate(
        &self,
        name: &str,
        annotations: Value,
    ) -> Result<Option<String>, kube::Error> {
        let maps: Api<ConfigMap> = Api::namespaced(self.admin.clone(), &self.namespace);
        let params = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let written = maps.patch(name, &params, &patch).await?;
        let annotations = written.metadata.annotations.unwrap_or_default();
        Ok(annotations.get(TOKEN).cloned())
    }
}

/// Puts a token on the Lease `leader` of a namespace, and on its floor.
pub(crate) async fn raise(client: &Client, namespace: &str, token: u64) {
    let floor = format!("floor.{namespace}.leader");
    for (namespace, name) in [(FLOORS, floor.as_str()), (namespace, "leader")] {
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "labels": {MANAGED_BY: MANAGER},
                         "annotations": {TOKEN: token.to_string()}},
        });
        let params = PatchParams::apply("mirror").force();
        let raised = leases.patch(name, &params, &Patch::Apply(&lease)).await;
        raised.unwrap();
    }
}
