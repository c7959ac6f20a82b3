//! Removes a folder once the processes in it and their test are gone, however they ended.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// Reads process ids with their start times until its input ends, which happens with the test's
/// process at the latest; then kills those of them that still run and removes the folder. A number
/// alone may be another process's by then: the kernel gives it to the next process once its own is
/// gone. It lies in a group of its own, so that ^C at a terminal does not reach it.
const SCRIPT: &str = r#"
folder="$1"
# What follows the name, which may have any characters: the state is the first, the start time the
# twentieth.
started() {
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return
  set -- ${stat##*)}
  echo "${20}"
}
known=""
while read -r pid start; do known="$known $pid:$start"; done
for each in $known; do
  [ "$(started "${each%:*}")" = "${each#*:}" ] && kill -9 "${each%:*}" 2>/dev/null
done
for try in 1 2 3 4 5 6 7 8 9 10; do
  rm -rf "$folder" 2>/dev/null && exit 0
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

    /// A child that lives in the folder and was not waited for, so that its number is its own.
    pub(crate) fn watch_over(&mut self, pid: u32) {
        let start = start_of(pid).expect("a child that was not waited for has a line in /proc");
        self.note(pid, &start);
    }

    fn note(&mut self, pid: u32, start: &str) {
        if let Some(input) = &mut self.input {
            writeln!(input, "{pid} {start}").expect("the janitor reads");
        }
    }
}

/// When a process was started, in the kernel's ticks: tells it from the next of its number.
fn start_of(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind_the_name) = stat.rsplit_once(')')?;
    let start = behind_the_name.split_whitespace().nth(19)?;
    Some(start.to_owned())
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.input.take());
        self.process.wait().ok();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    /// A process with a name that would like to be more fields, and a janitor of a folder.
    fn process_and_janitor() -> (Child, Janitor, PathBuf) {
        let folder = tempfile::tempdir().unwrap().keep();
        let program = folder.join("a ) 1 2");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let child = Command::new(&program).arg("60").spawn().unwrap();
        let janitor = Janitor::of(folder.clone());
        (child, janitor, folder)
    }

    #[test]
    fn what_lives_in_the_folder_ends_with_it() {
        let (mut child, mut janitor, folder) = process_and_janitor();
        janitor.watch_over(child.id());
        drop(janitor);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert!(!folder.exists());
    }

    #[test]
    fn a_process_that_has_the_number_of_one_that_is_gone_lives_on() {
        let (mut child, mut janitor, folder) = process_and_janitor();
        let start: u64 = start_of(child.id()).unwrap().parse().unwrap();
        janitor.note(child.id(), &(start - 1).to_string());
        drop(janitor);
        assert!(child.try_wait().unwrap().is_none(), "it was killed");
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert!(!folder.exists());
    }
}
