//! DNS names: resolved again at each connection.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ringfence_client::{BootClock, Clock};
use ringfence_tests::{Cluster, Options, shim};

use crate::proxy::Proxy;
use crate::support::{TTL, Worker};

/// Puts an address behind the name, in one step.
fn resolve_to(file: &Path, address: &str) {
    let fresh = file.with_extension("new");
    fs::write(&fresh, address).unwrap();
    fs::rename(&fresh, file).unwrap();
}

#[tokio::test]
async fn a_name_is_resolved_anew_at_each_connection() {
    let before = Proxy::start().await;
    let port = before.address().rsplit(':').next().unwrap().to_owned();
    // The same port at another address, as a Pod that moved has it.
    let after = Proxy::at(&format!("127.0.0.2:{port}"));
    let options = Options {
        nodes: 1,
        advertise_client: vec![format!("ringfence.test:{port}")],
        ..Options::default()
    };
    let cluster = Cluster::start(options).await;
    for proxy in [&before, &after] {
        proxy.point_to(&cluster.endpoints()[0]);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("address");
    resolve_to(&file, "127.0.0.1");
    let env = [
        ("LD_PRELOAD", shim(env!("CARGO_TARGET_TMPDIR"))),
        ("TEST_ADDRESS", file.as_path()),
    ];
    let ttl = TTL.as_millis().to_string();
    let endpoints = [format!("ringfence.test:{port}")];
    let alice = Worker::start(&endpoints, &["hold", "db", &ttl], &env);
    let first = alice.work_after(BootClock.now()).await;
    assert_eq!(after.connections(), 0);
    assert!(before.connections() > 0);

    resolve_to(&file, "127.0.0.2");
    drop(before);

    // Renewed since, so over the new address.
    let later = alice
        .work_after(BootClock.now() + TTL + Duration::from_secs(1))
        .await;
    assert_eq!(later.token, first.token);
    assert!(after.connections() > 0);
    assert!(!alice.has_told("lost"));
}
