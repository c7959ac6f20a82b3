//! The guards whose stores are servers, against real ones.
#![allow(clippy::unwrap_used)]

mod etcd_rules;
mod etcd_store;
mod files_mishaps;
mod files_rules;
mod files_store;
mod mysql_owners;
mod mysql_rules;
mod mysql_sql;
mod mysql_store;
mod mysql_walls;
mod postgres_owners;
mod postgres_rules;
mod postgres_schema;
mod postgres_seal;
mod postgres_sql;
mod postgres_store;
mod postgres_transactions;
mod postgres_traps;
mod postgres_walls;
mod redis_losses;
mod redis_rules;
mod redis_store;
mod s3_answers;
mod s3_rules;
mod s3_store;
#[path = "../servers/mod.rs"]
mod servers;

use ringfence_guard::conformance::{
    AsyncStore, CrowdReport, Report, Violation, crowd_async, run_async,
};
use ringfence_guard::{Fence, LeaseName};

/// Runs a test's future as a program would: on a runtime of several threads.
fn run_to_end<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(test)
}

fn fence(text: &str) -> Fence {
    text.parse().unwrap()
}

#[test]
fn a_missing_server_fails_under_ci_and_is_loud_elsewhere() {
    let look = || servers::machine::find("a-server-that-is-not-installed", "nothing");
    let found = std::panic::catch_unwind(look);
    if std::env::var("CI").is_ok_and(|value| value == "true") {
        assert!(found.is_err(), "it was only loud");
    } else {
        assert_eq!(found.unwrap(), None);
    }
}

/// Passes the suite, and shows that the run was not empty.
async fn passes<S: AsyncStore>(fresh: impl AsyncFnMut(&LeaseName) -> S) -> Report {
    let report = run_async(fresh).await;
    let report = report.unwrap_or_else(|violation| panic!("{violation}"));
    println!("{report:?}");
    // Where holders wait inside the store, many an order cannot happen.
    assert!(
        report.schedules > 100,
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
async fn withstands_a_crowd<S: AsyncStore>(fresh: impl AsyncFnMut(&LeaseName) -> S) -> CrowdReport {
    let report = crowd_async(fresh).await;
    let report = report.unwrap_or_else(|violation| panic!("{violation}"));
    println!("{report:?}");
    report
}

/// Fails the suite, and says how.
async fn fails<S: AsyncStore>(fresh: impl AsyncFnMut(&LeaseName) -> S) -> Box<Violation> {
    match run_async(fresh).await {
        Ok(report) => panic!("the suite did not notice: {report:?}"),
        Err(violation) => violation,
    }
}
