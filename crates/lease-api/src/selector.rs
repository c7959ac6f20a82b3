//! Which leases a list or a watch is of: selectors of labels, and of the two fields that Kubernetes
//! indexes for every kind.

use crate::lease::{Lease, Metadata};
use crate::names;
use crate::status::Failure;

/// The most requirements of one selector.
const REQUIREMENTS_MAX: usize = 64;

/// Selectors that were read. An empty one selects every lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    wants: Wants,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wants {
    Exists,
    Absent,
    In(Vec<String>),
    /// A lease without the label matches, too.
    NotIn(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldTerm {
    field: Field,
    value: String,
    equal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
}

impl Selector {
    /// Reads both selectors, either of which may be empty. 400 for what is none, or is not supported
    /// here: comparisons of numbers, and other fields.
    pub fn parse(labels: &str, fields: &str) -> Result<Self, Failure> {
        Ok(Self {
            labels: label_selector(labels)?,
            fields: field_selector(fields)?,
        })
    }

    /// Whether every lease matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The one name that a lease can have to match, if the selector says it: lists and watches of one
    /// lease are made so.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let mut terms = self.fields.iter();
        let term = terms.find(|term| term.equal && term.field == Field::Name)?;
        Some(&term.value)
    }

    /// Whether a lease matches, as it is shown.
    #[must_use]
    pub fn matches(&self, lease: &Lease) -> bool {
        let of = &lease.metadata;
        self.labels
            .iter()
            .all(|requirement| requirement.matches(of))
            && self.matches_name(&of.namespace, &of.name)
    }

    /// Whether a lease of this name may match: what it is called is known before anything of it is read.
    #[must_use]
    pub fn matches_name(&self, namespace: &str, name: &str) -> bool {
        self.fields.iter().all(|term| term.matches(namespace, name))
    }
}

impl Requirement {
    fn matches(&self, of: &Metadata) -> bool {
        let value = of.labels.get(&self.key);
        match &self.wants {
            Wants::Exists => value.is_some(),
            Wants::Absent => value.is_none(),
            Wants::In(values) => value.is_some_and(|value| values.contains(value)),
            Wants::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
        }
    }
}

impl FieldTerm {
    fn matches(&self, namespace: &str, name: &str) -> bool {
        let value = match self.field {
            Field::Name => name,
            Field::Namespace => namespace,
        };
        (value == self.value) == self.equal
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Comma,
    Open,
    Close,
    Not,
    Equal,
    NotEqual,
}

fn unparsed(why: &str) -> Failure {
    Failure::bad_request(format!("unable to parse requirement: {why}"))
}

fn tokens(text: &str) -> Result<Vec<Token<'_>>, Failure> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            ',' => (Token::Comma, 1),
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            '!' if rest.starts_with("!=") => (Token::NotEqual, 2),
            '!' => (Token::Not, 1),
            '=' if rest.starts_with("==") => (Token::Equal, 2),
            '=' => (Token::Equal, 1),
            '<' | '>' => return Err(unparsed("'<' and '>' are not supported here")),
            _ => {
                let special = |c: char| c.is_whitespace() || "=!(),<>".contains(c);
                let length = rest.find(special).unwrap_or(rest.len());
                (Token::Word(&rest[..length]), length)
            }
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

/// Tokens that are taken from the front.
struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    fn take(&mut self) -> Option<Token<'a>> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    fn takes(&mut self, token: Token<'_>) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn key(&mut self) -> Result<String, Failure> {
        let Some(Token::Word(key)) = self.take() else {
            return Err(unparsed("a label's key is expected"));
        };
        names::key(key).map_err(|why| unparsed(&format!("{key:?}: {why}")))?;
        Ok(key.to_owned())
    }

    /// A value; there may be none, which is the empty one.
    fn value(&mut self) -> Result<String, Failure> {
        let Some(Token::Word(value)) = self.peek() else {
            return Ok(String::new());
        };
        self.at += 1;
        names::value(value).map_err(|why| unparsed(&format!("{value:?}: {why}")))?;
        Ok(value.to_owned())
    }

    fn values(&mut self) -> Result<Vec<String>, Failure> {
        if !self.takes(Token::Open) {
            return Err(unparsed("'(' is expected"));
        }
        let mut values = vec![self.value()?];
        while self.takes(Token::Comma) {
            values.push(self.value()?);
        }
        if !self.takes(Token::Close) {
            return Err(unparsed("')' is expected"));
        }
        Ok(values)
    }

    fn requirement(&mut self) -> Result<Requirement, Failure> {
        if self.takes(Token::Not) {
            let (key, wants) = (self.key()?, Wants::Absent);
            return Ok(Requirement { key, wants });
        }
        let key = self.key()?;
        let wants = match self.peek() {
            None | Some(Token::Comma) => Wants::Exists,
            Some(operator) => {
                self.at += 1;
                match operator {
                    Token::Equal => Wants::In(vec![self.value()?]),
                    Token::NotEqual => Wants::NotIn(vec![self.value()?]),
                    Token::Word("in") => Wants::In(self.values()?),
                    Token::Word("notin") => Wants::NotIn(self.values()?),
                    _ => return Err(unparsed("'=', '!=', 'in' or 'notin' is expected")),
                }
            }
        };
        Ok(Requirement { key, wants })
    }
}

