//! What a source file names: read by eye, as rustfmt lays it out, and not by a compiler.

/// The text with the same lines, of which comments and the items under `#[cfg(test)]` are blank, and
/// the names of the modules that were declared there. It leans on rustfmt: an item ends at its own
/// indentation.
pub(super) fn without_tests(text: &str) -> (String, Vec<String>) {
    let mut kept = String::with_capacity(text.len());
    let mut test_modules = Vec::new();
    // The indentation of the item that is left out.
    let mut left_out = None;
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or(line).trim_end();
        let indent = code.len() - code.trim_start().len();
        let item = code.trim_start();
        if left_out.is_none() && item == "#[cfg(test)]" {
            left_out = Some(indent);
        } else if left_out == Some(indent) {
            if item.ends_with([';', '}', ',']) {
                left_out = None;
                test_modules.extend(declared(item).map(str::to_owned));
            }
        } else if left_out.is_none() {
            kept.push_str(code);
        }
        kept.push('\n');
    }
    (kept, test_modules)
}

/// The `x` of `mod x;`.
fn declared(item: &str) -> Option<&str> {
    let (_, name) = item.strip_suffix(';')?.rsplit_once("mod ")?;
    Some(name)
}

/// Every path of the code that leads out of its module, in a `use` or elsewhere, with its line.
/// Others begin with `self`, a child or another crate, and close no circle.
pub(super) fn paths(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        let (mut line, mut counted) = (1, 0);
        for (at, _) in code.match_indices(start) {
            let before = &code[..at];
            // In the middle of a word or of a path; or the reach of a `pub(in …)`.
            let inside = before.ends_with(|last: char| last.is_alphanumeric() || last == '_');
            if inside || before.ends_with("::") || before.ends_with("(in ") {
                continue;
            }
            line += code[counted..at].matches('\n').count();
            counted = at;
            let mut leaves = Vec::new();
            unfold(&code[at..], "", &mut leaves);
            found.extend(leaves.into_iter().map(|path| (line, path)));
        }
    }
    found.sort();
    found
}

/// Takes a path from the front of `code`, with its braces unfolded, and returns what is behind it.
fn unfold<'a>(code: &'a str, before: &str, found: &mut Vec<String>) -> &'a str {
    let end = code
        .find(|next: char| !next.is_alphanumeric() && next != '_' && next != '*')
        .unwrap_or(code.len());
    let (word, rest) = code.split_at(end);
    let path = format!("{before}{word}");
    let Some(rest) = rest.strip_prefix("::") else {
        found.push(path);
        return rest;
    };
    let path = format!("{path}::");
    let Some(mut rest) = rest.strip_prefix('{') else {
        return unfold(rest, &path, found);
    };
    loop {
        rest = rest.trim_start();
        if rest.is_empty() || rest.starts_with('}') {
            return rest.get(1..).unwrap_or("");
        }
        rest = unfold(rest, &path, found);
        // Behind a path may stand `as other`.
        rest = &rest[rest.find([',', '}']).unwrap_or(rest.len())..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(code: &str) -> Vec<String> {
        paths(code).into_iter().map(|(_, path)| path).collect()
    }

    #[test]
    fn braces_are_unfolded() {
        let code = "use crate::{\n    a::{self, B as C},\n    d::*,\n};\nuse super::super::e::F;\n";

        let leaves = ["crate::a::B", "crate::a::self", "crate::d::*"];
        assert_eq!(named(code), [&leaves[..], &["super::super::e::F"]].concat());
        assert_eq!(paths(code)[3].0, 5);
    }

    #[test]
    fn paths_stand_elsewhere_than_in_a_use() {
        assert_eq!(
            named("x(crate::a::b::<u8>(super::c))"),
            ["crate::a::b::", "super::c"]
        );
        assert_eq!(
            named("pub(in crate::a) struct B(pub(crate) u8);"),
            Vec::<String>::new()
        );
        assert_eq!(named("use my_crate::a; use a::super::b;").len(), 0);
    }

    #[test]
    fn what_is_cut_short_is_read_as_far_as_it_goes() {
        assert_eq!(named("use crate::{a::B, c"), ["crate::a::B", "crate::c"]);
        assert_eq!(named("crate::"), ["crate::"]);
    }

    #[test]
    fn lines_keep_their_numbers_and_tests_their_names() {
        let text =
            "//! Top.\n#[cfg(test)]\n#[path = \"x.rs\"]\npub(crate) mod tests;\n\nkept(); // why\n";

        let (code, test_modules) = without_tests(text);

        assert_eq!(code, "\n\n\n\n\nkept();\n");
        assert_eq!(test_modules, ["tests"]);
    }
}
