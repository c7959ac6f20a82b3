//! Who is not fenced takes no mark away: it is put back, or the write is refused.

use super::fencing::Fencing;
use super::judging::{is_token, mark_of};
use super::lowering::{LOWER, lowered};
use super::manifest::validations;
use super::text::{Rule, named};
use crate::TOKEN;

const RESTORE: &str = "No writer takes the mark away: who is not fenced (an admin's replace, an old manifest) \
may write the object, and the mark that it had stays, unless the write raises it. The fenced account \
is not helped like that: a stale write is refused, not mended. Deleting the object takes the mark \
with it. An administrator who has to lower one names it, see the policy `lower` below.";

const REFUSE: &str = "No writer takes the mark away: a write of an account that is not fenced (an admin's \
replace, an old manifest) is refused if it drops or lowers the mark. All other writes of such accounts \
pass. Deleting the object takes the mark with it. An administrator who has to lower one names it, see \
the policy `lower` below.";

impl Fencing {
    /// The policy that keeps marks, and its binding.
    pub(super) fn keep(&self) -> String {
        match self.mutation {
            true => self.restore(),
            false => self.refuse(),
        }
    }

    fn restore(&self) -> String {
        let mut yaml = self.mutating_head(RESTORE, "keep");
        yaml.push_str(&self.of_marked_objects());
        yaml.push_str(&named(4, "falls", &self.falls()));
        yaml.push_str(&named(4, "unasked", &format!("!({})", lowered())));
        yaml.push_str(&self.mutation_to(&mark_of("oldObject")));
        yaml.push_str(&self.binding("keep", "MutatingAdmissionPolicyBinding", false));
        yaml
    }

    fn refuse(&self) -> String {
        let mut yaml = self.validating_head(REFUSE, "keep", "");
        yaml.push_str(&self.of_marked_objects());
        yaml.push_str("  variables:\n");
        for (name, object) in [("before", "oldObject"), ("after", "object")] {
            yaml.push_str(&named(4, name, &mark_of(object)));
        }
        yaml.push_str(&validations(&[Rule {
            why: "As a guard's mark: what is written instead is the same or higher, unless an \
                  administrator lowers it by name.",
            expression: format!("!({}) || ({})", self.falls(), lowered()),
            words: format!(
                "'ringfence: the mark ' + variables.before + ' (annotation {TOKEN}) would fall to ' + \
                 (variables.after == '' ? 'none' : variables.after) + ': read the object again, and \
                 write it with this annotation as it stands; who has to lower it names the mark in \
                 annotation {LOWER}'"
            ),
            plain: "ringfence: the mark would fall (annotation ringfence.io/token)",
        }]));
        yaml.push_str(&self.binding("keep", "ValidatingAdmissionPolicyBinding", false));
        yaml
    }

    /// Updates of objects with a mark, by accounts that are not fenced: what the policy matches.
    fn of_marked_objects(&self) -> String {
        let old = mark_of("oldObject");
        let mut yaml = self.resource_rules(&["", "/*"], "UPDATE");
        yaml.push_str("  matchConditions:\n");
        let others = format!("request.userInfo.username != '{}'", self.account.user());
        yaml.push_str(&named(4, "others", &others));
        let marked = match self.counts("oldObject") {
            Some(counts) => format!("{} && {counts}", is_token(&old)),
            None => is_token(&old),
        };
        yaml.push_str(&named(4, "marked", &marked));
        yaml
    }

    /// Whether the mark of a marked object falls.
    fn falls(&self) -> String {
        let (old, new) = (mark_of("oldObject"), mark_of("object"));
        let mut falls = format!("!{} || int({new}) < int({old})", is_token(&new));
        if let Some(counts) = self.counts("object") {
            falls.push_str(&format!(" || !({counts})"));
        }
        falls
    }
}
