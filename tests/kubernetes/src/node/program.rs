//! Programs that are called and waited for, and such that stay.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::say::Watch;

/// How long anything of a node may take to come up; seconds on a machine that does nothing else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// How often a condition is looked at.
const GLANCE: Duration = Duration::from_millis(50);

/// What a program printed, if it succeeded; else what it said, and how it was called.
pub(crate) fn call(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| format!("cannot start {program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!(
        "{program} {}: {}\n{}{}",
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    ))
}

/// Where a program is; folders for programs of the system are looked at even if the path of the
/// caller lacks them.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin"];
    let folders = std::env::split_paths(&path).chain(system.map(PathBuf::from));
    let mut programs = folders.map(|folder| folder.join(program));
    programs.find(|path| path.is_file())
}

/// A program that runs beside the story, and ends with the namespaces.
pub(crate) struct Daemon {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts it; what it prints goes to a log of its name.
    pub(crate) fn start(
        program: &Path,
        arguments: &[String],
        environment: &[(&str, &str)],
        logs: &Path,
    ) -> Result<Self, String> {
        let name = program.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let log = logs.join(format!("{name}.log"));
        let made = |error| format!("{}: {error}", log.display());
        let output = File::create(&log).map_err(made)?;
        let child = Command::new(program)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(made)?)
            .stderr(output)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        Ok(Self { name, child, log })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// An error if it has ended.
    pub(crate) fn runs(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("{} ended ({status}):\n{}", self.name, self.tail())),
            Err(error) => Err(format!("{}: {error}", self.name)),
        }
    }

    /// Asks it to end, and waits.
    pub(crate) fn stop(mut self, signal: &str) {
        call("kill", &["-s", signal, &self.child.id().to_string()]).ok();
        self.child.wait().ok();
    }

    fn tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

/// Waits until `look` finds what it looks for; the error says what was waited for, and what was
/// seen last.
pub(crate) fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<T, String>,
) -> Result<T, String> {
    let watch = Watch::start();
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(seen) if watch.so_far() > limit => {
                return Err(format!("not within {limit:?}: {what}; last seen: {seen}"));
            }
            Err(_) => pause(),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this process has nothing else to do, and no other way to be told"
)]
fn pause() {
    std::thread::sleep(GLANCE);
}
