//! What manifests are made of.

use ringfence_planted::{Bug, planted};

use super::fencing::Fencing;
use super::text::{Rule, comment};

/// Separates the documents of a YAML stream.
pub(super) const DIVIDER: &str = "---\n";

/// What gives Pods their nodes at a path of its own, where their name is not.
pub(super) const BINDINGS: &str = "bindings";

impl Fencing {
    /// Whether Pods are guarded.
    pub(super) fn guards_pods(&self) -> bool {
        let mut resources = self.resources.iter();
        resources.any(|of| of.group.is_empty() && of.plural == "pods")
    }

    /// The resources of a policy as `resourceRules`, one per group, and the canary's objects.
    pub(super) fn resource_rules(&self, subresources: &[&str], operations: &str) -> String {
        let mut rules = String::new();
        let mut groups: Vec<&str> = self.resources.iter().map(|of| of.group.as_str()).collect();
        groups.dedup();
        for group in groups {
            let of_group = self.resources.iter().filter(|of| of.group == group);
            let names = of_group.flat_map(|of| {
                let each = subresources.iter();
                each.map(|part| format!("{}{part}", of.plural))
            });
            let mut names: Vec<String> = names.collect();
            if group.is_empty() && self.guards_pods() && subresources.contains(&"/*") {
                names.push(BINDINGS.to_owned());
            }
            rules.push_str(&format!(
                "      - apiGroups: [\"{group}\"]\n        apiVersions: [\"*\"]\n        resources: \
                 [{}]\n        operations: [{operations}]\n        scope: \"*\"\n",
                quoted(&names)
            ));
        }
        rules
    }

    /// The canary's objects as one of `resourceRules`.
    pub(super) fn canary_rule(&self) -> String {
        let names = [self.canary_floor(), self.canary_mark()];
        format!(
            "      - apiGroups: [\"\"]\n        apiVersions: [\"*\"]\n        resources: \
             [configmaps]\n        resourceNames: [{}]\n        operations: [UPDATE]\n        scope: \
             \"*\"\n",
            names.join(", ")
        )
    }

    /// A binding of the policy of the same name.
    pub(super) fn binding(&self, kind: &str, of: &str, with_lease: bool) -> String {
        let name = self.named(kind);
        let mut yaml = format!(
            "{DIVIDER}apiVersion: admissionregistration.k8s.io/v1\nkind: {of}\nmetadata:\n  name: \
             {name}\nspec:\n  policyName: {name}\n"
        );
        if with_lease {
            // `Deny` would refuse every user's writes while it is missing, the namespace controller's
            // among them: parameters are looked for before the subject is.
            let missing = match planted(Bug::BindingDeniesEverybody) {
                true => "Deny",
                false => "Allow",
            };
            yaml.push_str(&format!(
                "  paramRef:\n    name: {}\n    namespace: {}\n    parameterNotFoundAction: {missing}\n",
                quoted(&[self.floor.name.to_string()]),
                quoted(&[self.floor.namespace.to_string()]),
            ));
        }
        if of == "ValidatingAdmissionPolicyBinding" {
            yaml.push_str("  validationActions: [Deny]\n");
        }
        yaml.push_str(&format!(
            "  matchResources:\n    namespaceSelector:\n      matchExpressions:\n        - key: \
             kubernetes.io/metadata.name\n          operator: In\n          values: [{}]\n",
            quoted(&self.namespaces)
        ));
        yaml
    }
}

/// The beginning of a manifest, after what it is for.
pub(super) fn head(why: &str, api: &str, kind: &str, name: &str) -> String {
    let why = comment(why);
    format!("{DIVIDER}{why}apiVersion: {api}\nkind: {kind}\nmetadata:\n  name: {name}\n")
}

/// Renders rules as the `validations` of a policy.
pub(super) fn validations(rules: &[Rule]) -> String {
    let rules: String = rules.iter().map(Rule::yaml).collect();
    format!("  validations:\n{rules}")
}

/// Texts in a list, between quotes: a name may look like a number, or be `true`.
pub(super) fn quoted(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("\"{text}\"")).collect();
    quoted.join(", ")
}
