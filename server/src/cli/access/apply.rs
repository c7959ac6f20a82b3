//! `ringfence access apply`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_core::{ACCESS_CHANGES_MAX, Rule};
use ringfence_proto::v1::access_change::Change;
use ringfence_proto::wire;
use serde_json::{Value, json};

use super::change::{change, read, remind_of_mode, rule_object, told, warn_of_open_doors};
use crate::cli::Failure;
use crate::cli::context::Context;
use crate::rule_file;

/// Make the rules those of a file
///
/// Rules of the file that are missing are added; with --prune, others are removed. Bans, tokens and
/// the mode stay as they are. What changes is shown first.
#[derive(clap::Args, Debug)]
#[command(after_help = r#"The file:
  [[rule]]
  principals = ["jwt:ci:deploy", "token:deploy"]   # or one text
  verb = "acquire"
  names = ["deploy/*"]                             # not for configure, operate, backup, admin

Example:
  ringfence access apply -f rules.toml --prune --dry-run"#)]
pub(crate) struct Apply {
    /// The file of rules, in TOML
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: PathBuf,
    /// Remove the rules that are not in the file
    #[arg(long)]
    prune: bool,
    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
}

impl Apply {
    /// The rules of the file.
    pub(super) fn wanted(&self) -> Result<BTreeSet<Rule>, Failure> {
        rule_file::read(&self.file).map_err(Failure::usage)
    }

    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let wanted = self.wanted()?;
        let mut access = read(context).await?;
        let present: BTreeSet<Rule> = access.rules.iter().map(told).collect::<Result<_, _>>()?;
        let added: Vec<&Rule> = wanted.difference(&present).collect();
        let removed: Vec<&Rule> = match self.prune {
            true => present.difference(&wanted).collect(),
            false => Vec::new(),
        };
        // What the author needs is there before what it had is gone.
        let adds = added
            .iter()
            .map(|rule| Change::AddRule(wire::rule_to_wire(rule)));
        let removes = removed
            .iter()
            .map(|rule| Change::RemoveRule(wire::rule_to_wire(rule)));
        let changes: Vec<Change> = adds.chain(removes).collect();
        if !self.dry_run {
            let mut done = 0;
            for part in changes.chunks(ACCESS_CHANGES_MAX) {
                let changed = change(context, &access, part.to_vec()).await;
                let changed = changed.map_err(|failure| halfway(failure, done, changes.len()))?;
                access.access_index = changed.access_index;
                done += part.len();
            }
        }
        let objects = |rules: &[&Rule]| rules.iter().map(|rule| rule_object(rule)).collect();
        let (plus, minus): (Vec<Value>, Vec<Value>) = (objects(&added), objects(&removed));
        let object = json!({
            "added": plus,
            "removed": minus,
            "dry_run": self.dry_run,
            "index": access.access_index,
        });
        let plus = added.iter().map(|rule| format!("+ {rule}\n"));
        let minus = removed.iter().map(|rule| format!("- {rule}\n"));
        let mut text: String = plus.chain(minus).collect();
        text.push_str(match (changes.is_empty(), self.dry_run) {
            (true, _) => "the rules are those of the file already",
            (false, true) => "nothing was changed: --dry-run",
            (false, false) => "applied",
        });
        context.output.result(&object, text)?;
        if !self.dry_run {
            warn_of_open_doors(context, added);
        }
        if !self.dry_run && !changes.is_empty() {
            remind_of_mode(context, access.mode());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Says how much was done before a change was refused: several are not made at once.
fn halfway(mut failure: Failure, done: usize, of: usize) -> Failure {
    if done > 0 {
        failure.message = format!(
            "{done} of {of} changes were made, then: {}",
            failure.message
        );
    }
    failure
}
