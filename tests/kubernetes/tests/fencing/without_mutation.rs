//! Policies that change no write: every pair of annotations that a client could send, by every path
//! that carries the object; and writes of accounts that are not fenced.

use http::{Method, Request};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use ringfence_kube::TOKEN;
use ringfence_kube::policy::{LOWER, STAMP, STAMP_NUMBER_MAX};
use serde_json::{Map, Value, json};

use crate::bystanders::a_pod_lives_and_dies;
use crate::stand::{CURRENT, Stand, WITHOUT_MUTATION};
use crate::verdict::Verdict;
use crate::writer::{MANAGER, Op};

/// What a write does to an annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Leave,
    Remove,
    Set(String),
}

impl Change {
    /// What stands there afterwards, where this stood before.
    fn on(&self, before: Option<&str>) -> Option<String> {
        match self {
            Self::Leave => before.map(str::to_owned),
            Self::Remove => None,
            Self::Set(text) => Some(text.clone()),
        }
    }
}

/// A path by which the whole object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Replace,
    Merge,
    Strategic,
    JsonPatch,
    /// The answer, and with it what the server holds of the object, is its metadata.
    MetadataOnly,
    /// By the manager that has applied the annotations before.
    Apply,
    ApplyOther,
    /// Of a Deployment.
    Status,
    StatusReplace,
}

impl Way {
    const ALL: [Self; 9] = [
        Self::Replace,
        Self::Merge,
        Self::Strategic,
        Self::JsonPatch,
        Self::MetadataOnly,
        Self::Apply,
        Self::ApplyOther,
        Self::Status,
        Self::StatusReplace,
    ];

    fn is_apply(self) -> bool {
        matches!(self, Self::Apply | Self::ApplyOther)
    }

    /// What a change comes to: what is not applied again is gone if it was one's own, and stays
    /// otherwise.
    fn effect(self, change: &Change) -> Change {
        match (self, change) {
            (Self::Apply, Change::Leave) => Change::Remove,
            (Self::ApplyOther, Change::Remove) => Change::Leave,
            _ => change.clone(),
        }
    }
}

/// The number of the stamp that is stored.
const NUMBER: u64 = 50;

/// Two objects that the current holder has written.
struct Scene {
    stand: Stand,
    stored: [(&'static str, String); 2],
}

impl Scene {
    async fn start(floor: u64) -> Option<Self> {
        let stand = Stand::start(WITHOUT_MUTATION, floor).await?;
        let stamp = format!("{}.{NUMBER}", stand.fence(CURRENT));
        let stored = [(STAMP, stamp), (TOKEN, CURRENT.to_string())];
        let annotations: Map<String, Value> = stored
            .iter()
            .map(|(name, text)| ((*name).to_owned(), json!(text)))
            .collect();
        let labels = json!({"app": "shop"});
        let containers = json!([{"name": "one", "image": "none"}]);
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
        let scene = Self { stand, stored };
        for object in [
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                   "metadata": {"name": "prices", "annotations": annotations},
                   "data": {"written": "0"}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
                   "metadata": {"name": "shop", "annotations": annotations},
                   "spec": {"selector": {"matchLabels": labels}, "template": template}}),
        ] {
            let path = scene.path(object["kind"] == "Deployment");
            let path = format!("{path}?fieldManager={MANAGER}&force=true");
            let applied = ask(&scene.stand.admin, Method::PATCH, &path, APPLY, &object).await;
            applied.unwrap();
        }
        Some(scene)
    }

    fn path(&self, deployment: bool) -> String {
        let namespace = &self.stand.namespace;
        match deployment {
            true => format!("/apis/apps/v1/namespaces/{namespace}/deployments/shop"),
            false => format!("/api/v1/namespaces/{namespace}/configmaps/prices"),
        }
    }

