//! What stands in the cluster about rights, and one change of it.

use ringfence_client::unstable;
use ringfence_core::{Mode, Principal, PrincipalPattern, Rule, Verb};
use ringfence_proto::v1::access_change::Change;
use ringfence_proto::v1::access_client::AccessClient;
use ringfence_proto::v1::{
    self, AccessChange, ChangeAccessRequest, ChangeAccessResponse, GetAccessRequest,
    GetAccessResponse, WhoAmIRequest, WhoAmIResponse,
};
use ringfence_proto::wire;
use serde_json::{Value, json};

use crate::cli::context::Context;
use crate::cli::{Failure, exit};

/// What stands there now.
pub(super) async fn read(context: &Context) -> Result<GetAccessResponse, Failure> {
    let ask = |channel| async move {
        let mut access =
            AccessClient::new(channel).max_decoding_message_size(unstable::MESSAGE_BYTES_MAX);
        access.get_access(GetAccessRequest {}).await
    };
    let access = unstable::unary(&context.client, ask).await?;
    if access.cluster_id.is_empty() {
        let message = "the node knows no rights: it belongs to no cluster yet";
        return Err(Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", message)
            .hint("`cluster status` shows what each node waits for"));
    }
    Ok(access)
}

/// Who the cluster takes this command for.
pub(super) async fn whoami(context: &Context) -> Result<WhoAmIResponse, Failure> {
    let ask = |channel| async move { AccessClient::new(channel).who_am_i(WhoAmIRequest {}).await };
    Ok(unstable::unary(&context.client, ask).await?)
}

/// Changes what was read: a change by another operator meanwhile is not undone, but refused.
pub(super) async fn change(
    context: &Context,
    before: &GetAccessResponse,
    changes: Vec<Change>,
) -> Result<ChangeAccessResponse, Failure> {
    let changes = changes.into_iter();
    let request = ChangeAccessRequest {
        cluster_id: before.cluster_id.clone(),
        based_on: before.access_index,
        changes: changes
            .map(|change| AccessChange {
                change: Some(change),
            })
            .collect(),
    };
    let ask = move |channel| {
        let request = request.clone();
        async move { AccessClient::new(channel).change_access(request).await }
    };
    Ok(unstable::unary(&context.client, ask).await?)
}

/// The mode as people write it.
pub(super) fn mode_text(mode: v1::AccessMode) -> &'static str {
    wire::mode_from_wire(mode).map_or("unknown", Mode::as_str)
}

/// Reminds of a mode in which nothing is refused.
pub(super) fn remind_of_mode(context: &Context, mode: v1::AccessMode) {
    if wire::mode_from_wire(mode) != Some(Mode::Enforced) {
        context.output.remark(format!(
            "rights bind in the mode `enforced` only; the mode is `{}`",
            mode_text(mode)
        ));
    }
}

/// Warns of the first new rule that lets callers without a credential do what operators do.
pub(super) fn warn_of_open_doors<'a>(context: &Context, new: impl IntoIterator<Item = &'a Rule>) {
    if let Some(warning) = new.into_iter().find_map(open_door) {
        context.output.remark(warning);
    }
}

/// What is wrong with such a rule, and how it is taken back.
fn open_door(rule: &Rule) -> Option<String> {
    let is_for_all = match &rule.principals {
        PrincipalPattern::Exact(who) => who.as_str() == Principal::ANONYMOUS,
        PrincipalPattern::Prefix(prefix) => prefix.is_empty(),
    };
    let what = match rule.verb {
        Verb::Admin => "change rules, tokens and the mode",
        Verb::Operate => "change the members",
        Verb::Configure => "change the settings",
        Verb::Backup => "take a backup of the whole state",
        Verb::Acquire | Verb::Observe | Verb::Revoke => return None,
    };
    is_for_all.then(|| {
        format!(
            "warning: `{rule}` lets every process that reaches a client port {what}, without any \
             credential; unless that is meant: ringfence access revoke '{}' {}",
            rule.principals, rule.verb
        )
    })
}

/// A rule as programs read it.
pub(super) fn rule_object(rule: &Rule) -> Value {
    json!({
        "principals": rule.principals.to_string(),
        "verb": rule.verb.as_str(),
        "names": rule.names.as_ref().map(ToString::to_string),
    })
}

/// A rule that the cluster tells.
pub(super) fn told(rule: &v1::Rule) -> Result<Rule, Failure> {
    wire::rule_from_wire(rule, "rule").map_err(|refusal| {
        let message = format!(
            "the cluster tells a rule that makes no sense: {}",
            refusal.message
        );
        Failure::new(exit::UNAVAILABLE, "FAULT", message)
            .hint("use a `ringfence` of the cluster's version: see --version")
    })
}

/// A principal on the command line.
pub(super) fn principal(raw: &str) -> Result<Principal, String> {
    Principal::parse(raw).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringfence_core::NamePattern;

    use super::*;

    #[test]
    fn only_what_operators_do_is_warned_of_and_only_for_everybody() {
        let warning = |who: &str, verb, names: Option<&str>| {
            open_door(&Rule {
                principals: PrincipalPattern::parse(who).unwrap(),
                verb,
                names: names.map(|names| NamePattern::parse(names).unwrap()),
            })
        };
        for who in ["*", "anonymous"] {
            let warned = warning(who, Verb::Admin, None).unwrap();
            assert!(warned.contains(&format!("ringfence access revoke '{who}' admin")));
            assert!(!warned.contains('\n'), "{warned}");
            assert!(warning(who, Verb::Operate, None).is_some());
            assert_eq!(warning(who, Verb::Acquire, Some("*")), None);
        }
        assert_eq!(warning("token:*", Verb::Admin, None), None);
        assert_eq!(warning("token:ops", Verb::Admin, None), None);
    }
}
