//! A person at a terminal, who has the repository's `deploy` and types what its documents say.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cluster::Cluster;
use crate::program::call;

/// The document whose commands are typed.
const DOCUMENT: &str = "deploy/KUBERNETES.md";

/// The person, in a folder with a copy of `deploy`.
pub(crate) struct Operator {
    folder: PathBuf,
    /// What a shell has on its path before all else.
    components: PathBuf,
    kubeconfig: PathBuf,
    document: String,
}

impl Operator {
    /// At a terminal in a new folder of the run.
    pub(crate) fn of(cluster: &Cluster) -> Result<Self, String> {
        let folder = cluster.folder().join("operator");
        let made = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(made)?;
        let deploy = cluster.manifests("..");
        let copy = folder.join("deploy").display().to_string();
        call("cp", &["--recursive", &deploy, &copy])?;
        let document = fs::read_to_string(folder.join(DOCUMENT)).map_err(made)?;
        Ok(Self {
            components: cluster.kubectl.folder().to_owned(),
            kubeconfig: cluster.kubectl.kubeconfig().to_owned(),
            document,
            folder,
        })
    }

    /// What stands in the blocks of this language under a heading of the document, in their order.
    pub(crate) fn blocks(&self, heading: &str, language: &str) -> Result<Vec<String>, String> {
        let found = blocks(&self.document, heading, language);
        match found.is_empty() {
            true => Err(format!(
                "{DOCUMENT} has no block of {language} under {heading:?}"
            )),
            false => Ok(found),
        }
    }

    /// What a line prints, typed into a shell.
    pub(crate) fn types(&self, line: &str) -> Result<String, String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", self.components.display());
        let output = Command::new("sh")
            .args(["-euc", line])
            .current_dir(&self.folder)
            .env("PATH", path)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .output();
        let output = output.map_err(|error| format!("cannot start sh: {error}"))?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(printed),
            false => Err(format!(
                "{line}: {}\n{printed}{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            )),
        }
    }

    /// A file in the folder.
    pub(crate) fn reads(&self, name: &str) -> Result<String, String> {
        let path = self.folder.join(name);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Writes this to the end of a file in the folder.
    pub(crate) fn adds(&self, name: &Path, text: &str) -> Result<(), String> {
        let path = self.folder.join(name);
        let made = |error: std::io::Error| format!("{}: {error}", path.display());
        let before = fs::read_to_string(&path).map_err(made)?;
        fs::write(&path, before + text).map_err(made)
    }
}

/// The blocks of this language between a heading of the second level and the next one.
fn blocks(document: &str, heading: &str, language: &str) -> Vec<String> {
    let (mut blocks, mut here) = (Vec::new(), false);
    let mut block: Option<String> = None;
    let fence = format!("```{language}");
    for line in document.lines() {
        match &mut block {
            Some(text) if line == "```" => {
                blocks.push(std::mem::take(text));
                block = None;
            }
            Some(text) => *text += &format!("{line}\n"),
            None if line.starts_with("## ") => here = line == format!("## {heading}"),
            None if here && line == fence => block = Some(String::new()),
            None => {}
        }
    }
    blocks
}
