//! Where data is that is not needed after the run, and who removes it however the run ends.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::capability::Ground;
use crate::sys;

/// The hidden command of the binary that calls [`sweep`].
const SWEEP: &str = "chaos-sweep";
/// How often a directory is tried again whose users may be about to die.
const TRIES: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// A directory that is there as long as the run.
#[derive(Debug)]
pub(crate) struct Scratch {
    root: PathBuf,
    mounted: bool,
    /// Removes it if this process is killed.
    sweeper: Option<Child>,
}

impl Scratch {
    /// Makes it, in memory where this process may mount. `program` is the binary itself.
    pub(crate) fn make(root: PathBuf, ground: &Ground, program: &Path) -> io::Result<Self> {
        // Left by a machine that lost its power, if by any.
        std::fs::remove_dir_all(&root).ok();
        std::fs::create_dir_all(&root)?;
        let mounted = ground.mounts.is_ok()
            && sys::mount(Path::new("tmpfs"), &root, "tmpfs", "mode=0700").is_ok();
        let mut command = Command::new(program);
        command
            .arg(SWEEP)
            .arg(&root)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // What a terminal sends to the run is not for it.
            .process_group(0);
        let mut scratch = Self {
            root,
            mounted,
            sweeper: None,
        };
        scratch.sweeper = Some(command.spawn()?);
        Ok(scratch)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.mounted {
            // With all that is mounted below.
            sys::unmount(&self.root, true).ok();
        }
        std::fs::remove_dir_all(&self.root).ok();
        if let Some(mut sweeper) = self.sweeper.take() {
            // The end of its input is what it waits for.
            drop(sweeper.stdin.take());
            sweeper.wait().ok();
        }
    }
}

/// Waits until `waited` ends, which it does when the run does, and removes what is left of the
/// run's scratch directory.
///
/// # Errors
/// If it cannot be removed.
pub fn sweep(dir: &Path, mut waited: impl Read) -> io::Result<()> {
    // No process writes; an input that fails has ended, too.
    io::copy(&mut waited, &mut io::sink()).ok();
    // Processes of the run may hold on to it while they die.
    let (quiet, pause) = channel::<()>();
    let mut left = Ok(());
    for _ in 0..TRIES {
        // Not mounted if this machine does not let the run mount.
        sys::unmount(dir, true).ok();
        left = match std::fs::remove_dir_all(dir) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
            tried => tried,
        };
        if left.is_ok() {
            break;
        }
        // No thread sends: this is a pause.
        pause.recv_timeout(BETWEEN_TRIES).ok();
    }
    drop(quiet);
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_removed_when_the_run_has_ended_and_not_before() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let scratch = dir.path().join("scratch");
        std::fs::create_dir_all(scratch.join("n1/data")).expect("made");
        let (waited, held) = io::pipe().expect("a pipe");
        let theirs = scratch.clone();
        let sweeping = std::thread::spawn(move || sweep(&theirs, waited));

        assert!(scratch.exists());
        drop(held);

        sweeping.join().expect("no panic").expect("removed");
        assert!(!scratch.exists());
        assert!(dir.path().exists());
    }

    #[test]
    fn what_the_run_has_removed_itself_is_no_failure() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        sweep(&dir.path().join("scratch"), io::empty()).expect("nothing to do");
    }
}
