//! YAML as people read it: comments, and long texts folded to the width of a page.

/// How wide lines become, as far as there are spaces to break them at.
const WIDTH: usize = 100;

/// Renders a text as YAML comment lines of at most `WIDTH` characters.
pub(super) fn comment(text: &str) -> String {
    let lines = fold(text, WIDTH - 2);
    lines.iter().map(|line| format!("# {line}\n")).collect()
}

/// A key with a text, in YAML's folded form: any text is taken as it stands.
pub(super) fn folded(indent: usize, key: &str, text: &str) -> String {
    let blank = " ".repeat(indent);
    let lines = fold(text, WIDTH.saturating_sub(indent + 2));
    let lines = lines.iter().map(|line| format!("{blank}  {line}\n"));
    format!("{blank}{key}: >-\n{}", lines.collect::<String>())
}

/// One item of a list of named expressions.
pub(super) fn named(indent: usize, name: &str, expression: &str) -> String {
    let blank = " ".repeat(indent);
    let expression = folded(indent + 2, "expression", expression);
    format!("{blank}- name: {name}\n{expression}")
}

/// A text in lines, broken at single spaces, which folding turns back into spaces.
fn fold(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one at least");
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// One rule of a policy, and what its refusal says.
pub(super) struct Rule {
    /// For readers of the manifest.
    pub(super) why: &'static str,
    /// What has to be true.
    pub(super) expression: String,
    /// An expression that makes the words of the refusal.
    pub(super) words: String,
    /// The words if that cannot be evaluated.
    pub(super) plain: &'static str,
}

impl Rule {
    /// As an item of `validations`.
    pub(super) fn yaml(&self) -> String {
        let why = comment(self.why);
        let why: String = why.lines().map(|line| format!("    {line}\n")).collect();
        let expression = folded(6, "expression", &self.expression);
        let expression = expression.replacen("      expression", "    - expression", 1);
        let words = folded(6, "messageExpression", &self.words);
        let plain = self.plain;
        format!("{why}{expression}      reason: Forbidden\n{words}      message: \"{plain}\"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_broken_at_spaces_only() {
        let text = "word ".repeat(60).trim_end().to_owned();
        let shown = folded(4, "message", &text);
        assert!(shown.lines().count() > 3, "{shown}");
        assert!(shown.lines().all(|line| line.len() <= WIDTH));
        let lines: Vec<&str> = shown.lines().skip(1).map(str::trim).collect();
        assert_eq!(lines.join(" "), text);
    }
}
