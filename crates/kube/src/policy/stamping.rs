//! What changes writes on their way: the stamp of a fenced one, and the mark under one that is not.

use super::carrier::Carrier;
use super::fencing::Fencing;
use super::judging::{carries_the_object, is_token, mark_of};
use super::lowering::lowered;
use super::manifest::head;
use super::text::{folded, named};
use crate::{CLUSTER, TOKEN};

const STAMP: &str = "The stamp: a fenced write leaves its token on the object, whatever its body says, \
so that the next one is compared with it. A stale one is stamped as well, and then refused by the \
mark. An object that carries the token already is left as it is: to change one takes the API server \
longer than to judge it. It has no parameters: a mutating policy with one would stop the copy of Leases \
that the floor compares with.";

const KEEP: &str = "No writer takes the mark away: who is not fenced (an admin's replace, an old manifest) \
may write the object, and the mark that it had stays, unless the write raises it. The fenced account \
is not helped like that: a stale write is refused, not mended. Deleting the object takes the mark \
with it. An administrator who has to lower one names it, see the policy `lower` below.";

impl Fencing {
    /// The policy that stamps, and its binding.
    pub(super) fn stamp(&self) -> String {
        let mut yaml = self.mutating_head(STAMP, "stamp");
        let carried = self.carried();
        let bytes = self.beginning().len();
        let lease = self.lease.as_str().replace('.', "[.]");
        let (end, token) = match self.carrier {
            Carrier::Sequence => (
                "[.][1-9][0-9]{0,17}$",
                format!("{carried}.substring({bytes}, {carried}.lastIndexOf('.'))"),
            ),
            Carrier::Impersonate | Carrier::FieldManager => {
                ("$", format!("{carried}.substring({bytes})"))
            }
        };
        let fenced = format!("{carried}.matches('^{lease}#[1-9][0-9]{{0,18}}{end}')");
        yaml.push_str(&self.resource_rules(&["", "/*"], "CREATE, UPDATE"));
        yaml.push_str(&self.canary_rule());
        yaml.push_str("  matchConditions:\n");
        yaml.push_str(&named(4, "subject", &self.by_subject()));
        yaml.push_str(&named(4, "object", &carries_the_object()));
        yaml.push_str(&named(4, "fence", &fenced));
        let mut new = format!("{} != {token}", mark_of("object"));
        if let Some(cluster) = &self.cluster {
            new.push_str(&format!(" || {} != '{cluster}'", cluster_of("object")));
        }
        yaml.push_str(&named(4, "new", &new));
        yaml.push_str(&self.mutation(&token));
        yaml.push_str(&self.binding("stamp", "MutatingAdmissionPolicyBinding", false));
        yaml
    }

    /// The policy that keeps marks, and its binding.
    pub(super) fn keep(&self) -> String {
        let mut yaml = self.mutating_head(KEEP, "keep");
        let (old, new) = (mark_of("oldObject"), mark_of("object"));
        let mut falls = format!("!{} || int({new}) < int({old})", is_token(&new));
        if let Some(counts) = self.counts("object") {
            falls.push_str(&format!(" || !({counts})"));
        }
        yaml.push_str(&self.resource_rules(&["", "/*"], "UPDATE"));
        yaml.push_str("  matchConditions:\n");
        let others = format!("request.userInfo.username != '{}'", self.account.user());
        yaml.push_str(&named(4, "others", &others));
        let marked = match self.counts("oldObject") {
            Some(counts) => format!("{} && {counts}", is_token(&old)),
            None => is_token(&old),
        };
        yaml.push_str(&named(4, "marked", &marked));
        yaml.push_str(&named(4, "falls", &falls));
        yaml.push_str(&named(4, "unasked", &format!("!({})", lowered())));
        yaml.push_str(&self.mutation(&old));
        yaml.push_str(&self.binding("keep", "MutatingAdmissionPolicyBinding", false));
        yaml
    }

    /// A mark with this token, and the cluster that it is of where one is named.
    fn mutation(&self, token: &str) -> String {
        let of = self.cluster.as_ref();
        let of = of.map(|cluster| format!(", '{CLUSTER}': '{cluster}'"));
        let of = of.unwrap_or_default();
        let object = format!(
            "Object{{metadata: Object.metadata{{annotations: {{'{TOKEN}': {token}{of}}}}}}}"
        );
        let expression = folded(8, "expression", &object);
        format!(
            "  mutations:\n    - patchType: ApplyConfiguration\n      \
             applyConfiguration:\n{expression}"
        )
    }

    fn mutating_head(&self, why: &str, kind: &str) -> String {
        let api = "admissionregistration.k8s.io/v1";
        let head = head(why, api, "MutatingAdmissionPolicy", &self.named(kind));
        let again = match kind {
            "stamp" => "IfNeeded",
            _ => "Never",
        };
        format!(
            "{head}spec:\n  failurePolicy: Fail\n  reinvocationPolicy: {again}\n  \
             matchConstraints:\n    resourceRules:\n"
        )
    }
}

/// The cluster that an object's mark is said to be of.
fn cluster_of(object: &str) -> String {
    format!("{object}.?metadata.?annotations[?'{CLUSTER}'].orValue('')")
}
