//! A client that writes: every kind of write, with any text as the fence, as the carrier carries
//! it.

use std::sync::atomic::{AtomicU64, Ordering};

use http::{Method, Request};
use kube::{Client, Error};
use ringfence_kube::TOKEN;
use ringfence_kube::policy::{Carrier, FENCE_EXTRA, STAMP};
use ringfence_kubernetes::User;
use serde_json::{Value, json};

use crate::verdict::Verdict;

/// A kind of write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Create,
    Update,
    MergePatch,
    JsonPatch,
    StrategicPatch,
    /// Server-side apply by the manager that applied the object before.
    Apply,
    /// The same by another manager.
    ApplyOther,
    /// Of a Deployment.
    Status,
    /// Of a Deployment.
    Scale,
    /// Naming no version.
    Delete,
    /// Naming the version that the writer itself had written.
    DeleteOwn,
    /// Naming the version that the object has.
    DeleteRead,
    DeleteCollection,
    /// Of a Pod.
    Evict,
    /// Of a Pod: the subresource carries the Pod, and keeps no annotation of what it carries.
    Resize,
    /// The same.
    Ephemeral,
    /// A command in a Pod that no node has: what is admitted fails behind it.
    Exec,
    /// Of a Pod's annotations; not a row of the tables.
    PatchPod,
    /// Of an object that was there, with the mark, and was deleted.
    CreateAgain,
}

impl Op {
    pub(crate) const ALL: [Self; 18] = [
        Self::Create,
        Self::Update,
        Self::MergePatch,
        Self::JsonPatch,
        Self::StrategicPatch,
        Self::Apply,
        Self::ApplyOther,
        Self::Status,
        Self::Scale,
        Self::Delete,
        Self::DeleteOwn,
        Self::DeleteRead,
        Self::DeleteCollection,
        Self::Evict,
        Self::Resize,
        Self::Ephemeral,
        Self::Exec,
        Self::CreateAgain,
    ];

    pub(crate) fn shown(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::MergePatch => "merge patch",
            Self::JsonPatch => "JSON patch",
            Self::StrategicPatch => "strategic patch",
            Self::Apply => "apply, same manager",
            Self::ApplyOther => "apply, other manager",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Delete => "delete",
            Self::DeleteOwn => "delete what it wrote",
            Self::DeleteRead => "delete what it read",
            Self::DeleteCollection => "deletecollection",
            Self::Evict => "eviction",
            Self::Resize => "resize of a Pod",
            Self::Ephemeral => "ephemeral container",
            Self::Exec => "exec",
            Self::PatchPod => "patch of a Pod",
            Self::CreateAgain => "delete, then create",
        }
    }
}

/// See the module.
pub(crate) struct Writer {
    client: Client,
    namespace: String,
    carrier: Carrier,
    fence: Option<String>,
    dry: bool,
    /// It writes the mark, too.
    marks: bool,
    /// The version of the object that it knows.
    known: Option<String>,
}

/// The manager of what was applied before.
pub(crate) const MANAGER: &str = "controller";

/// A number for stamps; each is greater than those before.
fn number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(100);
    LAST.fetch_add(1, Ordering::Relaxed)
}