fn label_selector(text: &str) -> Result<Vec<Requirement>, Failure> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
    };
    let mut requirements = Vec::new();
    while parser.peek().is_some() {
        requirements.push(parser.requirement()?);
        if parser.peek().is_some() && !parser.takes(Token::Comma) {
            return Err(unparsed("',' is expected"));
        }
    }
    check_count(requirements.len())?;
    Ok(requirements)
}

fn check_count(count: usize) -> Result<(), Failure> {
    let fine = count <= REQUIREMENTS_MAX;
    fine.then_some(()).ok_or_else(|| {
        let why = format!("{count} requirements, at most {REQUIREMENTS_MAX} are allowed");
        Failure::bad_request(why)
    })
}

fn field_selector(text: &str) -> Result<Vec<FieldTerm>, Failure> {
    let mut terms = Vec::new();
    for term in unescaped_parts(text) {
        if term.is_empty() {
            continue;
        }
        let at = term.find(['=', '!']);
        let split = at.and_then(|at| {
            let (field, rest) = term.split_at(at);
            let operators = [("!=", false), ("==", true), ("=", true)];
            operators
                .into_iter()
                .find_map(|(operator, equal)| Some((field, rest.strip_prefix(operator)?, equal)))
        });
        let Some((field, value, equal)) = split else {
            let why = format!("invalid field selector: {term:?}; can't understand it");
            return Err(Failure::bad_request(why));
        };
        let field = match field {
            "metadata.name" => Field::Name,
            "metadata.namespace" => Field::Namespace,
            other => {
                let why = format!("field label not supported: {other}");
                return Err(Failure::bad_request(why));
            }
        };
        terms.push(FieldTerm {
            field,
            value: unescaped(value)?,
            equal,
        });
    }
    check_count(terms.len())?;
    Ok(terms)
}

/// The parts between commas that have no backslash before them.
fn unescaped_parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn unescaped(value: &str) -> Result<String, Failure> {
    let refuse = || Failure::bad_request(format!("invalid field selector: the value {value:?}"));
    let mut text = String::with_capacity(value.len());
    let mut rest = value.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                Some(c @ ('\\' | ',' | '=')) => text.push(c),
                _ => return Err(refuse()),
            },
            '=' => return Err(refuse()),
            c => text.push(c),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lease::fixtures::held;

    /// On a lease `shop/leader` with the label `app=shop`.
    fn matches(labels: &str, fields: &str) -> bool {
        Selector::parse(labels, fields).unwrap().matches(&held())
    }

    #[test]
    fn labels_select() {
        for fits in [
            "",
            "app",
            "app=shop",
            "app==shop",
            " app = shop ",
            "app!=x",
            "x!=y",
            "!x",
            "app in (x, shop)",
            "x notin (a)",
            "app notin (a,b),app",
            "app=shop,",
            "x notin ()",
        ] {
            assert!(matches(fits, ""), "{fits}");
        }
        for other in [
            "x",
            "!app",
            "app=",
            "app!=shop",
            "app in (a,b)",
            "app notin (shop)",
            "app,x",
        ] {
            assert!(!matches(other, ""), "{other}");
        }
        for wrong in [
            ",",
            "=",
            "a b",
            "app in",
            "app in (a",
            "app in a",
            "app)",
            "a>1",
            "a<1",
            "-a",
            "a=b c",
            "a=-",
            "!",
            "a!",
            "é",
            "a==",
        ] {
            let read = Selector::parse(wrong, "");
            let empty = wrong == "a==";
            assert_eq!(
                read.map_err(|no| no.code()).err(),
                (!empty).then_some(400),
                "{wrong}"
            );
        }
    }

    #[test]
    fn fields_select() {
        for fits in [
            "",
            "metadata.name=leader",
            "metadata.name==leader,metadata.namespace=shop",
            "metadata.name!=x",
            ",",
            "metadata.name!=a\\,b",
        ] {
            assert!(matches("", fits), "{fits}");
        }
        assert!(!matches("", "metadata.name=x"));
        assert!(!matches("", "metadata.namespace!=shop"));
        for wrong in [
            "metadata.name",
            "spec.holderIdentity=a",
            "metadata.name=a=b",
            "metadata.name!a",
            "metadata.name=\\a",
            "metadata.name=a\\",
            "=",
        ] {
            assert_eq!(
                Selector::parse("", wrong).unwrap_err().code(),
                400,
                "{wrong}"
            );
        }
    }

    #[test]
    fn one_name_is_known_beforehand() {
        let name = |fields| {
            Selector::parse("", fields)
                .unwrap()
                .name()
                .map(str::to_owned)
        };
        assert_eq!(name("metadata.name=leader").as_deref(), Some("leader"));
        assert_eq!(name("metadata.name!=leader"), None);
        assert_eq!(name("metadata.namespace=shop"), None);
    }

    proptest! {
        #[test]
        fn no_selector_is_a_panic(labels in "([a-z]|in|notin|[=!(),<> é-]){0,24}", fields in
            "((metadata.name|metadata.namespace|[a-z])|[=!,é]|\\\\){0,12}") {
            if let Ok(selector) = Selector::parse(&labels, &fields) {
                let matches = selector.matches(&held());
                prop_assert!(matches || !selector.is_empty());
            }
        }
    }
}
