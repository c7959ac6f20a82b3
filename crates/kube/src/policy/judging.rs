//! The expressions by which a policy finds a request's fence and judges it.
//!
//! Each has a value for every request, since a policy whose expression fails lets the API server
//! choose the words. Later rules are guarded by what earlier ones refuse, because all are evaluated.

use ringfence_planted::{Bug, planted};

use super::carrier::{Carrier, FENCE_EXTRA, STAMP};
use super::fencing::Fencing;
use super::manifest::head;
use super::text::{Rule, named};
use crate::{CLUSTER, TOKEN};

/// A token's text: decimal, without sign or leading zero. The greatest is compared as a text, since
/// a number above it is none.
pub(super) fn is_token(text: &str) -> String {
    format!(
        "({text}.matches('^[1-9][0-9]{{0,18}}$') && (size({text}) < 19 || {text} <= \
         '9223372036854775807'))"
    )
}

/// The mark on an object that may be none: `object`, `oldObject`.
pub(super) fn mark_of(object: &str) -> String {
    format!("{object}.?metadata.?annotations[?'{TOKEN}'].orValue('')")
}

/// Kinds that subresources carry instead of the object that they belong to: what is written by them
/// has no annotations of the object, so no mark.
const KINDS_OF_THEIR_OWN: [&str; 4] = [
    "autoscaling/Scale",
    "policy/Eviction",
    "/Binding",
    "authentication.k8s.io/TokenRequest",
];

/// Whether a write carries the guarded object itself, whatever the subresource: `pods/status`,
/// `pods/resize` and `pods/ephemeralcontainers` carry the Pod.
pub(super) fn carries_the_object() -> String {
    if planted(Bug::MarkByNameOfSubresource) {
        return "(request.?subResource.orValue('') in ['', 'status'])".to_owned();
    }
    format!(
        "!(request.kind.group + '/' + request.kind.kind in ['{}'])",
        KINDS_OF_THEIR_OWN.join("', '")
    )
}

impl Fencing {
    /// Whether the mark on an object is one that counts: of this cluster, or of none that is named.
    /// `None` if all count.
    pub(super) fn counts(&self, object: &str) -> Option<String> {
        let cluster = self.cluster.as_ref()?;
        Some(format!(
            "{object}.?metadata.?annotations[?'{CLUSTER}'].orValue('{cluster}') == '{cluster}'"
        ))
    }

    /// The head of a validating policy, up to its `resourceRules`.
    pub(super) fn validating_head(&self, why: &str, kind: &str, params: &str) -> String {
        let api = "admissionregistration.k8s.io/v1";
        let mut yaml = head(why, api, "ValidatingAdmissionPolicy", &self.named(kind));
        yaml.push_str("spec:\n  failurePolicy: Fail\n");
        yaml.push_str(params);
        yaml.push_str("  matchConstraints:\n    resourceRules:\n");
        yaml
    }

    /// A policy that judges every write of the fenced account, up to its own variables and rules:
    /// its name, what it matches, and the variables of [`Fencing::variables`].
    pub(super) fn judging_head(&self, why: &str, kind: &str, params: &str) -> String {
        let mut yaml = self.validating_head(why, kind, params);
        let operations = "CREATE, UPDATE, DELETE, CONNECT";
        yaml.push_str(&self.resource_rules(&["", "/*"], operations));
        yaml.push_str(&self.canary_rule());
        yaml.push_str("  matchConditions:\n");
        yaml.push_str(&named(4, "subject", &self.by_subject()));
        yaml.push_str("  variables:\n");
        yaml.push_str(&self.variables(4));
        yaml
    }

    /// The condition under which a policy looks at a request at all.
    pub(super) fn by_subject(&self) -> String {
        format!("request.userInfo.username == '{}'", self.account.user())
    }

    /// What every fence of the lease begins with.
    pub(super) fn beginning(&self) -> String {
        format!("{}#", self.lease)
    }

    /// What a request carries as its fence, in one expression; the first, if there are several.
    pub(super) fn carried(&self) -> String {
        match self.carrier {
            Carrier::Impersonate => {
                format!("request.userInfo.?extra[?'{FENCE_EXTRA}'][?0].orValue('')")
            }
            Carrier::FieldManager => "request.?options.?fieldManager.orValue('')".to_owned(),
            Carrier::Sequence => {
                format!("object.?metadata.?annotations[?'{STAMP}'].orValue('')")
            }
        }
    }

