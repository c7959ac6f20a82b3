//! What names, labels and their values may look like. Each function returns why a text is refused,
//! in the words of kube-apiserver.

/// A DNS label: a namespace.
pub(crate) fn label(text: &str) -> Result<(), String> {
    let why = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \
               '-', and must start and end with an alphanumeric character (e.g. 'my-name', or \
               '123-abc')";
    if text.len() > 63 {
        return Err("must be no more than 63 characters".to_owned());
    }
    is_label(text).then_some(()).ok_or_else(|| why.to_owned())
}

/// A DNS subdomain: an object's name, and what stands before the `/` of a key.
pub(crate) fn subdomain(text: &str) -> Result<(), String> {
    let why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
               '-' or '.', and must start and end with an alphanumeric character (e.g. \
               'example.com')";
    if text.len() > 253 {
        return Err("must be no more than 253 characters".to_owned());
    }
    let fine = text.split('.').all(is_label);
    fine.then_some(()).ok_or_else(|| why.to_owned())
}

/// A key of a label; one of an annotation is given in lower case, as its case does not matter.
pub(crate) fn key(text: &str) -> Result<(), String> {
    let why = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start \
               and end with an alphanumeric character (e.g. 'MyName', or 'my.name', or '123-abc')";
    let name = match text.split_once('/') {
        None => text,
        Some(("", _)) => return Err("prefix part must be non-empty".to_owned()),
        Some((prefix, name)) => {
            subdomain(prefix).map_err(|why| format!("prefix part {why}"))?;
            name
        }
    };
    match name {
        "" => Err("name part must be non-empty".to_owned()),
        long if long.len() > 63 => Err("name part must be no more than 63 characters".to_owned()),
        name => is_word(name).then_some(()).ok_or_else(|| why.to_owned()),
    }
}

/// A value of a label.
pub(crate) fn value(text: &str) -> Result<(), String> {
    let why = "a valid label must be an empty string or consist of alphanumeric characters, '-', \
               '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue', \
               or 'my_value', or '12345')";
    if text.len() > 63 {
        return Err("must be no more than 63 characters".to_owned());
    }
    let fine = text.is_empty() || is_word(text);
    fine.then_some(()).ok_or_else(|| why.to_owned())
}

fn is_label(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bounded(text, inside, |byte| inside(byte) || byte == b'-')
}

fn is_word(text: &str) -> bool {
    let ends = |byte: u8| byte.is_ascii_alphanumeric();
    bounded(text, ends, |byte| ends(byte) || b"-_.".contains(&byte))
}

/// Whether the first and the last byte are of one kind, and all of another; not of an empty text.
fn bounded(text: &str, ends: impl Fn(u8) -> bool, all: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let fine = |end: Option<&u8>| end.is_some_and(|byte| ends(*byte));
    fine(bytes.first()) && fine(bytes.last()) && bytes.iter().all(|byte| all(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_kubernetes_takes() {
        for fine in ["a", "a-b", "1", "a.b-c.d"] {
            subdomain(fine).unwrap();
        }
        for wrong in [
            "",
            ".",
            "a.",
            "a..b",
            "-a",
            "a-",
            "A",
            "a_b",
            "a/b",
            "ä",
            &"a".repeat(254),
        ] {
            subdomain(wrong).unwrap_err();
        }
        label(&"a".repeat(63)).unwrap();
        for wrong in ["", "a.b", &"a".repeat(64)] {
            label(wrong).unwrap_err();
        }
    }

    #[test]
    fn keys_have_at_most_one_prefix() {
        for fine in ["app", "App_1.x", "example.com/app"] {
            key(fine).unwrap();
        }
        for wrong in ["", "/a", "a/", "a/b/c", "A.com/a", "-a", "a b"] {
            key(wrong).unwrap_err();
        }
        value("").unwrap();
        value("V-1_x.y").unwrap();
        for wrong in ["-", "a b", "a/b", &"v".repeat(64)] {
            value(wrong).unwrap_err();
        }
    }
}
