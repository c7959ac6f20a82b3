//! What the policies add to a write: pairs of writes, one judged and one not, taken in turns.
//!
//! ```sh
//! cargo run -p ringfence-kubernetes --example cost_of_policies
//! ```
//!
//! It starts an API server of its own, applies the manifests of each carrier to a namespace, and
//! patches a ConfigMap there and one in a namespace without policies, over one connection.

use std::io::Write as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use http::{Method, Request};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use ringfence_core::FencingToken;
use ringfence_kube::TOKEN;
use ringfence_kube::policy::{Carrier, FENCE_EXTRA, Fencing, FencingSpec, STAMP};
use ringfence_kubernetes::{ControlPlane, User, kubectl};
use serde_json::{Value, json};

/// How many pairs are measured.
const PAIRS: u64 = 1_500;
/// How many are done before, and not counted.
const WARM_UP: u64 = 200;
/// What the policies may add to a write, at the median.
const TARGET: Duration = Duration::from_millis(3);
/// Of the holder's grant.
const TOKEN_HELD: u64 = 1 << 52;

type Fault = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<ExitCode, Fault> {
    let Some(plane) = ControlPlane::start().await else {
        return Ok(ExitCode::from(2));
    };
    println!(
        "{:<14} {:>9} {:>9} {:>9}",
        "carrier", "without", "with", "added"
    );
    let mut within = true;
    for carrier in Carrier::ALL {
        let (without, with) = measure(&plane, carrier).await?;
        let added = with.saturating_sub(without);
        within &= added < TARGET;
        println!(
            "{:<14} {without:>9.2?} {with:>9.2?} {added:>9.2?}",
            carrier.name()
        );
    }
    println!("medians of {PAIRS} pairs; the target is less than {TARGET:?} added");
    Ok(ExitCode::from(u8::from(!within)))
}

/// The medians of a write that is not judged and of one that is.
async fn measure(plane: &ControlPlane, carrier: Carrier) -> Result<(Duration, Duration), Fault> {
    let (free, guarded) = (
        plane.namespace("free").await,
        plane.namespace("guarded").await,
    );
    let admin = plane.client(User::Admin).await;
    for namespace in [&free, &guarded] {
        prepare(&admin, namespace).await?;
    }
    let fencing = Fencing::new(FencingSpec {
        resources: vec!["configmaps".parse()?],
        account: Some("default/default".parse()?),
        ..FencingSpec::new(format!("{guarded}/leader"), carrier)
    })?;
    apply(plane, &fencing.manifests())?;
    let floor = fencing.floor_object_name();
    let floors: Api<Lease> = Api::namespaced(admin.clone(), &floor.namespace);
    let raised = json!({"metadata": {"annotations": {TOKEN: TOKEN_HELD.to_string()}}});
    let params = PatchParams::default();
    floors
        .patch(&floor.name, &params, &Patch::Merge(raised))
        .await?;
    let account = plane.client(User::Default).await;
    let token = FencingToken::new(TOKEN_HELD).ok_or("no token")?;
    let fence = fencing.fence(token);
    let stale = fencing.fence(FencingToken::new(TOKEN_HELD - 1).ok_or("no token")?);
    let mut number = 0;
    // Until the policies are in force, which takes the API server a second.
    while write(&account, &guarded, carrier, &stale, 1).await.is_ok()
        || write(&account, &guarded, carrier, &fence, u64::MAX >> 8)
            .await
            .is_err()
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
        number += 1;
        if number > 300 {
            return Err("the policies do not take effect".into());
        }
    }
    recreate(&admin, &guarded).await?;
    let mut taken = [Vec::new(), Vec::new()];
    for at in 0..WARM_UP + PAIRS {
        // Who is first changes, so that neither is helped by the other.
        let order = if at % 2 == 0 { [0, 1] } else { [1, 0] };
        for which in order {
            let namespace = [&free, &guarded][which];
            let begun = now();
            write(&account, namespace, carrier, &fence, at + 1).await?;
            if at >= WARM_UP {
                taken[which].push(begun.elapsed());
            }
        }
    }
    let median = |mut of: Vec<Duration>| {
        of.sort_unstable();
        of[of.len() / 2]
    };
    let [without, with] = taken;
    Ok((median(without), median(with)))
}