    /// What becomes of a write, which stores nothing.
    async fn verdict(
        &self,
        client: &Client,
        way: Way,
        changes: &[(&str, Change)],
    ) -> Result<Verdict, String> {
        let status = matches!(way, Way::Status | Way::StatusReplace);
        let path = self.path(status);
        let mut merge = Map::new();
        let mut steps = vec![json!({"op": "add", "path": "/data/written", "value": "1"})];
        for (name, change) in changes {
            let at = format!("/metadata/annotations/{}", name.replace('/', "~1"));
            match change {
                Change::Leave => {}
                Change::Remove => {
                    merge.insert((*name).to_owned(), Value::Null);
                    steps.push(json!({"op": "remove", "path": at}));
                }
                Change::Set(text) => {
                    merge.insert((*name).to_owned(), json!(text));
                    steps.push(json!({"op": "add", "path": at, "value": text}));
                }
            }
        }
        let data = json!({"written": "1"});
        let metadata = json!({"annotations": merge});
        let (method, kind, body) = match way {
            Way::Merge | Way::Strategic => {
                let kind = if way == Way::Merge { MERGE } else { STRATEGIC };
                let body = json!({"metadata": metadata, "data": data});
                (Method::PATCH, kind, body)
            }
            Way::MetadataOnly => (Method::PATCH, MERGE, json!({"metadata": metadata})),
            Way::Status => {
                let body = json!({"metadata": metadata, "status": {"observedGeneration": 1}});
                (Method::PATCH, MERGE, body)
            }
            Way::JsonPatch => (Method::PATCH, JSON_PATCH, Value::Array(steps)),
            Way::Apply | Way::ApplyOther => {
                merge.retain(|_, text| !text.is_null());
                let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
                                  "metadata": {"name": "prices", "annotations": merge},
                                  "data": data});
                (Method::PATCH, APPLY, body)
            }
            Way::Replace | Way::StatusReplace => {
                let read = Request::get(&path).body(Vec::new()).unwrap();
                let mut read: Value = client.request(read).await.unwrap();
                let annotations = read["metadata"]["annotations"].as_object_mut().unwrap();
                for (name, text) in merge {
                    match text.is_null() {
                        true => drop(annotations.remove(&name)),
                        false => drop(annotations.insert(name, text)),
                    }
                }
                match status {
                    true => read["status"]["observedGeneration"] = json!(1),
                    false => read["data"] = data,
                }
                (Method::PUT, JSON, read)
            }
        };
        let below = if status { "/status" } else { "" };
        let manager = match way {
            Way::Apply => format!("&force=true&fieldManager={MANAGER}"),
            Way::ApplyOther => "&force=true&fieldManager=somebody-else".to_owned(),
            _ => String::new(),
        };
        let path = format!("{path}{below}?dryRun=All{manager}");
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind);
        if way == Way::MetadataOnly {
            let accepted = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
            request = request.header("accept", accepted);
        }
        let request = request.body(body.to_string().into_bytes()).unwrap();
        Verdict::of(&client.request(request).await)
    }

    fn stored(&self, name: &str) -> Option<&str> {
        let mut stored = self.stored.iter();
        let found = stored.find(|(known, _)| *known == name);
        found.map(|(_, text)| text.as_str())
    }

    /// Stamps that a client could send: right, old, foreign, and no stamps.
    fn stamps(&self) -> Vec<Change> {
        let (current, stale, newer) = (CURRENT, CURRENT - 1, CURRENT + 1);
        let lease = self.stand.fencing.lease();
        let texts = [
            format!("{lease}#{current}.{}", NUMBER + 1),
            format!("{lease}#{current}.{STAMP_NUMBER_MAX}"),
            format!("{lease}#{current}.{NUMBER}"),
            format!("{lease}#{current}.9"),
            format!("{lease}#{current}.0{}", NUMBER + 1),
            format!("{lease}#{current}.0"),
            format!("{lease}#{current}.{}0", STAMP_NUMBER_MAX),
            format!("{lease}#{current}.-99"),
            format!("{lease}#{current}"),
            format!("{lease}#0{current}.99"),
            format!("{lease}#{stale}.99"),
            format!("{lease}#{stale}.{STAMP_NUMBER_MAX}"),
            format!("{lease}#{newer}.1"),
            format!("{lease}#9223372036854775807.1"),
            format!("{lease}#9223372036854775808.1"),
            format!("{lease}#{current}.99#{stale}.99"),
            format!("{lease}#{stale}.99\n{lease}#{current}.99"),
            format!("{lease}x#{newer}.99"),
            format!("k8s/{}/other#{newer}.99", self.stand.namespace),
            format!("#{newer}.99"),
            String::new(),
        ];
        let texts = texts.into_iter().map(Change::Set);
        [Change::Leave, Change::Remove]
            .into_iter()
            .chain(texts)
            .collect()
    }

    /// Whether a write leaves what a current holder would.
    fn is_right(&self, before: bool, stamp: Option<&str>, mark: Option<&str>) -> bool {
        let number = |text: &str| {
            let number: u64 = text.parse().ok()?;
            (number > 0 && number.to_string() == text).then_some(number)
        };
        let parsed = || {
            let (fence, count) = stamp?.rsplit_once('.')?;
            let begins = format!("{}#", self.stand.fencing.lease());
            let token = number(fence.strip_prefix(&begins)?)?;
            let count = number(count)?;
            let whole = i64::try_from(token).is_ok() && count <= STAMP_NUMBER_MAX;
            whole.then_some((token, count))
        };
        let Some((token, count)) = parsed() else {
            return false;
        };
        let newest = token > CURRENT || (token == CURRENT && (!before || count > NUMBER));
        newest && mark == Some(token.to_string().as_str())
    }
}

