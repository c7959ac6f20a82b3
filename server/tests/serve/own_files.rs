//! What a node writes is its user's own, whatever the umask that it is started with.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::api::Api;
use crate::process::{Ports, Process};

/// Everything below a folder, itself included, that other users may do anything with.
fn open_to_others(path: &Path) -> Vec<(PathBuf, u32)> {
    let mode = fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    let mut open: Vec<_> = (mode & 0o077 != 0)
        .then(|| (path.to_owned(), mode))
        .into_iter()
        .collect();
    for entry in fs::read_dir(path).into_iter().flatten() {
        open.extend(open_to_others(&entry.unwrap().path()));
    }
    open
}

#[tokio::test(flavor = "multi_thread")]
async fn other_users_read_nothing_that_a_node_writes() {
    let dir = TempDir::new().unwrap();
    let (data, backups) = (dir.path().join("n1"), dir.path().join("backups"));
    let flags = [
        "--token-floor=0".to_owned(),
        format!("--audit-log={}", data.join("audit.log").display()),
        format!("--backup-dir={}", backups.display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let node = Process::start_after("umask 000", &data, Ports::free(), &flags);
    let node = node.ready().await;
    let mut api = Api::of(&node).await;
    let session = api.open("holder").await;
    api.acquire(&session, 1, "bank").await.unwrap();
    assert_eq!(open_to_others(&data), []);
    assert!(data.join("admin.sock").exists() && data.join("wal").exists());
    if backups.exists() {
        assert_eq!(open_to_others(&backups), []);
    }
    assert!(!node.logged().contains("other users may enter"));
    drop(node);

    // One of an older release, or of an operator.
    fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
    let node = Process::start(&data, Ports::free(), &flags).ready().await;
    let log = node.logged();
    let next = format!("chmod -R go= {}", data.display());
    assert!(log.contains("mode 0755") && log.contains(&next), "{log}");
}