#[expect(
    clippy::disallowed_methods,
    reason = "it only tells people how long something took"
)]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

async fn write(
    client: &Client,
    namespace: &str,
    carrier: Carrier,
    fence: &str,
    number: u64,
) -> Result<(), kube::Error> {
    let mut annotations = json!({});
    if carrier == Carrier::Sequence {
        annotations[STAMP] = json!(format!("{fence}.{number}"));
    }
    let body = json!({
        "metadata": {"annotations": annotations}, "data": {"written": number.to_string()},
    });
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/prices");
    let query = match carrier {
        Carrier::FieldManager => format!("?fieldManager={}", fence.replace('#', "%23")),
        Carrier::Impersonate | Carrier::Sequence => String::new(),
    };
    let mut request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("{path}{query}"))
        .header("content-type", "application/merge-patch+json");
    if carrier == Carrier::Impersonate {
        let extra = format!("impersonate-extra-{}", FENCE_EXTRA.replace('/', "%2f"));
        request = request
            .header("impersonate-user", User::Default.name())
            .header(extra, fence);
    }
    let request = request.body(body.to_string().into_bytes());
    let request = request.map_err(kube::Error::HttpError)?;
    client.request::<Value>(request).await.map(drop)
}

/// The Lease, the object, and the right to write it.
async fn prepare(admin: &Client, namespace: &str) -> Result<(), Fault> {
    let rights = [
        json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}),
        json!({"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]}),
    ];
    let api = "rbac.authorization.k8s.io";
    for object in [
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {
            "name": "leader", "annotations": {TOKEN: TOKEN_HELD.to_string()}}}),
        json!({"apiVersion": format!("{api}/v1"), "kind": "Role",
            "metadata": {"name": "writer"}, "rules": rights}),
        json!({"apiVersion": format!("{api}/v1"), "kind": "RoleBinding",
            "metadata": {"name": "writer"},
            "roleRef": {"apiGroup": api, "kind": "Role", "name": "writer"},
            "subjects": [{"kind": "User", "name": User::Default.name()}]}),
        prices(),
    ] {
        put(admin, namespace, &object).await?;
    }
    Ok(())
}

fn prices() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "prices"},
        "data": {"written": "0"}})
}

/// Without the stamp that the wait for the policies left.
async fn recreate(admin: &Client, namespace: &str) -> Result<(), Fault> {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/prices");
    let gone = Request::delete(path).body(Vec::new())?;
    admin.request::<Value>(gone).await?;
    put(admin, namespace, &prices()).await
}

async fn put(admin: &Client, namespace: &str, object: &Value) -> Result<(), Fault> {
    let read: DynamicObject = serde_json::from_value(object.clone())?;
    let types = read.types.clone().ok_or("an object without a kind")?;
    let kind = GroupVersionKind::try_from(&types)?;
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::namespaced_with(admin.clone(), namespace, &resource);
    let name = read.metadata.name.ok_or("an object without a name")?;
    let params = PatchParams::apply("example").force();
    api.patch(&name, &params, &Patch::Apply(object)).await?;
    Ok(())
}

fn apply(plane: &ControlPlane, manifests: &str) -> Result<(), Fault> {
    let program = kubectl().ok_or("there is no kubectl")?;
    let mut child = Command::new(program)
        .arg("--kubeconfig")
        .arg(plane.kubeconfig(User::Admin, &plane.address()))
        .args(["apply", "--validate=ignore", "--filename", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or("no way to kubectl")?;
    stdin.write_all(manifests.as_bytes())?;
    drop(stdin);
    let status = child.wait()?;
    status
        .success()
        .then_some(())
        .ok_or_else(|| status.to_string().into())
}
