//! The floor: the token on the mirrored Lease, for writes where no mark can be seen.

use super::fencing::{Fencing, WithoutLease};
use super::judging::{is_token, mark_of};
use super::manifest::{head, validations};
use super::text::{Rule, comment, named};

const FLOOR: &str = "The floor, best effort: no write with a lower token than the mirrored Lease shows. \
It judges what has no mark: objects that nobody has stamped yet, scale, eviction. The API server \
compares with its own copy of the Lease, which can be late, without bound when that server was \
stopped: a new holder that must exclude late writes stamps the objects it guards before it trusts \
them.";

const DENY: &str = "While the Lease is missing, this refuses ALL writes to these resources in these \
namespaces, whoever makes them, since parameters are looked for before the subject is: acquire the \
lease once before you apply this.";

const ALLOW: &str = "While the Lease is missing, this judges nothing; the mark does all the same.";

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
        let floor = format!("params == null ? '' : {}", mark_of("params"));
        yaml.push_str(&named(4, "floor", &floor));
        yaml.push_str(&named(4, "floorGood", &is_token("variables.floor")));
        yaml.push_str(&validations(&self.floor_rules()));
        let binding = self.binding("floor", "ValidatingAdmissionPolicyBinding", true);
        let why = comment(match self.without_lease {
            WithoutLease::Deny => DENY,
            WithoutLease::Allow => ALLOW,
        });
        let why: String = why.lines().map(|line| format!("  {line}\n")).collect();
        yaml.push_str(&binding.replacen("  paramRef:\n", &format!("{why}  paramRef:\n"), 1));
        yaml
    }

    /// With the rules for the fence itself, which the policy of the mark has as well: which of two
    /// policies refuses first is up to the API server, and the words should be the same.
    fn floor_rules(&self) -> Vec<Rule> {
        let mut rules = self.form_rules();
        rules.push(Rule {
            why: "A Lease without a token is no floor.",
            expression: "variables.floorGood".to_owned(),
            words: format!(
                "'ringfence: the Lease {} carries no token, so nothing guarded by it is written'",
                self.object
            ),
            plain: "ringfence: the Lease carries no token",
        });
        rules.push(Rule {
            why: "The guard's rule, with the floor as the mark.",
            expression: "!variables.good || !variables.floorGood || int(variables.token) >= \
                         int(variables.floor)"
                .to_owned(),
            words: format!(
                "'ringfence: stale fence ' + variables.fence + ': the Lease {} is at token ' + \
                 variables.floor",
                self.object
            ),
            plain: "ringfence: stale fence: the Lease is at a newer token",
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