/// Marks that a client could send.
fn marks() -> Vec<Change> {
    let texts = [
        CURRENT.to_string(),
        (CURRENT - 1).to_string(),
        (CURRENT + 1).to_string(),
        format!("0{CURRENT}"),
        "9223372036854775807".to_owned(),
        "9223372036854775808".to_owned(),
        "-1".to_owned(),
        String::new(),
    ];
    let texts = texts.into_iter().map(Change::Set);
    [Change::Leave, Change::Remove]
        .into_iter()
        .chain(texts)
        .collect()
}

/// A refusal of ours, or a write that would be stored; anything else fails the test.
fn is_admitted(verdict: Result<Verdict, String>, of: &str) -> bool {
    match verdict {
        Ok(Verdict::Admitted) => true,
        Ok(Verdict::Outdated) | Err(_) => panic!("{of}: {verdict:?}"),
        Ok(_) => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_mutation_one_pair_of_annotations_passes_by_any_path() {
    // The floor is far below: the mark alone decides.
    let Some(scene) = Scene::start(2).await else {
        return;
    };
    let (mut tried, mut admitted) = (0, 0);
    for way in Way::ALL {
        for stamp in scene.stamps() {
            for mark in marks() {
                let after = |change: &Change, name| way.effect(change).on(scene.stored(name));
                let (left, marked) = (after(&stamp, STAMP), after(&mark, TOKEN));
                let right = scene.is_right(true, left.as_deref(), marked.as_deref());
                let changes = [(STAMP, stamp.clone()), (TOKEN, mark)];
                let verdict = scene.verdict(&scene.stand.account, way, &changes).await;
                let of = format!("{way:?} {changes:?}");
                assert_eq!(is_admitted(verdict, &of), right, "{of}");
                tried += 1;
                admitted += u32::from(right);
            }
        }
    }
    println!("{tried} writes, {admitted} of them admitted");
    assert!(admitted > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_mutation_an_object_is_created_with_its_mark_alone() {
    let Some(scene) = Scene::start(CURRENT).await else {
        return;
    };
    let namespace = &scene.stand.namespace;
    let configs = format!("/api/v1/namespaces/{namespace}/configmaps");
    let applied = format!("{configs}/pears?fieldManager={MANAGER}&dryRun=All");
    let posted = format!("{configs}?dryRun=All");
    for (naming, method, path, kind) in [
        ("name", Method::POST, &posted, JSON),
        ("generateName", Method::POST, &posted, JSON),
        ("name", Method::PATCH, &applied, APPLY),
    ] {
        for stamp in scene.stamps() {
            for mark in marks() {
                let (left, marked) = (stamp.on(None), mark.on(None));
                let right = scene.is_right(false, left.as_deref(), marked.as_deref());
                let mut annotations = Map::new();
                for (name, text) in [(STAMP, left), (TOKEN, marked)] {
                    annotations.extend(text.map(|text| (name.to_owned(), json!(text))));
                }
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                                    "metadata": {naming: "pears", "annotations": annotations}});
                let client = &scene.stand.account;
                let made = ask(client, method.clone(), path, kind, &object).await;
                let of = format!("{method} {naming} {stamp:?} {mark:?}");
                assert_eq!(is_admitted(Verdict::of(&made), &of), right, "{of}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_mutation_others_are_refused_what_lowers_a_mark_and_nothing_else() {
    let Some(scene) = Scene::start(CURRENT).await else {
        return;
    };
    let admin = &scene.stand.admin;
    let others = [
        Change::Leave,
        Change::Remove,
        Change::Set("anything".to_owned()),
    ];
    for way in Way::ALL {
        for mark in marks() {
            for stamp in &others {
                let marked = way.effect(&mark).on(scene.stored(TOKEN));
                let token = marked.as_deref().and_then(|text| {
                    let token: u64 = text.parse().ok()?;
                    (token.to_string() == *text && i64::try_from(token).is_ok()).then_some(token)
                });
                let keeps = token.is_some_and(|token| token >= CURRENT);
                let changes = [(STAMP, stamp.clone()), (TOKEN, mark.clone())];
                let verdict = scene.verdict(admin, way, &changes).await;
                let expected = if keeps {
                    Verdict::Admitted
                } else {
                    Verdict::Falls
                };
                assert_eq!(verdict, Ok(expected), "{way:?} {changes:?}");
                if way.is_apply() {
                    continue;
                }
                // The one who may, and names it.
                let lower = (LOWER, Change::Set(CURRENT.to_string()));
                let named = [changes[0].clone(), changes[1].clone(), lower];
                let lowers = token.is_some_and(|token| token < CURRENT) || marked.is_none();
                let verdict = scene.verdict(admin, way, &named).await;
                let empty = marked.as_deref() == Some("");
                if lowers || empty {
                    assert_eq!(verdict, Ok(Verdict::Admitted), "{way:?} {named:?}");
                } else {
                    let words = verdict.unwrap_err();
                    assert!(words.contains("asks for a lower mark"), "{words}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_mutation_components_of_kubernetes_write_marked_objects_as_before() {
    let Some(scene) = Scene::start(CURRENT).await else {
        return;
    };
    let stand = &scene.stand;
    a_pod_lives_and_dies(stand, "one").await;
    // A finalizer is taken away in the course of a deletion, and a label comes by an old manifest.
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> =
        Api::namespaced(stand.admin.clone(), &stand.namespace);
    for metadata in [
        json!({"finalizers": ["example.com/late"]}),
        json!({"labels": {"team": "blue"}}),
        json!({"finalizers": null}),
    ] {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let patched = maps.patch("prices", &PatchParams::default(), &patch).await;
        let annotations = patched.unwrap().metadata.annotations.unwrap();
        assert_eq!(annotations[TOKEN], CURRENT.to_string());
    }
    let admin = stand.admin_writer();
    for op in [
        Op::Update,
        Op::MergePatch,
        Op::Apply,
        Op::ApplyOther,
        Op::Delete,
    ] {
        let done = admin.write(op, "prices").await;
        match op {
            // It applied the mark before, and does not now.
            Op::Apply => assert_eq!(done, Ok(Verdict::Falls)),
            _ => assert_eq!(done, Ok(Verdict::Admitted), "{op:?}"),
        }
    }
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

async fn ask(
    client: &Client,
    method: Method,
    path: &str,
    kind: &str,
    body: &Value,
) -> Result<Value, kube::Error> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(body.to_string().into_bytes());
    client.request(request.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_is_judged_like_the_pod() {
    crate::subresources::bindings_are_judged(WITHOUT_MUTATION).await;
}
