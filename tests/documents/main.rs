//! Every shell block of every document of this repository, and every Rust example, run as it is printed, from an empty
//! folder; a block that needs more than this machine (a cluster of Kubernetes, a registry) names
//! the test that shows it instead. A block that stands in no table here is a failure.

mod blocks;
mod fenced;
mod python;
mod run;
mod runbooks;
mod rust;
mod table;
mod walk;

use blocks::{Block, of_all_documents};
use run::Runner;
use table::Shown::{self, By, Run};
use table::TABLE;

/// What stands behind the backticks of a shell block.
pub(crate) const SHELL: &[&str] = &["sh", "bash", "shell"];

#[test]
fn every_shell_block_of_every_document_is_shown_to_work() {
    let blocks = of_all_documents(SHELL);
    let mut unshown = Vec::new();
    let mut failed = Vec::new();
    let runner = Runner::new();
    for block in &blocks {
        match shown(block) {
            None => unshown.push(block.place.clone()),
            Some(Run(ends, expected)) => {
                println!("running {}", block.place);
                if let Err(why) = runner.run(block, *ends, expected) {
                    failed.push(format!("{}: {why}", block.place));
                }
            }
            Some(By(file, text)) => {
                if !blocks::source(file).contains(text) {
                    failed.push(format!("{}: {file} has no {text:?}", block.place));
                }
            }
        }
    }
    assert!(
        unshown.is_empty(),
        "no row of the table shows these blocks; add one: {unshown:#?}"
    );
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn no_row_of_the_table_is_left_over() {
    let blocks = of_all_documents(SHELL);
    for (document, text, _) in TABLE {
        let count = blocks
            .iter()
            .filter(|block| is_of(block, document, text))
            .count();
        assert_eq!(count, 1, "{document}: {text:?} is in {count} blocks");
    }
}

fn shown(block: &Block) -> Option<&'static Shown> {
    let row = TABLE
        .iter()
        .find(|(document, text, _)| is_of(block, document, text));
    row.map(|(_, _, shown)| shown)
}

fn is_of(block: &Block, document: &str, text: &str) -> bool {
    block.document == document && block.text.contains(text)
}
