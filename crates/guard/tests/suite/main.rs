//! Every backend against the conformance suite, and the suite against guards that are wrong.
#![allow(clippy::unwrap_used)]

mod contention;
mod copies;
mod memory;
mod mvcc;
mod planted;
mod readme;
mod seal;
mod sled_store;
mod sqlite;
mod sqlite_marks;
mod sqlite_rules;

use std::path::Path;

use ringfence_guard::conformance::{Report, Store, Violation, crowd, run};
use tempfile::TempDir;

/// A directory in memory where there is one: no test here is about the loss of power, and thousands
/// of flushes to a busy disk take their time.
fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let inside = memory
        .is_dir()
        .then(|| tempfile::tempdir_in(memory).ok())
        .flatten();
    inside.unwrap_or_else(|| tempfile::tempdir().unwrap())
}

/// Passes the suite, and shows that the run was not empty.
fn passes<S: Store>(fresh: impl FnMut(&ringfence_guard::LeaseName) -> S) -> Report {
    let report = run(fresh).unwrap_or_else(|violation| panic!("{violation}"));
    println!("{report:?}");
    assert!(
        report.schedules > 200,
        "too few orders were played: {report:?}"
    );
    assert!(report.refused > 0, "no write was ever refused: {report:?}");
    assert!(
        report.admitted > 0,
        "no write was ever admitted: {report:?}"
    );
    report
}

/// Passes the crowd.
fn withstands_a_crowd<S: Store>(fresh: impl FnMut(&ringfence_guard::LeaseName) -> S)
where
    S::Connection: Send,
{
    let report = crowd(fresh).unwrap_or_else(|violation| panic!("{violation}"));
    println!("{report:?}");
}

/// Fails the suite, and says how.
fn fails<S: Store>(fresh: impl FnMut(&ringfence_guard::LeaseName) -> S) -> Box<Violation> {
    match run(fresh) {
        Ok(report) => panic!("the suite did not notice: {report:?}"),
        Err(violation) => violation,
    }
}