    /// The variables `fence`, `token` and `good`, and what they stand on.
    pub(super) fn variables(&self, indent: usize) -> String {
        let (beginning, bytes) = (self.beginning(), self.beginning().len());
        let carried = self.carried();
        let mut variables: Vec<(&str, String)> = match self.carrier {
            Carrier::Impersonate => vec![
                (
                    "fences",
                    format!("request.userInfo.?extra[?'{FENCE_EXTRA}'].orValue([])"),
                ),
                (
                    "fence",
                    "size(variables.fences) == 1 ? variables.fences[0] : ''".to_owned(),
                ),
            ],
            Carrier::FieldManager => vec![
                (
                    "manager",
                    // A connection has no options.
                    format!("request.operation == 'CONNECT' ? '' : {carried}"),
                ),
                (
                    "fence",
                    "variables.manager.contains('#') ? variables.manager : ''".to_owned(),
                ),
            ],
            Carrier::Sequence => vec![
                ("stamp", format!("object == null ? '' : {carried}")),
                (
                    "numbered",
                    "variables.stamp.matches('^[^#]+#[^#.]*[.][1-9][0-9]{0,17}$')".to_owned(),
                ),
                (
                    "fence",
                    "variables.numbered ? variables.stamp.substring(0, \
                     variables.stamp.lastIndexOf('.')) : variables.stamp"
                        .to_owned(),
                ),
            ],
        };
        let token = format!(
            "variables.fence.startsWith('{beginning}') ? variables.fence.substring({bytes}) : ''"
        );
        let good = is_token("variables.token");
        let good = match self.carrier {
            Carrier::Sequence => format!("variables.numbered && {good}"),
            Carrier::Impersonate | Carrier::FieldManager => good,
        };
        variables.extend([("token", token), ("good", good)]);
        let variables = variables.iter();
        variables
            .map(|(name, expression)| named(indent, name, expression))
            .collect()
    }

    /// What must be true of every fence, whatever the object is.
    pub(super) fn form_rules(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        if self.carrier == Carrier::Impersonate {
            rules.push(Rule {
                why: "Two fences are none: it is unknown which one counts.",
                expression: "size(variables.fences) <= 1".to_owned(),
                words: format!(
                    "'ringfence: ' + request.operation + ' carries ' + \
                     string(size(variables.fences)) + ' fences, expected one ({})'",
                    self.carrier.place()
                ),
                plain: "ringfence: the request carries several fences",
            });
        }
        rules.push(self.demand());
        if !self.carrier.deletes() {
            rules.push(Rule {
                why: "A deletion cannot carry a fence so. It has to name the version that it \
                      deletes: the deleter writes the object with its fence, then deletes what it \
                      has written.",
                expression: "request.operation != 'DELETE' || \
                             request.?options.?preconditions.?resourceVersion.orValue('') != ''"
                    .to_owned(),
                words:
                    "'ringfence: ' + request.operation + ' of a guarded object names no version: \
                        write the object with its fence, then delete that version \
                        (preconditions.resourceVersion)'"
                        .to_owned(),
                plain: "ringfence: the deletion of a guarded object names no version",
            });
        }
        let beginning = self.beginning();
        rules.push(Rule {
            why: "Tokens grow over all leases: a newer token of another lease is greater than any \
                  of this one, and says nothing here.",
            expression: format!(
                "!variables.fence.contains('#') || variables.fence.startsWith('{beginning}')"
            ),
            words: format!(
                "'ringfence: fence ' + variables.fence + ' is of another lease; {} guards this \
                 object'",
                self.lease
            ),
            plain: "ringfence: the fence is of another lease",
        });
        let form = match self.carrier {
            Carrier::Sequence => "#TOKEN.NUMBER, both decimal, TOKEN",
            Carrier::Impersonate | Carrier::FieldManager => "#TOKEN, decimal,",
        };
        rules.push(Rule {
            why: "A text that is no fence has no order.",
            expression: format!(
                "variables.good || variables.fence == '' || (variables.fence.contains('#') && \
                 !variables.fence.startsWith('{beginning}'))"
            ),
            words: format!(
                "'ringfence: malformed fence ' + variables.fence + '; expected {}{form} from 1 to \
                 9223372036854775807'",
                self.lease
            ),
            plain: "ringfence: the fence is malformed",
        });
        rules
    }

    fn demand(&self) -> Rule {
        let exempt = match self.carrier {
            Carrier::Impersonate => "size(variables.fences) > 1",
            Carrier::FieldManager | Carrier::Sequence => "request.operation == 'DELETE'",
        };
        let connects = match self.carrier {
            Carrier::Impersonate => "",
            Carrier::FieldManager | Carrier::Sequence => {
                " + (request.operation == 'CONNECT' ? '; exec, attach, portforward and proxy carry \
                 one with the carrier impersonate alone' : '')"
            }
        };
        Rule {
            why: "Every write of the fenced account carries a fence. So does every connection (exec, \
                  attach, portforward, proxy), since it is unknown what is done over it.",
            expression: format!("{exempt} || variables.fence != ''"),
            words: format!(
                "'ringfence: ' + request.operation + ' carries no fence ({})'{connects}",
                self.carrier.place()
            ),
            plain: "ringfence: the request carries no fence",
        }
    }
}
