//! The runbooks of deploy/RECOVERY.md. For each a test brings about what its heading names, runs the
//! commands below it as they stand and in their order, and looks whether the cluster is well. What a
//! stuck node prints names a heading that there is.

mod anchors;
mod faults;
mod holders;
mod stage;
mod waits;

use crate::blocks::source;
use stage::Stage;

const DOCUMENT: &str = "deploy/RECOVERY.md";

/// Runbooks, and those headings that are none.
const RUNBOOKS: [&str; 9] = [
    "The majority is down",
    "One disk is lost",
    "One node is lost for good",
    "The majority is lost for good",
    "All disks are lost",
    "Old holders still write",
    "A disk is full",
    "A clock is wrong by a day",
    "A certificate has expired",
];
const OTHERS: [&str; 2] = ["The commands", "Be prepared"];

/// The commands below a heading, with all that stands below its own headings.
fn commands(heading: &str) -> String {
    let text = source(DOCUMENT);
    let (_, behind) = text
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("{DOCUMENT} has no heading {heading:?}"));
    let section = behind.split("\n## ").next().unwrap_or_default();
    let blocks = crate::fenced::blocks(section, crate::SHELL);
    assert!(!blocks.is_empty(), "{heading}: no commands");
    blocks.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn every_heading_of_the_document_is_a_runbook_with_a_test() {
    let text = source(DOCUMENT);
    let headings = text.lines().filter_map(|line| line.strip_prefix("## "));
    let known = |heading: &&str| !RUNBOOKS.contains(heading) && !OTHERS.contains(heading);
    let unknown: Vec<&str> = headings.filter(known).collect();
    assert_eq!(unknown, Vec::<&str>::new());
    let tests =
        source("tests/documents/runbooks.rs") + &source("tests/documents/runbooks/faults.rs");
    for runbook in RUNBOOKS {
        let name = runbook.to_lowercase().replace(' ', "_");
        assert!(tests.contains(&format!("fn {name}()")), "{name}");
    }
}

#[test]
fn the_majority_is_down() {
    let mut stage = Stage::start("");
    let before = stage.grant();
    // It may have waited long for its first leader.
    let start = stage.log(1).len();
    stage.kill(2);
    stage.kill(3);
    stage.until("n1 says what it lacks", |stage| {
        stage.log(1)[start..].contains("RECOVERY.md#the-majority-is-down")
    });
    assert!(stage.ready(1).contains("RECOVERY.md#the-majority-is-down"));
    stage.run("The majority is down");
    assert!(stage.grant() > before);
}

#[test]
fn one_disk_is_lost() {
    let mut stage = Stage::start("");
    let before = stage.grant();
    stage.kill(3);
    stage.lose_disk(3);
    stage.run("One disk is lost");
    assert!(stage.grant() > before);
    assert!(stage.log(3).contains("RECOVERY.md#one-disk-is-lost"));
    let members = stage.ringfence(&["cluster", "members"]);
    let has_vote = |row: &&str| row.contains(" leader ") || row.contains(" voter ");
    assert_eq!(members.lines().filter(has_vote).count(), 3, "{members}");
    assert!(!members.contains("learner"), "{members}");
}

#[test]
fn one_node_is_lost_for_good() {
    let mut stage = Stage::start("");
    let before = stage.grant();
    stage.kill(3);
    stage.lose_disk(3);
    stage.run("One node is lost for good");
    assert!(stage.grant() > before);
    let members = stage.ringfence(&["cluster", "members"]);
    assert!(
        members.contains("n4") && !members.contains("n3"),
        "{members}"
    );
}

#[test]
fn the_majority_is_lost_for_good() {
    let mut stage = Stage::start("");
    let before = stage.grant();
    for lost in [1, 2] {
        stage.kill(lost);
        stage.lose_disk(lost);
    }
    let said = stage.run("The majority is lost for good");
    assert!(said.contains("quiet time"), "{said}");
    assert!(stage.last_token() > before);
    // The survivor never starts again.
    let retired = stage.serve_again("n3/retired");
    assert!(
        retired.contains("RECOVERY.md#the-majority-is-lost-for-good"),
        "{retired}"
    );
}

#[test]
fn all_disks_are_lost() {
    let mut stage = Stage::start("");
    stage.back_up();
    // What the backup does not know.
    let before = stage.grant();
    for lost in [1, 2, 3] {
        stage.kill(lost);
        stage.lose_disk(lost);
    }
    let said = stage.run("All disks are lost");
    assert!(said.contains("quiet time"), "{said}");
    assert!(stage.last_token() > before);
    let refused = stage.refused(&["--json", "lease", "acquire", "check/late"]);
    assert!(refused.contains("QUIET_TIME"), "{refused}");
}

#[test]
fn old_holders_still_write() {
    let mut stage = Stage::start("");
    stage.ringfence(&["guard", "sqlite", "store.db", "--install"]);
    let known = stage.grant_of("orders/eu");
    assert!(stage.write(known), "the holder writes");
    stage.back_up();
    stage.ringfence(&[
        "lease",
        "revoke",
        "orders/eu",
        &known.to_string(),
        "--now",
        "--reason",
        "moved",
    ]);
    // The backup does not know this one, and the restored cluster has never heard of it.
    let unknown = stage.grant_of("orders/eu");
    assert!(stage.write(unknown), "the next holder writes");
    assert!(!stage.write(known), "the guard has seen a newer one");
    for lost in [1, 2, 3] {
        stage.kill(lost);
        stage.lose_disk(lost);
    }
    stage.run("All disks are lost");
    let holders = stage.holders(&[known, unknown]);
    assert!(stage.write(unknown), "no mark of the store is above it yet");
    stage.run("Old holders still write");
    let written = holders.admitted();
    assert!(!stage.write(unknown) && !stage.write(known));
    holders.try_more();
    assert_eq!(holders.admitted(), written, "no stale write is admitted");
}
