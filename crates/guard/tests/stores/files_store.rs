//! The guard of files against the conformance suite.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use ringfence_guard::conformance::{Connection, Rule, Step, Stop, Store, crowd, run};
use ringfence_guard::files::{Changes, FilesError, FilesGuard};
use ringfence_guard::{Ceiling, Fence, FencingToken, LeaseName};
use tempfile::TempDir;

use crate::servers::Disk;

/// The only guarded file.
const DATUM: &str = "datum";

/// How a holder goes about it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Guard,
    /// Wrong: the mark is looked at, and written with the data later.
    CheckedBeforehand,
}

/// A directory for each lease.
struct Part {
    whole: RefCell<TempDir>,
    name: LeaseName,
    way: Way,
}

fn part(name: &LeaseName, way: Way) -> Part {
    Part {
        whole: RefCell::new(Disk::Memory.directory()),
        name: name.clone(),
        way,
    }
}

/// Copies a directory whose writes are all over.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => fs::copy(entry.path(), target).map(drop).unwrap(),
        }
    }
}

impl Store for Part {
    type Connection = Holder;
    type Backup = TempDir;

    fn connect(&self) -> Holder {
        let directory = self.whole.borrow().path().to_owned();
        Holder {
            guard: FilesGuard::new(&directory, self.name.clone()).unwrap(),
            directory,
            way: self.way,
            fence: None,
            written: None,
        }
    }

    /// Nothing is open between calls.
    fn reopen(&mut self) {}

    fn backup(&self) -> TempDir {
        let backup = Disk::Memory.directory();
        copy(self.whole.borrow().path(), backup.path());
        backup
    }

    fn restore(&mut self, backup: TempDir) {
        self.whole.replace(backup);
    }

    fn advance_to(&mut self, floor: FencingToken) {
        self.connect().guard.advance_to(floor).unwrap();
    }
}

/// Writes wait for the commit, which is one call. The check before is advice.
struct Holder {
    guard: FilesGuard,
    directory: PathBuf,
    way: Way,
    fence: Option<Fence>,
    written: Option<Option<u64>>,
}

fn stop(error: FilesError) -> Stop {
    match error {
        FilesError::Refused(refused) => Stop::Refused(refused),
        other => Stop::Broken(format!("{other:?}")),
    }
}

impl Holder {
    /// What the guard would write, over whatever there is.
    fn overwrite(&mut self, fence: &Fence) -> Step {
        let Fence { name, token, .. } = fence;
        let mark = format!(
            "ringfence-mark 1\nlease {name}\nmark {:019}\nrevision 1\nend\n",
            token.get()
        );
        fs::write(self.directory.join(".ringfence/mark"), mark).unwrap();
        let datum = self.directory.join(DATUM);
        match self.written.take() {
            Some(Some(value)) => fs::write(datum, value.to_string()).unwrap(),
            Some(None) => fs::remove_file(datum).unwrap_or_default(),
            None => {}
        }
        Ok(())
    }
}

impl Connection for Holder {
    fn admit(&mut self, fence: Option<&str>) -> Step {
        let fence = Fence::receive(self.guard.name(), fence)?;
        let mark = self.guard.mark().map_err(stop)?;
        fence.judge(self.guard.name(), mark)?;
        Ceiling::Clock.judge(&fence, mark)?;
        self.fence = Some(fence);
        Ok(())
    }

    fn advance(&mut self, fence: &str) -> Step {
        let fence = Fence::receive(self.guard.name(), Some(fence))?;
        self.guard.advance(&fence).map(drop).map_err(stop)
    }

    fn read(&mut self) -> Step<Option<u64>> {
        if let Some(written) = self.written {
            return Ok(written);
        }
        let content = self.guard.read(DATUM).map_err(stop)?;
        Ok(content.map(|content| str::from_utf8(&content).unwrap().parse().unwrap()))
    }

    fn write(&mut self, datum: Option<u64>) -> Step {
        self.written = Some(datum);
        Ok(())
    }

    fn commit(&mut self) -> Step {
        let Some(fence) = self.fence.take() else {
            return Ok(());
        };
        if self.way == Way::CheckedBeforehand {
            return self.overwrite(&fence);
        }
        let changes = match self.written.take() {
            Some(Some(value)) => Changes::new().put(DATUM, value.to_string()),
            Some(None) => Changes::new().delete(DATUM),
            None => Changes::new(),
        };
        self.guard.admit(&fence, changes).map(drop).map_err(stop)
    }

    fn abort(&mut self) {
        self.fence = None;
        self.written = None;
    }
}

#[test]
fn the_guard_in_files_passes_the_suite() {
    let report = run(|name| part(name, Way::Guard));
    let report = report.unwrap_or_else(|violation| panic!("{violation}"));
    println!("{report:?}");
    assert!(report.schedules > 200, "{report:?}");
    assert!(report.refused > 0 && report.admitted > 0, "{report:?}");
}

#[test]
fn a_crowd_of_writers_in_files_loses_nothing() {
    let report = crowd(|name| part(name, Way::Guard));
    println!(
        "{:?}",
        report.unwrap_or_else(|violation| panic!("{violation}"))
    );
}

#[test]
fn a_check_outside_of_the_lock_is_found() {
    match run(|name| part(name, Way::CheckedBeforehand)) {
        Ok(report) => panic!("the suite did not notice: {report:?}"),
        Err(violation) => assert!(
            matches!(violation.rule, Rule::TokensDecreased { .. }),
            "{violation}"
        ),
    }
}
