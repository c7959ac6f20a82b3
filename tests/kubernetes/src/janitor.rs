//! Removes a folder once the processes in it and their test are gone, however they ended.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// Reads process ids until its input ends, which happens with the test's process at the latest;
/// then kills those processes and removes the folder. It lies in a group of its own, so that ^C at
/// a terminal does not reach it.
const SCRIPT: &str = r#"
pids=""
while read -r pid; do pids="$pids $pid"; done
for pid in $pids; do kill -9 "$pid" 2>/dev/null; done
for try in 1 2 3 4 5 6 7 8 9 10; do
  rm -rf "$1" 2>/dev/null && exit 0
  sleep 0.2
done
"#;

/// A folder that does not outlive the test.
pub(crate) struct Janitor {
    folder: PathBuf,
    process: Child,
    input: Option<ChildStdin>,
}

impl Janitor {
    /// Takes a folder over.
    pub(crate) fn of(folder: PathBuf) -> Self {
        let mut process = Command::new("sh")
            .args(["-c", SCRIPT, "janitor"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a shell can be started");
        let input = process.stdin.take();
        Self {
            folder,
            process,
            input,
        }
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A process that lives in the folder.
    pub(crate) fn watch_over(&mut self, pid: u32) {
        if let Some(input) = &mut self.input {
            writeln!(input, "{pid}").expect("the janitor reads");
        }
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.input.take());
        drop(self.process.wait());
    }
}
