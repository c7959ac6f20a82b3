//! The patches that plant bugs: each applies to the sources as they are.

use std::path::Path;

use super::Violation;
use crate::patches;

const REMEDY: &str = "change the patch with the code that it patches; if an interrupted `cargo xtask \
                      planted` has left it applied, run `git apply --reverse` on it";

/// Checks that each patch applies.
///
/// # Errors
/// A sentence, if the patches cannot be read.
pub(super) fn check(root: &Path) -> Result<Vec<Violation>, String> {
    let mut violations = Vec::new();
    for patch in patches::all(root)? {
        if let Err(error) = patches::check(root, &patch) {
            let file = patch.strip_prefix(root).unwrap_or(&patch);
            let wrong = format!(
                "does not apply: {}",
                error.lines().next().unwrap_or_default()
            );
            violations.push(Violation::new(file.to_string_lossy(), 1, wrong, REMEDY));
        }
    }
    Ok(violations)
}
