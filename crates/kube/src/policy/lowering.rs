//! The one way to lower a mark: an administrator names the mark that is to fall.

use super::fencing::Fencing;
use super::judging::is_token;
use super::text::{Rule, named};
use crate::TOKEN;

/// The annotation by which an administrator lowers a mark: its value is the mark that falls. It has
/// to come with the write that lowers, and stays on the object as a record.
pub const LOWER: &str = "ringfence.io/lower-mark";

/// What lowering a mark, or deleting a floor, takes: a verb on a resource that stands for no object.
/// Cluster administrators have it with their wildcards.
pub(super) const RIGHT: &str = "authorizer.group('ringfence.io').resource('tokens')";

const WHY: &str = "How a mark falls: an administrator writes the object with the new mark, or none, and \
with the annotation ringfence.io/lower-mark, whose value is the mark that falls. It works once, for \
this very mark, and for those alone who have the verb `lower` on the resource `tokens` of \
`ringfence.io` (the ClusterRole ringfence-lower-tokens; cluster administrators have it). The audit \
log and the annotation keep what was done.";

impl Fencing {
    /// The policy that judges who lowers a mark, and its binding.
    pub(super) fn lower(&self) -> String {
        let mut yaml = self.validating_head(WHY, "lower", "");
        yaml.push_str(&self.resource_rules(&["", "/*"], "UPDATE"));
        yaml.push_str("  matchConditions:\n");
        yaml.push_str(&named(4, "asked", &asked()));
        yaml.push_str("  variables:\n");
        for (name, expression) in [
            ("wanted", annotation("object", LOWER)),
            ("before", annotation("oldObject", TOKEN)),
            ("after", annotation("object", TOKEN)),
        ] {
            yaml.push_str(&named(4, name, &expression));
        }
        yaml.push_str(&named(4, "beforeGood", &is_token("variables.before")));
        yaml.push_str(&named(4, "afterGood", &is_token("variables.after")));
        yaml.push_str("  auditAnnotations:\n    - key: lowered-mark\n");
        let told = "variables.before + ' to ' + (variables.after == '' ? 'none' : variables.after) + \
                    ' by ' + request.userInfo.username";
        yaml.push_str(&super::text::folded(6, "valueExpression", told));
        yaml.push_str(&super::manifest::validations(&rules()));
        yaml.push_str(&self.binding("lower", "ValidatingAdmissionPolicyBinding", false));
        yaml
    }
}

fn annotation(object: &str, name: &str) -> String {
    format!("{object}.?metadata.?annotations[?'{name}'].orValue('')")
}

/// Whether a write asks for a mark to fall. What stands on the object from an earlier one does not.
fn asked() -> String {
    let (old, new) = (annotation("oldObject", LOWER), annotation("object", LOWER));
    format!("{new} != '' && {new} != {old}")
}

/// Whether a write lowers a mark with every right to: the policy that keeps marks lets it pass.
pub(super) fn lowered() -> String {
    let mark = annotation("oldObject", TOKEN);
    let named = annotation("object", LOWER);
    format!("{} && {named} == {mark} && {}", asked(), allowed())
}

fn allowed() -> String {
    format!("{RIGHT}.check('lower').allowed()")
}

fn rules() -> Vec<Rule> {
    vec![
        Rule {
            why: "Who may.",
            expression: allowed(),
            words:
                "'ringfence: ' + request.userInfo.username + ' may not lower marks; that takes the \
                    verb lower on tokens.ringfence.io'"
                    .to_owned(),
            plain: "ringfence: this user may not lower marks",
        },
        Rule {
            why: "An old manifest names an old mark, and lowers nothing.",
            expression: "variables.wanted == variables.before".to_owned(),
            words: format!(
                "'ringfence: annotation {LOWER} names the mark ' + variables.wanted + ', and the mark \
                 (annotation {TOKEN}) is ' + (variables.before == '' ? 'none' : variables.before)"
            ),
            plain: "ringfence: the annotation that lowers a mark names another mark",
        },
        Rule {
            why: "What is written instead is none, or a lower one.",
            expression:
                "variables.after == '' || (variables.afterGood && (!variables.beforeGood || \
                         int(variables.after) < int(variables.before)))"
                    .to_owned(),
            words: format!(
                "'ringfence: annotation {LOWER} asks for a lower mark, and annotation {TOKEN} is ' + \
                 variables.after + '; leave it out, or write a token below ' + variables.before"
            ),
            plain: "ringfence: the new mark is not lower than the old one",
        },
    ]
}
