//! The ways to a Pod that its name does not show.
//!
//! A Binding gives a Pod its node. It is created below the Pod, or at an older path where it is a resource of its
//! own, `bindings`. The API server writes the annotations of a Binding onto the Pod, and no policy sees that
//! write.

use super::fencing::Fencing;
use super::lowering::LOWER;
use super::manifest::{BINDINGS, validations};
use super::text::{Rule, named};
use crate::{CLUSTER, TOKEN};

const WHY: &str = "A Binding of a Pod may carry none of our annotations, from any account: the API server \
copies them onto the Pod, and a mark would fall that way without being judged.";

impl Fencing {
    /// The policy that judges the annotations of Bindings, and its binding; nothing if no Pod is
    /// guarded.
    pub(super) fn bind(&self) -> String {
        if !self.guards_pods() {
            return String::new();
        }
        let mut yaml = self.validating_head(WHY, "bind", "");
        yaml.push_str(&format!(
            "      - apiGroups: [\"\"]\n        apiVersions: [\"*\"]\n        resources: [\"{BINDINGS}\", \
             \"pods/binding\"]\n        operations: [CREATE]\n        scope: \"*\"\n"
        ));
        yaml.push_str("  variables:\n");
        let annotations = "object.?metadata.?annotations.orValue({})";
        yaml.push_str(&named(4, "annotations", annotations));
        yaml.push_str(&validations(&[Rule {
            why: "Neither a mark, nor what lowers one, nor whose it is.",
            expression: format!(
                "!('{TOKEN}' in variables.annotations || '{LOWER}' in variables.annotations || \
                 '{CLUSTER}' in variables.annotations)"
            ),
            words: format!(
                "'ringfence: a Binding has one of the annotations {TOKEN}, {LOWER}, {CLUSTER}, which would \
                 come onto its Pod unjudged; leave them out'"
            ),
            plain: "ringfence: a Binding has an annotation that would change the mark of its Pod",
        }]));
        yaml.push_str(&self.binding("bind", "ValidatingAdmissionPolicyBinding", false));
        yaml
    }
}
