//! A discarded result ends with `.ok();`. Clippy holds that against `let _ =`; against `drop(…)` it
//! cannot, since it does not say what is dropped, so this knows the calls that can fail.

use super::texts::{Kind, texts};
use super::{SourceFile, Violation};

/// Calls whose value is a result: those that are discarded now and then.
const FALLIBLE: &[&str] = &[
    "batch_execute",
    "blocking_send",
    "cancel_query",
    "create_dir_all",
    "execute",
    "join",
    "kill",
    "release",
    "remove_dir_all",
    "remove_file",
    "send",
    "timeout",
    "try_send",
    "wait",
    "wait_for",
    "write",
    "write_all",
];

const REMEDY: &str =
    "end the call with `.ok();`, which says that a result is discarded; `drop` ends a value";

/// Checks the code of a Rust file.
pub(super) fn check(file: &SourceFile) -> Vec<Violation> {
    if !file.has_extension("rs") {
        return Vec::new();
    }
    let lines = file.lines().filter_map(|(number, line)| {
        let code = line.trim_start();
        let statement = code.starts_with("drop(") || code.contains("=> drop(");
        let call = statement.then(|| dropped_call(code)).flatten()?;
        FALLIBLE.contains(&call).then_some((number, call))
    });
    let found: Vec<(usize, &str)> = lines.collect();
    if found.is_empty() {
        return Vec::new();
    }
    // What a literal says is not done.
    let mut texts = texts(file);
    texts.retain(|text| text.kind == Kind::Literal && text.text.contains("drop("));
    let said = |number| texts.iter().any(|text| text.line == number);
    let done = found.into_iter().filter(|(number, _)| !said(*number));
    let violation = |(number, call)| {
        let wrong = format!("the result of `{call}` is discarded by `drop`");
        Violation::new(&file.path, number, wrong, REMEDY)
    };
    done.map(violation).collect()
}

/// The name of the call whose value is dropped: the last one inside of `drop(…)`.
fn dropped_call(code: &str) -> Option<&str> {
    let inside = code.split_once("drop(")?.1.trim_end_matches([';', ',']);
    let inside = inside.strip_suffix(')')?;
    let call = inside.strip_suffix(".await").unwrap_or(inside);
    if !call.ends_with(')') {
        return None;
    }
    let mut open = 0;
    let arguments = call.char_indices().rev().find(|(_, next)| {
        open += match next {
            ')' => 1,
            '(' => -1,
            _ => 0,
        };
        open == 0
    });
    let (name, arguments) = call.split_at(arguments?.0);
    // A channel is given something; without that it is a request, whose future is dropped.
    if name.ends_with(".send") && arguments == "()" {
        return None;
    }
    let start = name.rfind(|next: char| !next.is_alphanumeric() && next != '_');
    Some(&name[start.map_or(0, |start| start + 1)..])
}

#[cfg(test)]
mod tests {
    use super::super::source::fixtures::file;
    use super::*;

    fn faults(text: &str) -> Vec<Violation> {
        check(&file("a.rs", text))
    }

    #[test]
    fn a_dropped_result_is_refused() {
        for line in [
            "    drop(self.child.kill());\n",
            "drop(reply.send(answer(1)).await);\n",
            "    Ok(_) => drop(fs::remove_dir_all(&path)),\n",
        ] {
            assert_eq!(faults(line).len(), 1, "{line}");
        }
    }

    #[test]
    fn values_and_calls_that_cannot_fail_may_be_dropped() {
        for line in [
            "drop(state);\n",
            "drop(write);\n",
            "drop(self.0.take());\n",
            "drop(session.acquire(name).send().await.unwrap());\n",
            "reply.send(answer).ok();\n",
            "drop(open[0].pop());\n",
            "drop(session.acquire(name).send());\n",
            "let text = \"drop(child.kill())\";\n",
        ] {
            assert_eq!(faults(line), Vec::new(), "{line}");
        }
    }
}
