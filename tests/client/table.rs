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
        } else if name.ends_with(".rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        } else if let Some(story) = name.strip_suffix(".txt") {
            text.push_str(&format!("fn {story}()\n"));
        }
    }
}

#[test]
fn every_test_that_a_table_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut text = String::new();
    for folder in ["client", "crates", "server", "tests"] {
        sources(&root.join(folder), &mut text);
    }
    for table in ["PAINS.md", "ROWS.md"] {
        let table = fs::read_to_string(root.join("client").join(table)).unwrap();
        let rows = table.lines().filter(|line| line.starts_with("| "));
        // What stands between backticks and has a path is a test; APIs begin with a capital.
        let quoted = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
        let named =
            quoted.filter(|name| name.contains("::") && name.starts_with(char::is_lowercase));
        let mut count = 0;
        for name in named {
            let claim = name.rsplit("::").next().unwrap();
            let sought = match claim.strip_suffix('*') {
                Some(start) => format!("fn {start}"),
                None => format!("fn {claim}("),
            };
            assert!(text.contains(&sought), "there is no test `{name}`");
            count += 1;
        }
        assert!(count > 20, "{count} tests were found in the table");
    }
}
