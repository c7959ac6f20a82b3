//! Guarded writes whose connection is disturbed: at each step in turn, and in great number at
//! random.
//!
//! `RINGFENCE_HOSTILE_WRITES=N` sets how many writes the random runs make, per store; see
//! `soak.rs`.
#![allow(clippy::unwrap_used)]

mod etcd;
mod files;
mod killed;
mod memory;
mod mysql;
mod mysql_soak;
mod postgres;
mod postgres_soak;
mod redis;
mod s3;
#[path = "../servers/mod.rs"]
mod servers;
mod soak;
mod sqlite;

use ringfence_guard::LeaseName;
use std::path::Path;
use tempfile::TempDir;

use ringfence_guard::conformance::{Hit, HostileReport, HostileStore, Violation, hostile};

/// Runs a test's future as a program would: on a runtime of several threads.
fn run_to_end<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(test)
}

/// A directory in memory where there is one.
fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let inside = memory.is_dir().then(|| tempfile::tempdir_in(memory).ok());
    inside
        .flatten()
        .unwrap_or_else(|| tempfile::tempdir().unwrap())
}

/// Passes the hostile suite, and shows that each of these kinds of fault was met.
async fn withstands<S: HostileStore>(
    fresh: impl AsyncFn(&LeaseName) -> S,
    hits: &[Hit],
) -> HostileReport {
    let report = meets(fresh, hits).await;
    assert!(report.refused > 0, "no write was refused: {report:?}");
    report
}

/// As [`withstands`], for a store that judges in the last step that a stale write has: one that meets its
/// fault is never refused.
async fn meets<S: HostileStore>(
    fresh: impl AsyncFn(&LeaseName) -> S,
    hits: &[Hit],
) -> HostileReport {
    let report = hostile(fresh).await;
    let report = report.unwrap_or_else(|violation| panic!("{violation}"));
    println!("{report:?}");
    for hit in hits {
        let met = report.faults.get(hit).copied().unwrap_or(0);
        assert!(met >= 3, "{hit:?} was met {met} times: {report:?}");
    }
    report
}

/// Fails the hostile suite, and says how.
async fn falls<S: HostileStore>(fresh: impl AsyncFn(&LeaseName) -> S) -> Box<Violation> {
    match hostile(fresh).await {
        Ok(report) => panic!("the suite did not notice: {report:?}"),
        Err(violation) => violation,
    }
}
