//! The blocks of code in the documents.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fenced;

/// One block, without the lines of backticks.
pub(crate) struct Block {
    /// The document's path, from the root.
    pub(crate) document: String,
    /// Document and line.
    pub(crate) place: String,
    /// What stands in it.
    pub(crate) text: String,
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("tests stands in the root").to_owned()
}

/// The text of a file, by its path from the root.
pub(crate) fn source(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|cause| panic!("{path}: {cause}"))
}

/// The blocks in these languages of all documents that git knows, and of those that it will know.
pub(crate) fn of_all_documents(languages: &[&str]) -> Vec<Block> {
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let listed = list.arg("*.md").current_dir(root()).output();
    let listed = listed.expect("git lists the documents");
    let listed = String::from_utf8(listed.stdout).expect("paths are text");
    let of_document = |document: &str| {
        let blocks = fenced::blocks(&source(document), languages).into_iter();
        let blocks = blocks.map(|(line, text)| Block {
            document: document.to_owned(),
            place: format!("{document}:{line}"),
            text,
        });
        blocks.collect::<Vec<_>>()
    };
    let blocks: Vec<Block> = listed.lines().flat_map(of_document).collect();
    assert!(blocks.len() >= 5, "{} blocks found", blocks.len());
    blocks
}
