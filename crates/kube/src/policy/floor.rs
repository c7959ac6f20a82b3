//! The floor: the token of the newest grant as the mirror shows it, for writes where no mark can be
//! seen.
//!
//! It stands on an object of its own, in Ringfence's own namespace: the mirrored Lease stands where
//! tenants may write Leases, and goes when their namespace does. The manifests bring the object along
//! and the mirror fills it, so a policy never has to wait for it, and no policy refuses those whom it
//! does not judge.

use super::fencing::{Fencing, WithoutLease};
use super::judging::{is_token, mark_of};
use super::manifest::{head, quoted, validations};
use super::text::{Rule, named};
use crate::{MANAGED_BY, MANAGER};

const FLOOR: &str = "The floor, best effort: no write with a lower token than the mirror shows on the floor. \
It judges what has no mark: objects without a stamp so far, scale, eviction. The API server \
compares with its own copy of the floor, which can be late, without bound when that server was \
stopped: a new holder that must exclude late writes stamps the objects it guards before it trusts \
them.";

const OBJECT: &str = "The floor itself: the mirror writes the token of each grant on it, and never makes \
or deletes it. It stands here, and not where the Lease is shown, so that no account that may write Leases \
there can lower it, and so that it outlives that namespace. Applying this again leaves its token.";

/// What a policy says that takes a Lease as its parameter.
const PARAMS: &str = "  paramKind:\n    apiVersion: coordination.k8s.io/v1\n    kind: Lease\n";

const KEEPER: &str = "It matches no request, and only keeps the API server's copy of Leases alive. \
Install it first, once per cluster, and never delete it. Without it the copy freezes when the last \
binding with a Lease as its parameter goes, and bindings made later compare with what was true then, \
until the API server is restarted (kubernetes/kubernetes#130887).";

impl Fencing {
    /// The policy and its binding.
    pub(super) fn floor(&self) -> String {
        let mut yaml = self.judging_head(FLOOR, "floor", PARAMS);
        let ours = format!("params.?metadata.?labels[?'{MANAGED_BY}'].orValue('') == '{MANAGER}'");
        let floor = format!("params != null && {ours} ? {} : ''", mark_of("params"));
        yaml.push_str(&named(4, "floor", &floor));
        yaml.push_str(&named(4, "floorGood", &is_token("variables.floor")));
        yaml.push_str(&validations(&self.floor_rules()));
        yaml.push_str(&self.binding("floor", "ValidatingAdmissionPolicyBinding", true));
        yaml
    }

    /// The object that the mirror writes tokens on.
    pub(super) fn floor_object(&self) -> String {
        let name = quoted(&[self.floor.name.to_string()]);
        let namespace = quoted(&[self.floor.namespace.to_string()]);
        let mut yaml = head(OBJECT, "coordination.k8s.io/v1", "Lease", &name);
        yaml.push_str(&format!(
            "  namespace: {namespace}\n  labels:\n    {MANAGED_BY}: {MANAGER}\n"
        ));
        yaml
    }

    /// With the rules for the fence itself, which the policy of the mark has as well: which of two
    /// policies refuses first is up to the API server, and the words should be the same.
    fn floor_rules(&self) -> Vec<Rule> {
        let mut rules = self.form_rules();
        match self.without_lease {
            WithoutLease::Deny => rules.push(Rule {
                why: "Until the lease is granted for the first time, its account writes nothing.",
                expression: "variables.floorGood".to_owned(),
                words: format!(
                    "'ringfence: the floor {} of {} carries no token: acquire the lease, and see that \
                     the mirror runs'",
                    self.floor, self.lease
                ),
                plain: "ringfence: the floor carries no token",
            }),
            WithoutLease::Allow => rules.push(Rule {
                why: "Without a token there is no floor yet. A text that is none was written by hand.",
                expression: "variables.floor == '' || variables.floorGood".to_owned(),
                words: format!(
                    "'ringfence: the floor {} of {} carries the malformed token ' + variables.floor"
                    , self.floor, self.lease
                ),
                plain: "ringfence: the floor carries a malformed token",
            }),
        }
        rules.push(Rule {
            why: "The guard's rule, with the floor as the mark.",
            expression: "!variables.good || !variables.floorGood || int(variables.token) >= \
                         int(variables.floor)"
                .to_owned(),
            words: format!(
                "'ringfence: stale fence ' + variables.fence + ': the lease {} is at token ' + \
                 variables.floor",
                self.lease
            ),
            plain: "ringfence: stale fence: the lease is at a newer token",
        });
        rules
    }
}

/// What all leases of a Kubernetes share.
pub(super) fn keeper() -> String {
    let name = "keep-lease-informer.ringfence.io";
    let api = "admissionregistration.k8s.io/v1";
    let mut yaml = head(KEEPER, api, "ValidatingAdmissionPolicy", name);
    yaml.push_str("spec:\n  failurePolicy: Ignore\n");
    yaml.push_str(PARAMS);
    yaml.push_str(
        "  matchConstraints:\n    resourceRules:\n      - apiGroups: \
         [nothing.ringfence.io]\n        apiVersions: [v0]\n        resources: [none]\n        \
         operations: [CONNECT]\n        scope: \"*\"\n  validations:\n    - expression: \"true\"\n",
    );
    yaml.push_str(&format!(
        "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n\
         metadata:\n  name: {name}\nspec:\n  policyName: {name}\n  paramRef:\n    name: none\n    \
         namespace: default\n    parameterNotFoundAction: Allow\n  validationActions: [Deny]\n"
    ));
    yaml
}
