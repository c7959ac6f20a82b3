//! Any bytes as principals, patterns and rules: fuzz targets of `crates/fuzz`, and properties of the
//! tests below. Each panics where a reader or the judge breaks a promise. Not part of what is shipped.

use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::access::pattern::{NamePattern, PrincipalPattern};
use crate::access::principal::{PRINCIPAL_BYTES_MAX, Principal};
use crate::access::rules::{Rule, Rules, Scope};
use crate::access::verb::Verb;
use crate::name::LeaseName;

/// A text as a principal and as patterns: what is read is written as it was, and a principal is never
/// a pattern of several.
pub fn patterns(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else {
        return;
    };
    let principal = Principal::parse(text);
    if let Ok(principal) = &principal {
        assert_eq!(principal.as_str(), text);
        assert!(text.len() <= PRINCIPAL_BYTES_MAX && !text.contains('*'));
    }
    match PrincipalPattern::parse(text) {
        Ok(pattern) => {
            assert_eq!(pattern.to_string(), text, "two texts for one pattern");
            let exact = matches!(pattern, PrincipalPattern::Exact(_));
            assert_eq!(exact, principal.is_ok(), "a principal that is a pattern");
        }
        Err(error) => assert!(principal.is_err() && error.to_string().len() < 1_000),
    }
    let name = LeaseName::parse(text);
    match NamePattern::parse(text) {
        Ok(pattern) => {
            assert_eq!(pattern.to_string(), text, "two texts for one pattern");
            let exact = matches!(pattern, NamePattern::Exact(_));
            assert_eq!(exact, name.is_ok(), "a name that is a pattern");
        }
        Err(error) => assert!(name.is_err() && error.to_string().len() < 1_000),
    }
}

/// Rules, a line each (`PRINCIPALS VERB [NAMES]`); the last two lines are a principal and a name. The
/// judge says what the rules say when they are read one after the other.
pub fn rules(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else {
        return;
    };
    let mut lines: Vec<&str> = text.split('\n').collect();
    let (Some(name), Some(principal)) = (lines.pop(), lines.pop()) else {
        return;
    };
    let Ok(principal) = Principal::parse(principal) else {
        return;
    };
    let all: BTreeSet<Rule> = lines.into_iter().filter_map(rule).collect();
    let rules = Rules::new(all.clone());
    let name = LeaseName::parse(name);
    for verb in [
        Verb::Acquire,
        Verb::Observe,
        Verb::Revoke,
        Verb::Operate,
        Verb::Admin,
    ] {
        let of_verb = |rule: &&Rule| rule.verb == verb && is_for(&rule.principals, &principal);
        let allows = |scope| rules.allowing(principal.as_str(), verb, scope);
        let any = all.iter().any(|rule| of_verb(&rule));
        assert_eq!(allows(Scope::Any).is_some(), any);
        let Ok(name) = &name else {
            continue;
        };
        let covered = |of: &dyn Fn(&NamePattern) -> bool| {
            let mut of_verb = all.iter().filter(of_verb);
            of_verb.any(|rule| rule.names.as_ref().is_some_and(of))
        };
        let expected = covered(&|names| is_of(names, name.as_str(), &principal, true));
        let found = allows(Scope::Name(name));
        assert_eq!(found.is_some(), expected, "{principal} {verb} {name}");
        if let Some(found) = found {
            assert!(all.contains(found) && of_verb(&found));
        }
        for (end, _) in name.as_str().char_indices() {
            let prefix = name.as_str().get(..end).unwrap_or_default();
            let under = allows(Scope::Prefix(prefix)).is_some();
            let expected = covered(&|names| is_of(names, prefix, &principal, false));
            assert_eq!(under, expected, "{principal} {verb} {prefix}*");
            assert!(
                !under || found.is_some(),
                "all under {prefix}, but not {name}"
            );
        }
    }
}

fn rule(line: &str) -> Option<Rule> {
    let mut words = line.split(' ');
    let rule = Rule {
        principals: PrincipalPattern::parse(words.next()?).ok()?,
        verb: words.next()?.parse().ok()?,
        names: words.next().map(NamePattern::parse).transpose().ok()?,
    };
    rule.check().is_ok().then_some(rule)
}

fn is_for(pattern: &PrincipalPattern, principal: &Principal) -> bool {
    match pattern {
        PrincipalPattern::Exact(exact) => exact == principal,
        PrincipalPattern::Prefix(prefix) => principal.as_str().starts_with(&**prefix),
    }
}

/// Whether a pattern covers a text: a whole name, or all names that begin with it.
fn is_of(pattern: &NamePattern, text: &str, principal: &Principal, whole: bool) -> bool {
    match pattern {
        NamePattern::Exact(exact) => whole && exact.as_str() == text,
        NamePattern::Prefix(prefix) => text.starts_with(&**prefix),
        NamePattern::OwnNamespace => {
            let words: Vec<&str> = principal.as_str().splitn(3, ':').collect();
            match words.as_slice() {
                ["sa", _, account] => account.split_once('/').is_some_and(|(namespace, _)| {
                    !namespace.is_empty() && text.starts_with(&alloc::format!("k8s/{namespace}/"))
                }),
                _ => false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use alloc::string::String;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const PRINCIPAL: &str =
        "(sa|jwt|token|cert:uri|j|s):[ab]{1,2}([:/][ab.|*]{0,2}){0,3}|local|anonymous|[*]";
    const NAME: &str =
        "[ab*]{1,2}(/[ab*]{0,2}){0,2}|k8s/[ab]{1,2}/[ab]|k8s/\\{namespace\\}/[*]|[*]";

    fn line() -> impl Strategy<Value = String> {
        let verb = "acquire|acquire|observe|revoke|admin";
        (PRINCIPAL, verb, prop::option::of(NAME)).prop_map(
            |(principals, verb, names)| match names {
                Some(names) => alloc::format!("{principals} {verb} {names}"),
                None => alloc::format!("{principals} {verb}"),
            },
        )
    }

    /// 2,048 cases of each, unless `PROPTEST_CASES` asks for more or fewer.
    fn config() -> ProptestConfig {
        let standard = ProptestConfig::default();
        let asked = std::env::var_os("PROPTEST_CASES").is_some();
        let cases = if asked { standard.cases } else { 2_048 };
        ProptestConfig {
            cases,
            failure_persistence: None,
            ..standard
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn any_bytes_are_patterns_or_refused(bytes in vec(any::<u8>(), 0..300)) {
            patterns(&bytes);
            rules(&bytes);
        }

        #[test]
        fn what_is_nearly_a_pattern_is_read_or_refused(principal in PRINCIPAL, name in NAME) {
            patterns(principal.as_bytes());
            patterns(name.as_bytes());
        }

        #[test]
        fn the_judge_says_what_the_rules_say(
            lines in vec(line(), 0..12),
            principal in PRINCIPAL,
            name in NAME,
        ) {
            rules(alloc::format!("{}\n{principal}\n{name}", lines.join("\n")).as_bytes());
        }
    }
}
