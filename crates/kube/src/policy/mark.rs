//! The mark: the annotation on the object itself, judged where the object is stored.

use super::carrier::{Carrier, STAMP};
use super::fencing::Fencing;
use super::judging::{carries_the_object, is_token, mark_of};
use super::manifest::validations;
use super::text::{Rule, named};
use crate::TOKEN;

/// What a refusal begins with, behind [`REFUSAL`](super::REFUSAL), if a write has no number of its
/// own and inherits that of the write before.
pub const INHERITED: &str = "the number of the stamp ";

const WHY: &str = "The mark, which is the guarantee: no write with a lower token than the object was \
written with before. The API server judges an update inside the transaction that stores it, and \
judges it again if the object has changed meanwhile; so nothing can be late here, also with several \
API servers. It has no parameters: no missing Lease switches it off.";

const STAMPED: &str = "The write leaves its token as the new mark. If the policy that stamps is gone, \
nothing is written; nor by a subresource that carries the object and keeps none of its annotations \
(pods/resize, pods/ephemeralcontainers), until the object itself was written with this fence.";

const MARKED: &str = "The write leaves its token as the new mark, no other one: the client writes it, \
since no policy does.";

impl Fencing {
    /// The policy and its binding.
    pub(super) fn mark(&self) -> String {
        let mut yaml = self.judging_head(WHY, "mark", "");
        let none = match self.counts("oldObject") {
            // Another cluster's tokens have another order: a copy of its object has no mark here.
            Some(counts) => format!("oldObject == null || !({counts})"),
            None => "oldObject == null".to_owned(),
        };
        let mark = format!("{none} ? '' : {}", mark_of("oldObject"));
        yaml.push_str(&named(4, "mark", &mark));
        yaml.push_str(&named(4, "markGood", &is_token("variables.mark")));
        yaml.push_str(&self.stamp_variables());
        let mut rules = self.form_rules();
        rules.extend(self.mark_rules());
        yaml.push_str(&validations(&rules));
        yaml.push_str(&self.binding("mark", "ValidatingAdmissionPolicyBinding", false));
        yaml
    }

    /// The stamp that the object has, where the carrier is a stamp.
    fn stamp_variables(&self) -> String {
        if self.carrier != Carrier::Sequence {
            return String::new();
        }
        let before = format!(
            "oldObject == null ? '' : oldObject.?metadata.?annotations[?'{STAMP}'].orValue('')"
        );
        let same = "variables.before.lastIndexOf('.') > 0 && variables.numbered && \
                    variables.before.startsWith(variables.fence + '.') && \
                    variables.before.matches('[.][1-9][0-9]{0,17}$')";
        named(4, "before", &before) + &named(4, "sameFence", same)
    }

    /// Whether the object has the token of the request as its mark.
    fn stamped(&self) -> String {
        let token = format!("{} == variables.token", mark_of("object"));
        match self.counts("object") {
            Some(counts) => format!("({token} && {counts})"),
            None => token,
        }
    }

    fn mark_rules(&self) -> Vec<Rule> {
        let mut rules = vec![
            Rule {
                why: "A mark that is no token was written by hand; its meaning is unknown.",
                expression: "variables.mark == '' || variables.markGood".to_owned(),
                words: format!(
                    "'ringfence: the stored object has the malformed mark ' + variables.mark + \
                     ' (annotation {TOKEN}); put it right by hand'"
                ),
                plain: "ringfence: the stored object has a malformed mark",
            },
            Rule {
                why: "The guard's rule: at least the mark.",
                expression: "!variables.good || !variables.markGood || int(variables.token) >= \
                             int(variables.mark)"
                    .to_owned(),
                words: "'ringfence: stale fence ' + variables.fence + ': the object was already \
                        written with token ' + variables.mark"
                    .to_owned(),
                plain: "ringfence: stale fence: the object was already written with a newer token",
            },
        ];
        if self.carrier == Carrier::Sequence {
            rules.push(Rule {
                why: "A patch that does not name the annotation inherits it from the stored object, \
                      and would pass with another writer's fence: the number has to grow.",
                expression: "!variables.sameFence || \
                             int(variables.stamp.substring(variables.stamp.lastIndexOf('.') + 1)) > \
                             int(variables.before.substring(variables.before.lastIndexOf('.') + 1))"
                    .to_owned(),
                words: format!(
                    "'ringfence: {INHERITED}' + variables.stamp + ' has not grown: the object was \
                     already written with ' + variables.before"
                ),
                plain: "ringfence: the number of the stamp has not grown",
            });
        }
        let (why, what_to_do) = match self.mutation {
            true => (
                STAMPED,
                format!(
                    "write the object itself first; is the policy {} bound?",
                    self.named("stamp")
                ),
            ),
            false => (
                MARKED,
                "the client has to write it itself, beside its fence".to_owned(),
            ),
        };
        rules.push(Rule {
            why,
            expression: format!(
                "!variables.good || request.operation in ['DELETE', 'CONNECT'] || !{} || {}",
                carries_the_object(),
                self.stamped(),
            ),
            words: format!(
                "'ringfence: the object is not stamped with token ' + variables.token + ' \
                 (annotation {TOKEN}): {what_to_do}'",
            ),
            plain: "ringfence: the object is not stamped with the token of the request",
        });
        rules
    }
}
