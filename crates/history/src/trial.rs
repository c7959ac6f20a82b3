//! The mark of an index on trial: `history/opening`.
//!
//! A damaged index can make its store panic, and a release build ends with its first panic. So the
//! file says what became of the last attempts, and the next start knows. A panic in the store adds to
//! it at any time, by a panic hook: a process that aborts runs nothing else.
//!
//! ```text
//! n     the index is new: the one before was set aside; until it has done its first work
//! x     an attempt to open it began; until the attempt ended, however it did
//! p     the store panicked
//! ```
//!
//! A process that ends without a panic proves nothing: a supervisor that finds its disk hanging
//! kills it, again and again at the same place. So only the opening itself counts, which the
//! process waits for before it serves anybody, and a new index is never suspected.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;

use crate::health::damage;

const FILE: &str = "opening";
const NEW: u8 = b'n';
const ATTEMPT: u8 = b'x';
const PANIC: u8 = b'p';
/// So many attempts to open it may end with the process, without a panic, before the index is set
/// aside: a power cut or a kill may hit the same moment once, not every time.
const DEATHS_MAX: usize = 2;

/// What the attempts before this one say about the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past {
    /// No attempt before this one failed, or too few to blame the index.
    Sound,
    /// The process ended while it was opened, more than once, and it is not known why.
    Suspect,
    /// It ends the process: it is to be set aside.
    Deadly,
    /// The one before was deadly, and this new one is as well: the index is not to blame.
    DeadlyAlsoNew,
}

/// The mark of the index in a directory.
#[derive(Debug, Clone)]
pub(crate) struct Trial {
    file: PathBuf,
}

impl Trial {
    pub(crate) fn of(root: &Path) -> Self {
        mark_panics();
        Self {
            file: root.join(FILE),
        }
    }

    /// Where the mark lies: removing it lets the index be opened again.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Whether a file of this name, beside the index, is the mark.
    pub(crate) fn is_mark(name: &std::ffi::OsStr) -> bool {
        name == FILE
    }

    pub(crate) fn past(&self) -> io::Result<Past> {
        let marks = self.marks()?;
        let has = |mark| marks.contains(&mark);
        let deaths = marks.iter().filter(|mark| **mark == ATTEMPT).count();
        Ok(match (has(PANIC), has(NEW)) {
            (true, true) => Past::DeadlyAlsoNew,
            (true, false) => Past::Deadly,
            (false, false) if deaths >= DEATHS_MAX => Past::Suspect,
            (false, _) => Past::Sound,
        })
    }

    fn marks(&self) -> io::Result<Vec<u8>> {
        match fs::read(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            marks => marks,
        }
    }

    /// Notes that the index was set aside and that the next one is new.
    pub(crate) fn restart(&self) -> io::Result<()> {
        fs::write(&self.file, [NEW])
    }

    /// Notes that an attempt begins.
    pub(crate) fn begin(&self) -> io::Result<()> {
        append(&self.file, ATTEMPT)
    }

    /// Notes that the process survived the attempt, however it went.
    pub(crate) fn survived(&self) {
        let rewritten = self.marks().and_then(|mut marks| {
            marks.retain(|mark| *mark != ATTEMPT);
            match marks.is_empty() {
                true => fs::remove_file(&self.file),
                false => fs::write(&self.file, marks),
            }
        });
        told_if_it_stays(rewritten);
    }

    /// Notes that the index has done its first work and is not damaged.
    pub(crate) fn end(&self) {
        told_if_it_stays(fs::remove_file(&self.file));
    }

    /// Runs what calls the store. A panic is damage and is marked, also if the process ends by it.
    pub(crate) fn guard<R>(&self, work: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        let before = AT_WORK.replace(Some(self.file.clone()));
        let done = catch_unwind(AssertUnwindSafe(work));
        AT_WORK.set(before);
        done.unwrap_or_else(|_| Err(damage("the store panicked")))
    }
}

thread_local! {
    /// The mark of the index that this thread works on.
    static AT_WORK: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Lets every panic of a thread that works on an index mark it, before anything else is done.
fn mark_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // A panic within the hook would hide the first one, so nothing here may panic.
            let file = AT_WORK.try_with(|at_work| at_work.try_borrow().ok()?.clone());
            if let Some(file) = file.ok().flatten() {
                // The panic itself is reported below, and more cannot be done about a full disk.
                let _marked = append(&file, PANIC);
            }
            before(panic);
        }));
    });
}

fn told_if_it_stays(removed: io::Result<()>) {
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!(%error, "the mark of an attempt to open the history stays");
    }
}

fn append(file: &Path, mark: u8) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.create(true).append(true);
    options.open(file)?.write_all(&[mark])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_whose_opening_ends_the_process_twice_is_reported_once() {
        let temp = tempfile::tempdir().unwrap();
        let trial = Trial::of(temp.path());
        for expected in [Past::Sound, Past::Sound, Past::Suspect] {
            assert_eq!(trial.past().unwrap(), expected);
            trial.begin().unwrap();
        }
        trial.survived();
        assert_eq!(trial.past().unwrap(), Past::Sound);
        trial.restart().unwrap();
        for _ in 0..5 {
            trial.begin().unwrap();
            assert_eq!(trial.past().unwrap(), Past::Sound, "the new one is not");
        }
        trial.survived();
        assert_eq!(trial.marks().unwrap(), [NEW]);
        trial.end();
        assert_eq!(trial.marks().unwrap(), []);
    }

    #[test]
    fn a_panic_is_reported_at_once_and_blames_a_new_index_for_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let trial = Trial::of(temp.path());
        let panics = || -> io::Result<()> { panic!("the store is wrong") };
        let error = trial.guard(panics).unwrap_err();
        assert!(crate::health::is_damage(&error), "{error}");
        assert_eq!(trial.past().unwrap(), Past::Deadly);
        trial.restart().unwrap();
        assert_eq!(trial.past().unwrap(), Past::Sound);
        assert!(trial.guard(panics).is_err());
        assert_eq!(trial.past().unwrap(), Past::DeadlyAlsoNew);
        trial.end();
        // No thread works on the index here.
        assert!(std::panic::catch_unwind(|| panic!("elsewhere")).is_err());
        assert_eq!(trial.past().unwrap(), Past::Sound);
    }
}
