//! The tables that name tests name tests that exist.

use std::fs;
use std::path::Path;

/// All sources and scenarios below a folder, as one text; a scenario counts by its file's name.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, text);
        } else if [".rs", ".go", ".py"].iter().any(|end| name.ends_with(end)) {
            text.push_str(&fs::read_to_string(&path).unwrap());
        } else if let Some(story) = name.strip_suffix(".txt") {
            text.push_str(&format!("fn {story}()\n"));
        }
    }
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn assert_it_exists(name: &str, text: &str) {
    let claim = name.rsplit("::").next().unwrap();
    let (start, end) = match claim.strip_suffix('*') {
        Some(start) => (start, ""),
        None => (claim, "("),
    };
    // In Rust, in Go, in Python.
    let exists = ["fn", "func", "def"]
        .iter()
        .any(|keyword| text.contains(&format!("{keyword} {start}{end}")));
    assert!(exists, "there is no test `{name}`");
}

#[test]
fn every_test_that_a_table_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut text = String::new();
    for folder in ["client", "crates", "server", "tests"] {
        sources(&root.join(folder), &mut text);
    }
    for table in ["KNOWN-PROBLEMS.md", "COMPARISON.md"] {
        let table = fs::read_to_string(root.join("client").join(table)).unwrap();
        let rows = table.lines().filter(|line| line.starts_with("| "));
        // What has a path is a test; APIs begin with a capital.
        let mut count = 0;
        for name in rows.flat_map(quoted) {
            if name.contains("::") && name.starts_with(char::is_lowercase) {
                assert_it_exists(name, &text);
                count += 1;
            }
        }
        assert!(count > 20, "{count} tests were found in the table");
    }
    let clients = fs::read_to_string(root.join("client/README.md")).unwrap();
    let mut count = [0; 4];
    for row in clients.lines().filter(|line| line.starts_with("| S")) {
        for (client, cell) in row.split('|').skip(2).take(4).enumerate() {
            for name in quoted(cell) {
                assert_it_exists(name, &text);
                count[client] += 1;
            }
        }
    }
    assert!(
        count[0] >= 50 && count[1..].iter().all(|tests| *tests >= 9),
        "{count:?} tests were found in the table of clients"
    );
    let security = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let (_, threats) = security.split_once("## Threat model").unwrap();
    let mut count = 0;
    for row in threats.lines().filter(|line| line.starts_with("| ")) {
        for name in quoted(row.split('|').nth(4).unwrap()) {
            assert_it_exists(name, &text);
            count += 1;
        }
    }
    assert!(count > 15, "{count} tests were found in the threat model");
    let readme = fs::read_to_string(root.join("tests/README.md")).unwrap();
    let (_, findings) = readme
        .split_once("## Findings of the 0.1.0 review")
        .unwrap();
    for finding in ["U1", "K3"] {
        let row = format!("| {finding} |");
        assert!(findings.contains(&row), "there is no row of {finding}");
    }
    let mut count = 0;
    for row in findings.lines().filter(|line| line.starts_with("| ")) {
        // Of a path the test is the last part; what has no underscore is a crate or an option, and
        // what has a dot a file.
        for name in quoted(row.split('|').nth(2).unwrap()) {
            assert!(!name.contains('…'), "`{name}` is to be written out");
            let claim = name.rsplit("::").next().unwrap();
            if claim.contains('_') && !claim.contains('.') {
                assert_it_exists(name, &text);
                count += 1;
            }
        }
    }
    assert!(
        count > 100,
        "{count} tests were found in the table of findings"
    );
}
