//! Scripts as files, and the list of those that a client is known not to pass.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// One script.
pub(crate) struct Script {
    /// The file's name without its ending.
    pub(crate) name: String,
    pub(crate) nodes: usize,
    pub(crate) needs: Vec<String>,
    pub(crate) steps: Vec<Value>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All scripts whose names contain `part`, in the order of their names.
pub(crate) fn all(part: &str) -> Vec<Script> {
    let entries = std::fs::read_dir(folder()).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    paths.sort();
    let scripts = paths.iter().map(|path| parse(path));
    scripts
        .filter(|script| script.name.contains(part))
        .collect()
}

fn parse(path: &Path) -> Script {
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    let told = read(path);
    let members = ["title", "why", "promise", "nodes", "needs", "steps"];
    for key in told.as_object().unwrap().keys() {
        assert!(members.contains(&key.as_str()), "{name}: {key} is unknown");
    }
    for key in ["title", "why", "promise"] {
        assert!(told[key].is_string(), "{name}: no text {key}");
    }
    let needs = told["needs"].as_array().into_iter().flatten();
    Script {
        nodes: usize::try_from(told["nodes"].as_u64().unwrap_or(1)).unwrap(),
        needs: needs
            .map(|need| need.as_str().unwrap().to_owned())
            .collect(),
        steps: told["steps"].as_array().unwrap().clone(),
        name,
    }
}

/// Why a client does not pass a script, by the script's name.
pub(crate) fn known(language: &str) -> BTreeMap<String, String> {
    let told = read(&folder().join("known/failures.json"));
    let of_language = told[language].as_object();
    let of_language = of_language.unwrap_or_else(|| panic!("known failures: no {language}"));
    of_language
        .iter()
        .map(|(name, why)| (name.clone(), why.as_str().unwrap().to_owned()))
        .collect()
}
