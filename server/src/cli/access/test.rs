//! `ringfence access test`.

use std::process::ExitCode;

use ringfence_client::unstable;
use ringfence_core::{Principal, Verb};
use ringfence_proto::v1::access_client::AccessClient;
use ringfence_proto::v1::{TestAccessRequest, TestAccessResponse};
use ringfence_proto::wire;
use serde_json::json;

use super::change::{principal, remind_of_mode, rule_object, told, whoami};
use crate::cli::context::Context;
use crate::cli::{Failure, exit};

/// Say whether a principal may do something, and by which rule
///
/// It ends with 0 if it may, and with 1 if it may not, as the mode `enforced` would judge. To observe
/// leases, the right to acquire them is enough; sessions of others need `observe` on `*` itself.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence access test acquire deploy/web             # may I?
  ringfence access test --as jwt:ci:deploy observe 'deploy/*'
  ringfence access test --as token:backup backup")]
pub(crate) struct Test {
    /// Whom it is about [default: who this command is taken for]; others need `admin`
    #[arg(long = "as", value_name = "PRINCIPAL", value_parser = principal)]
    of: Option<Principal>,
    /// What: acquire, observe, revoke (these for NAMES), configure, operate, backup or admin
    #[arg(value_parser = |raw: &str| raw.parse::<Verb>().map_err(|why| why.to_string()))]
    verb: Verb,
    /// For which leases: a name, or what several begin with and `*`
    names: Option<String>,
}

impl Test {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let me = whoami(context).await?;
        let of = match &self.of {
            Some(of) => of.as_str(),
            None => me.principal.as_str(),
        };
        let request = TestAccessRequest {
            principal: self
                .of
                .as_ref()
                .map_or_else(String::new, |of| of.as_str().into()),
            verb: wire::verb_to_wire(self.verb).into(),
            names: self.names.clone().unwrap_or_default(),
        };
        let ask = move |channel| {
            let request = request.clone();
            async move { AccessClient::new(channel).test_access(request).await }
        };
        let answer: TestAccessResponse = unstable::unary(&context.client, ask).await?;
        let rule = answer.rule.as_ref().map(told).transpose()?;
        let object = json!({
            "principal": of,
            "verb": self.verb.as_str(),
            "names": self.names,
            "allowed": answer.allowed,
            "banned": answer.banned,
            "rule": rule.as_ref().map(rule_object),
        });
        let text = match (answer.allowed, answer.banned, rule) {
            (_, true, _) => format!("no: {of} is banned"),
            (true, false, Some(rule)) => format!("yes, by the rule: {rule}"),
            (true, false, None) => format!("yes: {of} needs no rule for it"),
            (false, false, Some(rule)) => format!("no; it would need the rule: {rule}"),
            (false, false, None) => "no".to_owned(),
        };
        remind_of_mode(context, me.mode());
        let code = match answer.allowed {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(exit::NEGATIVE),
        };
        context.output.verdict(&object, text, code)
    }
}
