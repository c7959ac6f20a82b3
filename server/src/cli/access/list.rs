//! `ringfence access list`.

use std::process::ExitCode;

use ringfence_core::Rule;
use serde_json::{Value, json};

use super::change::{mode_text, read, rule_object, told};
use super::token::{expiry, token_object};
use crate::cli::Failure;
use crate::cli::context::Context;
use crate::cli::output::Table;

/// Show the mode, the rules, the bans and the cluster tokens
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence access list")]
pub(crate) struct List {}

impl List {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let access = read(context).await?;
        let rules: Vec<Rule> = access.rules.iter().map(told).collect::<Result<_, _>>()?;
        let mode = mode_text(access.mode());
        let limits = access.limits.unwrap_or_default();
        let object = json!({
            "mode": mode,
            "index": access.access_index,
            "rules": rules.iter().map(rule_object).collect::<Vec<Value>>(),
            "bans": access.bans,
            "tokens": access.tokens.iter().map(token_object).collect::<Vec<Value>>(),
            "limits": { "sessions": limits.sessions, "leases": limits.leases },
        });
        let mut text = format!("mode: {mode}\n");
        if rules.is_empty() {
            text.push_str("no rules\n");
        } else {
            let mut table = Table::new(&["PRINCIPALS", "VERB", "NAMES"]);
            for rule in &rules {
                let names = rule.names.as_ref().map(ToString::to_string);
                table.row(vec![
                    rule.principals.to_string(),
                    rule.verb.to_string(),
                    names.unwrap_or_else(|| "-".into()),
                ]);
            }
            text.push_str(&table.to_string());
        }
        for banned in &access.bans {
            text.push_str(&format!("banned: {banned}\n"));
        }
        for token in &access.tokens {
            let (id, of) = (token.id, &token.principal);
            text.push_str(&format!("token {id}: {of}, {}\n", expiry(token)));
        }
        context.output.result(&object, text.trim_end())?;
        Ok(ExitCode::SUCCESS)
    }
}
