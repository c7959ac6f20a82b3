//! What the fenced account has to be allowed, and the canary's objects.

use ringfence_core::FencingToken;

use super::carrier::{Carrier, FENCE_EXTRA};
use super::fencing::Fencing;
use super::manifest::{head, quoted};
use crate::TOKEN;

const RBAC: &str = "rbac.authorization.k8s.io";

const ITSELF: &str = "The fenced account may act as itself, which adds the fence to its requests. Only \
as itself, and with this one addition; the roles that it has stay as they are.";

const EXTRA: &str = "Any value: tokens are not known beforehand. A higher one than it holds would be a \
lie of the holder itself, which a fence does not prevent.";

const CANARY: &str = "The canary's objects. `ringfence kube canary` writes them with fences that must \
be refused, as dry runs; if one passes, so would a stale write. The first has no mark, so that the \
floor alone judges it; the second has the highest there can be.";

const WATCHES: &str =
    "What the canary needs, as the fenced account: the Lease, and its own objects.";

impl Fencing {
    /// The right to carry the fence, where one is needed.
    pub(super) fn rights(&self) -> String {
        if self.carrier != Carrier::Impersonate {
            return String::new();
        }
        let (namespace, account) = (&self.account.namespace, &self.account.name);
        let name = self.named("fence");
        let mut yaml = head(ITSELF, &api(), "Role", &name);
        yaml.push_str(&format!(
            "  namespace: {namespace:?}\nrules:\n  - apiGroups: [\"\"]\n    resources: \
             [serviceaccounts]\n    resourceNames: [{account:?}]\n    verbs: [impersonate]\n",
        ));
        yaml.push_str(&self.bound("Role", &name, Some(namespace)));
        yaml.push_str(&head(EXTRA, &api(), "ClusterRole", &name));
        yaml.push_str(&format!(
            "rules:\n  - apiGroups: [authentication.k8s.io]\n    resources: \
             [\"userextras/{FENCE_EXTRA}\"]\n    verbs: [impersonate]\n",
        ));
        yaml.push_str(&self.bound("ClusterRole", &name, None));
        yaml
    }

    /// The object that the canary writes with a fence below the floor.
    #[must_use]
    pub fn canary_floor(&self) -> String {
        self.named("canary-floor")
    }

    /// The object that the canary writes with the newest fence, below the mark that it has.
    #[must_use]
    pub fn canary_mark(&self) -> String {
        self.named("canary-mark")
    }

    /// The canary's objects, and its rights.
    pub(super) fn canary(&self) -> String {
        let names = [self.canary_floor(), self.canary_mark()];
        let place = self.canary_namespace();
        let mut yaml = head(CANARY, "v1", "ConfigMap", &names[0]);
        yaml.push_str(&format!("  namespace: {place:?}\n"));
        yaml.push_str(&format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\n  namespace: {place:?}\n  \
             annotations:\n    {TOKEN}: \"{}\"\n",
            names[1],
            FencingToken::MAX,
        ));
        let name = self.named("canary");
        yaml.push_str(&head(WATCHES, &api(), "Role", &name));
        yaml.push_str(&format!(
            "  namespace: {place:?}\nrules:\n  - apiGroups: [\"\"]\n    resources: [configmaps]\n    \
             resourceNames: [{}]\n    verbs: [get, patch]\n",
            names.join(", "),
        ));
        yaml.push_str(&self.bound("Role", &name, Some(place)));
        let (of, lease) = (&self.object.namespace, self.object.name.to_string());
        let name = self.named("lease");
        yaml.push_str(&format!(
            "---\napiVersion: {}\nkind: Role\nmetadata:\n  name: {name}\n  namespace: {of:?}\nrules:\n  \
             - apiGroups: [coordination.k8s.io]\n    resources: [leases]\n    resourceNames: [{}]\n    \
             verbs: [get]\n",
            api(),
            quoted(&[lease]),
        ));
        yaml.push_str(&self.bound("Role", &name, Some(of)));
        yaml
    }

    fn bound(&self, kind: &str, name: &str, namespace: Option<&str>) -> String {
        let place = namespace.map(|place| format!("  namespace: {place:?}\n"));
        let place = place.unwrap_or_default();
        format!(
            "---\napiVersion: {}\nkind: {kind}Binding\nmetadata:\n  name: {name}\n{place}roleRef:\n  \
             apiGroup: {RBAC}\n  kind: {kind}\n  name: {name}\nsubjects:\n  - kind: ServiceAccount\n    \
             name: {:?}\n    namespace: {:?}\n",
            api(),
            self.account.name,
            self.account.namespace,
        )
    }
}

fn api() -> String {
    format!("{RBAC}/v1")
}
