//! What people type.

use std::fs;
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

    /// The folder that it lies in.
    pub(crate) fn folder(&self) -> &Path {
        self.program.parent().unwrap_or(&self.program)
    }

    /// The file by which it speaks.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The same, acting as another user with one more attribute, by a kubeconfig in this file.
    pub(crate) fn disguised(
        &self,
        user: &str,
        (name, value): (&str, &str),
        file: PathBuf,
    ) -> Result<Self, String> {
        let made = |error: std::io::Error| format!("{}: {error}", file.display());
        let own = fs::read_to_string(&self.kubeconfig).map_err(made)?;
        let disguise =
            format!("user: {{as: '{user}', as-user-extra: {{'{name}': ['{value}']}}, token:");
        fs::write(&file, own.replace("user: {token:", &disguise)).map_err(made)?;
        let program = self.program.clone();
        let kubeconfig = file;
        Ok(Self {
            program,
            kubeconfig,
        })
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
