//! A file of rules, in TOML: what `access apply` and `serve --rules` take.

use std::collections::BTreeSet;
use std::path::Path;

use ringfence_core::{NamePattern, PrincipalPattern, RULES_MAX, Rule, Verb};
use serde::Deserialize;

/// The longest file, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(default)]
    rule: Vec<Entry>,
}

/// One `[[rule]]`: each of its principals may do this to each of its names.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Entry {
    principals: OneOrMore,
    verb: String,
    names: Option<OneOrMore>,
}

#[derive(Deserialize, Debug)]
#[serde(untagged, expecting = "expected a text, or a list of texts")]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn texts(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::More(texts) => texts,
        }
    }
}

/// The rules in a file.
///
/// # Errors
/// In words: what is wrong, in which rule, and what is expected.
pub(crate) fn read(path: &Path) -> Result<BTreeSet<Rule>, String> {
    let of_file = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let size = std::fs::metadata(path).map_err(|error| of_file(&error))?;
    if size.len() > FILE_BYTES_MAX {
        return Err(of_file(&"it is longer than 4 MiB"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| of_file(&error))?;
    parse(&text).map_err(|why| of_file(&why))
}

fn parse(text: &str) -> Result<BTreeSet<Rule>, String> {
    let file: RuleFile =
        toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    let mut rules = BTreeSet::new();
    for (at, entry) in file.rule.iter().enumerate() {
        let of_rule = |why: &dyn std::fmt::Display| format!("rule {}: {why}", at + 1);
        let verb: Verb = entry
            .verb
            .parse()
            .map_err(|why| of_rule(&format_args!("verb {:?}: {why}", entry.verb)))?;
        let names = names(entry).map_err(|why| of_rule(&why))?;
        if entry.principals.texts().is_empty() {
            return Err(of_rule(&"it has no principals"));
        }
        for raw in entry.principals.texts() {
            let principals = PrincipalPattern::parse(raw);
            let principals =
                principals.map_err(|why| of_rule(&format_args!("principals {raw:?}: {why}")))?;
            for names in &names {
                let rule = Rule {
                    principals: principals.clone(),
                    verb,
                    names: names.clone(),
                };
                rule.check().map_err(|why| of_rule(&why))?;
                rules.insert(rule);
                if rules.len() > RULES_MAX {
                    return Err(format!("there are {RULES_MAX} rules at most"));
                }
            }
        }
    }
    Ok(rules)
}

fn names(entry: &Entry) -> Result<Vec<Option<NamePattern>>, String> {
    let Some(names) = &entry.names else {
        return Ok(vec![None]);
    };
    if names.texts().is_empty() {
        return Err("names = [] allows nothing; leave it out for verbs that take no names".into());
    }
    let parsed = names.texts().iter().map(|raw| {
        let name = NamePattern::parse(raw);
        name.map(Some)
            .map_err(|why| format!("names {raw:?}: {why}"))
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_principal_of_a_rule_may_do_it_to_each_name() {
        let rules = parse(
            r#"
            [[rule]]
            principals = ["jwt:ci:a", "jwt:ci:b"]
            verb = "acquire"
            names = ["deploy/*", "build"]
            [[rule]]
            principals = "cert:cn:root"
            verb = "admin"
            "#,
        );
        let rules: Vec<String> = rules.unwrap().iter().map(ToString::to_string).collect();
        let mut expected = [
            "jwt:ci:a acquire deploy/*",
            "jwt:ci:a acquire build",
            "jwt:ci:b acquire deploy/*",
            "jwt:ci:b acquire build",
            "cert:cn:root admin",
        ];
        expected.sort_unstable();
        let mut sorted = rules.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, expected);
    }

    #[test]
    fn what_makes_no_sense_names_its_rule() {
        let rule = |rest: &str| format!("[[rule]]\nprincipals = \"*\"\n{rest}");
        for (text, fault) in [
            (rule("verb = \"own\"\n"), "rule 1: verb \"own\""),
            (
                rule("verb = \"acquire\"\n"),
                "rule 1: acquire, observe and revoke need names",
            ),
            (rule("verb = \"admin\"\nnames = \"*\"\n"), "take no names"),
            (
                rule("verb = \"acquire\"\nnames = \"team*\"\n"),
                "names \"team*\"",
            ),
            (rule("verb = \"acquire\"\nnames = []\n"), "allows nothing"),
            (rule("verb = \"admin\"\nname = \"*\"\n"), "unknown field"),
            ("[[rules]]\n".to_owned(), "unknown field"),
            (
                "[[rule]]\nprincipals = []\nverb = \"admin\"\n".to_owned(),
                "no principals",
            ),
            (
                "[[rule]]\nprincipals = 7\nverb = \"admin\"\n".to_owned(),
                "list of texts",
            ),
        ] {
            let why = parse(&text).unwrap_err();
            assert!(why.contains(fault), "{text}: {why}");
        }
    }
}
