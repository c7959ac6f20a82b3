//! What controllers may do, and the policies that stand before them.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Error;
use kube::api::{Api, ObjectMeta, PostParams};
use ringfence_core::FencingToken;
use ringfence_kube::policy::{Carrier, FENCE_EXTRA, Fencing, FencingSpec};
use ringfence_kubernetes::User;
use serde_json::json;

use crate::site::{Site, within};

/// The fenced account may write ConfigMaps in the site's namespace, and hold client-go's Lease.
pub(crate) async fn allow(site: &Site) {
    let rule = |group: &str, resource: &str| json!({"apiGroups": [group], "resources": [resource], "verbs": ["*"]});
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "controller", "namespace": site.namespace},
        "rules": [rule("", "configmaps"), rule("coordination.k8s.io", "leases"), rule("", "events")],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "controller", "namespace": site.namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "controller"},
        "subjects": [{"kind": "User", "name": User::Default.name()}],
    });
    apply(site, &format!("{role}\n---\n{binding}\n"));
}

/// Applies the policies that fence ConfigMaps by the lease `leader`, and waits until they are in
/// force.
pub(crate) async fn fence(site: &Site) {
    let wish = FencingSpec {
        resources: vec!["configmaps".parse().unwrap()],
        account: Some("default/default".parse().unwrap()),
        ..FencingSpec::new(format!("{}/leader", site.namespace), Carrier::Impersonate)
    };
    let fencing = Fencing::new(wish).unwrap();
    apply(site, &fencing.manifests());
    let fence = fencing.fence(FencingToken::new(1 << 52).unwrap());
    within("the policies are in force", async {
        while !refuses(site, None).await || refuses(site, Some(&fence)).await {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// Whether a creation with this fence would be refused.
async fn refuses(site: &Site, fence: Option<&str>) -> bool {
    let mut config = site.plane.config(User::Default).await;
    if let Some(fence) = fence {
        let name = FENCE_EXTRA.replace('/', "%2F");
        let name = format!("impersonate-extra-{}", name.to_lowercase());
        config
            .headers
            .push((name.parse().unwrap(), fence.parse().unwrap()));
        let user = (
            "impersonate-user".parse().unwrap(),
            User::Default.name().parse().unwrap(),
        );
        config.headers.push(user);
    }
    let client = kube::Client::try_from(config).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, &site.namespace);
    let probe = ConfigMap {
        metadata: ObjectMeta {
            name: Some("probe".to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match maps.create(&params, &probe).await {
        Ok(_) => false,
        Err(Error::Api(status)) => status.code == 403 || status.code == 422,
        Err(error) => panic!("{error}"),
    }
}

/// Hands manifests to kubectl, as people do.
fn apply(site: &Site, manifests: &str) {
    site.plane.kubectl(&["apply", "--filename", "-"], manifests);
}

/// What is in the ConfigMap `ledger`.
pub(crate) fn entry(map: &ConfigMap, key: &str) -> Option<String> {
    map.data.as_ref()?.get(key).cloned()
}

/// The ConfigMaps of the site, for an admin.
pub(crate) async fn maps(site: &Site) -> Api<ConfigMap> {
    Api::namespaced(site.plane.client(User::Admin).await, &site.namespace)
}