impl Writer {
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        carrier: Carrier,
        fence: Option<String>,
    ) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            carrier,
            fence,
            dry: false,
            marks: false,
            known: None,
        }
    }

    /// Nothing of what it writes is stored.
    pub(crate) fn dry(mut self) -> Self {
        self.dry = true;
        self
    }

    /// Whether it writes the mark beside its fence, as it must where no policy does.
    pub(crate) fn marks(mut self, marks: bool) -> Self {
        self.marks = marks;
        self
    }

    /// It knows this version of the object.
    pub(crate) fn knows(mut self, version: Option<String>) -> Self {
        self.known = version;
        self
    }

    /// Writes, and says what became of it.
    pub(crate) async fn write(&self, op: Op, name: &str) -> Result<Verdict, String> {
        let answer = self.send(op, name).await;
        match &answer {
            // The admission is behind it, and no kubelet before it.
            Err(Error::Api(status))
                if op == Op::Exec && status.message.contains("does not have a host assigned") =>
            {
                Ok(Verdict::Admitted)
            }
            _ => Verdict::of(&answer),
        }
    }

    /// The annotations of a body: the stamp, where that is the carrier, and the mark.
    fn annotations(&self) -> Value {
        let (Carrier::Sequence, Some(fence)) = (self.carrier, &self.fence) else {
            return json!({});
        };
        let mut annotations = json!({STAMP: format!("{fence}.{}", number())});
        if self.marks {
            let (_, token) = fence.split_once('#').unwrap();
            annotations[TOKEN] = json!(token);
        }
        annotations
    }

    fn config_map(&self, name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "annotations": self.annotations()},
            "data": {"written": number().to_string()},
        })
    }

    /// Sends the request.
    pub(crate) async fn send(&self, op: Op, name: &str) -> Result<Value, Error> {
        let configs = format!("/api/v1/namespaces/{}/configmaps", self.namespace);
        let config = format!("{configs}/{name}");
        let deployment = format!(
            "/apis/apps/v1/namespaces/{}/deployments/{name}",
            self.namespace
        );
        let pod = format!("/api/v1/namespaces/{}/pods/{name}", self.namespace);
        let merge = |mut value: Value| {
            value["metadata"]["annotations"] = self.annotations();
            value
        };
        let data = || merge(json!({"data": {"written": number().to_string()}}));
        let version = |version: Value| json!({"preconditions": {"resourceVersion": version}});
        let (method, path, kind, body) = match op {
            Op::Create | Op::CreateAgain => (Method::POST, configs, JSON, self.config_map(name)),
            Op::Update => {
                let mut read = self.get(&config).await?;
                read["data"]["written"] = json!(number().to_string());
                for (name, text) in self.annotations().as_object().unwrap() {
                    read["metadata"]["annotations"][name] = text.clone();
                }
                (Method::PUT, config, JSON, read)
            }
            Op::MergePatch => (Method::PATCH, config, MERGE, data()),
            Op::StrategicPatch => (Method::PATCH, config, STRATEGIC, data()),
            Op::JsonPatch => (Method::PATCH, config, JSON_PATCH, self.json_patch()),
            Op::Apply | Op::ApplyOther => (Method::PATCH, config, APPLY, self.config_map(name)),
            Op::Status => {
                let status = merge(json!({"status": {"observedGeneration": 1}}));
                (Method::PATCH, format!("{deployment}/status"), MERGE, status)
            }
            Op::Scale => {
                let replicas = merge(json!({"spec": {"replicas": 2}}));
                (
                    Method::PATCH,
                    format!("{deployment}/scale"),
                    MERGE,
                    replicas,
                )
            }
            Op::Delete => (Method::DELETE, config, JSON, json!({})),
            Op::DeleteOwn => {
                let known = json!(self.known);
                (Method::DELETE, config, JSON, version(known))
            }
            Op::DeleteRead => {
                let read = self.get(&config).await?;
                let now = read["metadata"]["resourceVersion"].clone();
                (Method::DELETE, config, JSON, version(now))
            }
            Op::DeleteCollection => {
                let those = format!("{configs}?labelSelector=cell%3D{name}");
                (Method::DELETE, those, JSON, json!({}))
            }
            Op::Evict => {
                let eviction = merge(json!({
                    "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
                }));
                (Method::POST, format!("{pod}/eviction"), JSON, eviction)
            }
            Op::Resize => {
                let cpu = format!("{}m", 200 + number() % 100);
                let resources = json!({"requests": {"cpu": cpu}});
                let containers = json!([{"name": "one", "resources": resources}]);
                let resized = merge(json!({"spec": {"containers": containers}}));
                (Method::PATCH, format!("{pod}/resize"), STRATEGIC, resized)
            }
            Op::Ephemeral => {
                let containers = json!([{"name": format!("debug-{}", number()), "image": "none"}]);
                let added = merge(json!({"spec": {"ephemeralContainers": containers}}));
                let path = format!("{pod}/ephemeralcontainers");
                (Method::PATCH, path, STRATEGIC, added)
            }
            Op::PatchPod => {
                let mut patch = merge(json!({}));
                patch["metadata"]["annotations"]["written"] = json!(number().to_string());
                (Method::PATCH, pod, MERGE, patch)
            }
            Op::Exec => {
                let path = format!("{pod}/exec?command=true&stdout=true");
                (Method::POST, path, JSON, json!({}))
            }
        };
        self.ask(op, method, &path, kind, &body).await
    }

    /// Gives a Pod a node: below the Pod, or at the older path.
    pub(crate) async fn bind(
        &self,
        older_path: bool,
        pod: &str,
        annotations: Value,
    ) -> Result<Verdict, String> {
        let mut metadata = json!({"name": pod, "annotations": annotations});
        if let (Carrier::Sequence, Some(fence)) = (self.carrier, &self.fence) {
            metadata["annotations"][STAMP] = json!(format!("{fence}.{}", number()));
        }
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": "nowhere"},
        });
        let namespace = format!("/api/v1/namespaces/{}", self.namespace);
        let path = match older_path {
            true => format!("{namespace}/bindings"),
            false => format!("{namespace}/pods/{pod}/binding"),
        };
        let answer = self.ask(Op::Create, Method::POST, &path, JSON, &binding);
        Verdict::of(&answer.await)
    }

    fn json_patch(&self) -> Value {
        let mut patch = vec![json!({
            "op": "replace", "path": "/data/written", "value": number().to_string(),
        })];
        for (name, text) in self.annotations().as_object().unwrap() {
            let path = format!("/metadata/annotations/{}", name.replace('/', "~1"));
            patch.push(json!({"op": "add", "path": path, "value": text}));
        }
        Value::Array(patch)
    }

    /// The ConfigMap as it is.
    pub(crate) async fn read(&self, name: &str) -> Value {
        let path = format!("/api/v1/namespaces/{}/configmaps/{name}", self.namespace);
        self.get(&path).await.unwrap()
    }

    /// Replaces a ConfigMap by exactly this one.
    pub(crate) async fn put(&self, object: &Value) -> Result<Value, Error> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = format!("/api/v1/namespaces/{}/configmaps/{name}", self.namespace);
        self.ask(Op::Update, Method::PUT, &path, JSON, object).await
    }

    async fn get(&self, path: &str) -> Result<Value, Error> {
        let request = Request::get(path).body(Vec::new()).unwrap();
        self.client.request(request).await
    }

    async fn ask(
        &self,
        op: Op,
        method: Method,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Result<Value, Error> {
        let mut query = Vec::new();
        if self.dry {
            query.push("dryRun=All".to_owned());
        }
        let fence = self.fence.as_deref();
        let by_manager = fence.filter(|_| self.carrier == Carrier::FieldManager);
        let manager = match op {
            Op::Apply => Some(MANAGER),
            Op::ApplyOther => Some("somebody-else"),
            _ => None,
        };
        let managed = method != Method::DELETE && op != Op::Exec;
        if let Some(manager) = by_manager.or(manager).filter(|_| managed) {
            query.push(format!("fieldManager={}", escaped(manager)));
        }
        if manager.is_some() {
            query.push("force=true".to_owned());
        }
        let joint = if path.contains('?') { '&' } else { '?' };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{path}{joint}{}", query.join("&")))
            .header("content-type", kind);
        if let (Carrier::Impersonate, Some(fence)) = (self.carrier, fence) {
            // Several, if there are several lines.
            request = request.header("impersonate-user", User::Default.name());
            for fence in fence.lines() {
                request = request.header(extra_header(), fence);
            }
        }
        let request = request.body(body.to_string().into_bytes()).unwrap();
        self.client.request(request).await
    }
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn extra_header() -> String {
    format!("impersonate-extra-{}", FENCE_EXTRA.replace('/', "%2f"))
}

fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let escape = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}
