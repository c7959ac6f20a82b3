//! The page that says where each fault is made to happen tells the truth.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The rows that there must be: how many of each letter.
const ROWS: [(char, u32); 8] = [
    ('N', 10),
    ('P', 5),
    ('C', 4),
    ('D', 13),
    ('M', 8),
    ('U', 2),
    ('R', 4),
    ('G', 1),
];
/// What a row says of what no test does.
const NOT: [&str; 3] = ["not injected", "not by", "are not run"];

struct Row {
    id: String,
    names: Vec<String>,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()))
}

fn rows() -> Vec<Row> {
    let page = read("crates/chaos/FAULTS.md");
    let lines = page.lines().filter_map(|line| line.strip_prefix("| "));
    let rows = lines.map(|line| {
        let cells: Vec<&str> = line.trim_end_matches(" |").split(" | ").collect();
        let text = cells.last().unwrap().to_string();
        let quoted = text.split('`').skip(1).step_by(2);
        let names = quoted.filter(|name| name.contains("::")).map(str::to_owned);
        Row {
            id: cells[0].to_owned(),
            names: names.collect(),
            text: text.clone(),
        }
    });
    rows.filter(|row| row.id != "row").collect()
}

/// The words of a text that are names.
fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect()
}

#[test]
fn every_row_is_there_once_and_names_something_or_says_why_not() {
    let rows = rows();
    let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    let wanted = ROWS
        .iter()
        .flat_map(|(letter, count)| (1..=*count).map(move |n| format!("{letter}{n}")));
    assert_eq!(ids, wanted.collect::<Vec<_>>());
    for row in rows {
        let says = NOT.iter().any(|not| row.text.contains(not));
        assert!(!row.names.is_empty() || says, "{}: {}", row.id, row.text);
    }
}

#[test]
fn every_name_exists() {
    let sim = read("crates/sim/src/faults/mod.rs");
    let chaos = read("crates/chaos/src/schedule.rs");
    let chaos = words(&chaos);
    for Row { id, names, .. } in rows() {
        for name in names {
            let (place, claim) = name.split_once("::").unwrap();
            let exists = match place {
                // There the code itself says to which row it belongs.
                "sim" => sim.lines().any(|line| {
                    words(line).contains(claim)
                        && line.contains("Self::")
                        && line.contains(&format!("=> \"{id}\""))
                }),
                "chaos" => chaos.contains(claim),
                file => {
                    read(file).contains(&format!("fn {claim}("))
                        || read(file).contains(&format!("fn {claim}<"))
                }
            };
            assert!(exists, "{id}: there is no `{name}`");
        }
    }
}

#[test]
fn no_fault_is_left_out() {
    let rows = rows();
    let named: BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| &row.names)
        .map(String::as_str)
        .collect();
    let sim = read("crates/sim/src/faults/mod.rs");
    let variants = |text: &str| -> Vec<String> {
        let all = text.split("Self::").skip(1);
        all.map(|rest| rest.chars().take_while(|c| c.is_alphanumeric()).collect())
            .collect()
    };
    let in_rows: Vec<String> = sim
        .lines()
        .filter(|line| line.contains("=> \""))
        .flat_map(variants)
        .collect();
    assert!(in_rows.len() > 30, "{in_rows:?}");
    for variant in in_rows {
        assert!(
            named.contains(format!("sim::{variant}").as_str()),
            "sim::{variant} has no row"
        );
    }
    let chaos = read("crates/chaos/src/schedule.rs");
    let begin = chaos.find("    fn nodes(&self)").unwrap();
    for variant in variants(&chaos[begin..]) {
        // What a script does is its author's to say.
        let known = variant == "Hook" || named.contains(format!("chaos::{variant}").as_str());
        assert!(known, "chaos::{variant} has no row");
    }
}
