//! `ringfence access grant` and `ringfence access revoke`.

use std::process::ExitCode;

use ringfence_core::{NamePattern, PrincipalPattern, Rule, Verb};
use ringfence_proto::v1::access_change::Change;
use ringfence_proto::wire;
use serde_json::json;

use super::change::{change, read, remind_of_mode, rule_object, warn_of_open_doors};
use crate::cli::Failure;
use crate::cli::context::Context;

/// Allow principals something
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence access grant jwt:ci:deploy acquire 'deploy/*'
  ringfence access grant 'sa:prod:*' acquire 'k8s/{namespace}/*'   # each its own namespace
  ringfence access grant cert:uri:spiffe://corp/ops admin")]
pub(crate) struct Grant {
    #[command(flatten)]
    rule: RuleArgs,
}

/// Take a rule back, exactly as it was granted
///
/// Leases that are held stay held; the next acquire is refused.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence access revoke jwt:ci:deploy acquire 'deploy/*'")]
pub(crate) struct Revoke {
    #[command(flatten)]
    rule: RuleArgs,
}

#[derive(clap::Args, Debug)]
struct RuleArgs {
    /// For whom: a principal, what several begin with and `*` behind `:` or `/`, or `*`
    #[arg(value_parser = |raw: &str| PrincipalPattern::parse(raw).map_err(|why| why.to_string()))]
    principals: PrincipalPattern,
    /// What: acquire, observe, revoke (these for NAMES), configure, operate, backup or admin
    #[arg(value_parser = |raw: &str| raw.parse::<Verb>().map_err(|why| why.to_string()))]
    verb: Verb,
    /// For which leases: a name, what several begin with and `*` behind `/`, or `*`
    #[arg(value_parser = |raw: &str| NamePattern::parse(raw).map_err(|why| why.to_string()))]
    names: Option<NamePattern>,
}

impl RuleArgs {
    fn rule(&self) -> Result<Rule, Failure> {
        let rule = Rule {
            principals: self.principals.clone(),
            verb: self.verb,
            names: self.names.clone(),
        };
        match rule.check() {
            Ok(()) => Ok(rule),
            Err(why) => Err(Failure::usage(format!("{rule}: {why}"))),
        }
    }
}

impl Grant {
    /// The rule, whose parts fit together.
    pub(super) fn rule(&self) -> Result<Rule, Failure> {
        self.rule.rule()
    }

    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        set(context, &self.rule()?, true).await
    }
}

impl Revoke {
    /// The rule, whose parts fit together.
    pub(super) fn rule(&self) -> Result<Rule, Failure> {
        self.rule.rule()
    }

    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        set(context, &self.rule()?, false).await
    }
}

/// Makes the rule stand, or not.
async fn set(context: &Context, rule: &Rule, stands: bool) -> Result<ExitCode, Failure> {
    let before = read(context).await?;
    let wired = wire::rule_to_wire(rule);
    let changed = before.rules.contains(&wired) != stands;
    let mut index = before.access_index;
    if changed {
        let (mode, to) = match stands {
            true => (before.mode(), Change::AddRule(wired)),
            false => (before.mode(), Change::RemoveRule(wired)),
        };
        index = change(context, &before, vec![to]).await?.access_index;
        remind_of_mode(context, mode);
    }
    if stands {
        warn_of_open_doors(context, [rule]);
    }
    let object = json!({ "rule": rule_object(rule), "changed": changed, "index": index });
    let said = match (stands, changed) {
        (true, true) => "granted",
        (true, false) => "granted already",
        (false, true) => "revoked",
        (false, false) => "there is no such rule",
    };
    context.output.result(&object, format!("{said}: {rule}"))?;
    Ok(ExitCode::SUCCESS)
}
