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
    /// Folders that a shell has on its path before all others.
    programs: Vec<PathBuf>,
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
        // The command line was built for the image, and lies beside this program.
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let helm = cluster.charts.as_ref().map(|charts| charts.helm.as_path());
        let programs = [Some(own.as_path()), helm];
        let folders = programs.into_iter().flatten().filter_map(Path::parent);
        let folders = [cluster.kubectl.folder()].into_iter().chain(folders);
        Ok(Self {
            programs: folders.map(Path::to_owned).collect(),
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
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = self
            .programs
            .iter()
            .cloned()
            .chain(std::env::split_paths(&path));
        let path = std::env::join_paths(folders).map_err(|error| error.to_string())?;
        let output = Command::new("sh")
            .args(["-euc", line])
            .current_dir(&self.folder)
            .env("PATH", path)
            .env("HOME", &self.folder)
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

    /// Writes a file in the folder.
    pub(crate) fn writes(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.folder.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Writes this to the end of a file in the folder.
    pub(crate) fn adds(&self, name: &Path, text: &str) -> Result<(), String> {
        let path = self.folder.join(name);
        let made = |error: std::io::Error| format!("{}: {error}", path.display());
        let before = fs::read_to_string(&path).map_err(made)?;
        fs::write(&path, before + text).map_err(made)
    }
}

/// The blocks of this language between a heading and the next one of its level or above.
fn blocks(document: &str, heading: &str, language: &str) -> Vec<String> {
    let (mut blocks, mut here) = (Vec::new(), None);
    let mut block: Option<String> = None;
    let fence = format!("```{language}");
    for line in document.lines() {
        match &mut block {
            Some(text) if line == "```" => {
                blocks.push(std::mem::take(text));
                block = None;
            }
            Some(text) => *text += &format!("{line}\n"),
            None if line.starts_with("##") => {
                let title = line.trim_start_matches('#');
                let level = line.len() - title.len();
                here = match here {
                    _ if title.trim() == heading => Some(level),
                    Some(of) if level > of => here,
                    _ => None,
                };
            }
            None if here.is_some() && line == fence => block = Some(String::new()),
            None => {}
        }
    }
    blocks
}
