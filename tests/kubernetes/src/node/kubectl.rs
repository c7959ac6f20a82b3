//! What people type.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::program::call;

/// kubectl, as the administrator.
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// By this kubeconfig.
    pub(crate) fn new(components: &Path, kubeconfig: PathBuf) -> Self {
        Self {
            program: components.join("kubectl"),
            kubeconfig,
        }
    }

    /// What it prints for these words, parted by spaces.
    pub(crate) fn run(&self, line: &str) -> Result<String, String> {
        self.call(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// The same for words that have spaces themselves.
    pub(crate) fn call(&self, words: &[&str]) -> Result<String, String> {
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig.display());
        let mut arguments = vec![kubeconfig.as_str()];
        arguments.extend(words);
        call(&self.program.display().to_string(), &arguments)
    }

    /// An object, or a list of them.
    pub(crate) fn get(&self, line: &str) -> Result<Value, String> {
        let text = self.run(&format!("get {line} --output=json"))?;
        serde_json::from_str(&text).map_err(|error| format!("get {line}: {error}"))
    }
}
