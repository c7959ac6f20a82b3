//! `ringfence access apply`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_core::{
    ACCESS_CHANGES_MAX, Mode, Principal, PrincipalPattern, RULES_MAX, Rejection, Rule, Verb,
};
use ringfence_proto::v1::GetAccessResponse;
use ringfence_proto::v1::access_change::Change;
use ringfence_proto::{Refusal, wire};
use serde_json::{Value, json};

use super::change::{change, read, remind_of_mode, rule_object, told, warn_of_open_doors, whoami};
use crate::cli::Failure;
use crate::cli::context::Context;
use crate::rule_file;

/// Make the rules those of a file
///
/// Rules of the file that are missing are added; with --prune, others are removed. Bans, tokens and
/// the mode stay as they are. What was changed is shown; --dry-run shows it before.
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
        let me = whoami(context).await?.principal;
        let end: BTreeSet<&Rule> = match self.prune {
            true => wanted.iter().collect(),
            false => present.union(&wanted).collect(),
        };
        judge(&access, &present, &end, &me)?;
        let changes = added.len() + removed.len();
        if !self.dry_run {
            let mut done = 0;
            for part in parts(present.len(), &added, &removed, &me) {
                let made = part.len();
                let changed = change(context, &access, part).await;
                let changed = changed.map_err(|failure| halfway(failure, done, changes))?;
                access.access_index = changed.access_index;
                done += made;
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
        text.push_str(match (changes == 0, self.dry_run) {
            (true, _) => "the rules are those of the file already",
            (false, true) => "nothing was changed: --dry-run",
            (false, false) => "applied",
        });
        context.output.result(&object, text)?;
        if !self.dry_run {
            warn_of_open_doors(context, added);
        }
        if !self.dry_run && changes > 0 {
            remind_of_mode(context, access.mode());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Refuses rules that the cluster would refuse in the end, before any part of them is applied. The
/// cluster judges each part, and several are not made at once.
fn judge(
    access: &GetAccessResponse,
    present: &BTreeSet<Rule>,
    end: &BTreeSet<&Rule>,
    me: &str,
) -> Result<(), Failure> {
    if end.len() > RULES_MAX {
        let message = format!(
            "there would be {} rules, and {RULES_MAX} are allowed",
            end.len()
        );
        return Err(Failure::usage(message).hint("rules of prefixes take the place of many"));
    }
    let mut now = present.iter();
    let binds = match wire::mode_from_wire(access.mode()) {
        None | Some(Mode::Off) => false,
        Some(Mode::Permissive) => now.any(|rule| makes_admin(rule, me)),
        Some(Mode::Enforced) => true,
    };
    let stays = me == Principal::LOCAL || end.iter().any(|rule| makes_admin(rule, me));
    match stays || !binds {
        true => Ok(()),
        false => Err(Refusal::from_rejection(&Rejection::WouldLockOut).into()),
    }
}

/// Whether a rule lets this principal change rights.
fn makes_admin(rule: &Rule, principal: &str) -> bool {
    let of = match &rule.principals {
        PrincipalPattern::Exact(of) => of.as_str() == principal,
        PrincipalPattern::Prefix(prefix) => principal.starts_with(&**prefix),
    };
    rule.verb == Verb::Admin && of
}

/// The changes in parts that the cluster takes one after the other, if it takes the end: what is new
/// comes first, so that no caller is without a right in between, as far as there is room, and what the
/// author is allowed by goes last.
fn parts(present: usize, added: &[&Rule], removed: &[&Rule], me: &str) -> Vec<Vec<Change>> {
    let mut adds = added.iter();
    let (own, others): (Vec<&&Rule>, _) = removed.iter().partition(|rule| makes_admin(rule, me));
    let mut removes = others.into_iter().chain(own);
    let mut count = present;
    let next = || {
        let add = (count < RULES_MAX).then(|| adds.next()).flatten();
        if let Some(rule) = add {
            count += 1;
            return Some(Change::AddRule(wire::rule_to_wire(rule)));
        }
        let rule = removes.next()?;
        count -= 1;
        Some(Change::RemoveRule(wire::rule_to_wire(rule)))
    };
    let changes: Vec<Change> = std::iter::from_fn(next).collect();
    changes
        .chunks(ACCESS_CHANGES_MAX)
        .map(<[Change]>::to_vec)
        .collect()
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringfence_core::NamePattern;

    use super::*;

    fn rules(names: std::ops::Range<usize>) -> BTreeSet<Rule> {
        let rule = |n| Rule {
            principals: PrincipalPattern::parse("token:a").unwrap(),
            verb: Verb::Acquire,
            names: Some(NamePattern::parse(&format!("n{n}/*")).unwrap()),
        };
        names.map(rule).collect()
    }

    fn admin(principals: &str) -> Rule {
        Rule {
            principals: PrincipalPattern::parse(principals).unwrap(),
            verb: Verb::Admin,
            names: None,
        }
    }

    /// What a cluster with these rules has behind each part; no part is refused.
    fn carried_out(present: &BTreeSet<Rule>, wanted: &BTreeSet<Rule>, me: &str) -> BTreeSet<Rule> {
        let added: Vec<&Rule> = wanted.difference(present).collect();
        let removed: Vec<&Rule> = present.difference(wanted).collect();
        let mut now = present.clone();
        for part in parts(present.len(), &added, &removed, me) {
            assert!(!part.is_empty() && part.len() <= ACCESS_CHANGES_MAX);
            for change in part {
                let new = match change {
                    Change::AddRule(rule) => now.insert(told(&rule).unwrap()),
                    Change::RemoveRule(rule) => now.remove(&told(&rule).unwrap()),
                    other => panic!("{other:?}"),
                };
                assert!(new, "each change counts");
            }
            assert!(now.len() <= RULES_MAX);
            assert!(now.iter().any(|rule| makes_admin(rule, me)));
        }
        now
    }

    #[test]
    fn no_part_of_rules_that_are_allowed_in_the_end_is_refused() {
        let me = "token:ops";
        for (from, to) in [
            (0..0, 0..200),
            (0..RULES_MAX - 1, 100..RULES_MAX + 99),
            (0..100, 5..6),
        ] {
            let (mut present, mut wanted) = (rules(from), rules(to));
            present.insert(admin("token:ops"));
            wanted.insert(admin("token:*"));
            assert_eq!(carried_out(&present, &wanted, me), wanted);
        }
    }

    #[test]
    fn an_end_without_its_author_is_refused_where_rights_bind() {
        let (present, none) = (BTreeSet::from([admin("token:ops")]), BTreeSet::new());
        let judged = |mode: Mode, me: &str| {
            let access = GetAccessResponse {
                mode: wire::mode_to_wire(mode).into(),
                ..Default::default()
            };
            judge(&access, &present, &none, me).is_ok()
        };
        for me in ["token:ops", "token:other", "local"] {
            assert!(judged(Mode::Off, me));
            assert_eq!(judged(Mode::Enforced, me), me == "local");
            assert_eq!(judged(Mode::Permissive, me), me != "token:ops");
        }
    }
}
