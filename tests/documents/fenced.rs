//! The blocks of code in a document.

/// The blocks in one of these languages: the line on which each begins, counted from 1, and what
/// stands in it. The language is what stands behind the three backticks, as a whole.
pub(crate) fn blocks(document: &str, languages: &[&str]) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut wanted = None;
    for (number, line) in (1..).zip(document.lines()) {
        match (wanted, line.strip_prefix("```")) {
            (None, Some(language)) => {
                let asked = languages.contains(&language);
                wanted = Some(asked);
                if asked {
                    blocks.push((number, String::new()));
                }
            }
            (Some(_), Some("")) => wanted = None,
            (Some(true), _) => {
                if let Some((_, text)) = blocks.last_mut() {
                    text.push_str(line);
                    text.push('\n');
                }
            }
            _ => {}
        }
    }
    blocks
}
