//! The machine of a node: its configuration and its disk.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use ringfence_raft::since_boot;

use super::{Finding, Verdict, certificates};
use crate::cli::Global;
use crate::cli::own_node::OwnNode;

/// How often the disk is asked to make a page durable.
const SYNCS: usize = 20;
/// What is written each time.
const PAGE: [u8; 4096] = [0; 4096];
/// The slowest that is good: a keep-alive has this in it, and so has each grant.
const SYNC_MAX: Duration = Duration::from_millis(100);
/// The slowest that holds up elections.
const SYNC_STALL: Duration = Duration::from_secs(1);
/// Free room below which a node soon takes no more entries, in bytes.
const ROOM_LEAST: u64 = 256 << 20;
/// Free room for a log between two snapshots, and both snapshots, in bytes.
const ROOM_GOOD: u64 = 2 << 30;

/// What to do about a disk that is full, or soon is.
pub(super) const NO_ROOM: &str = "remove what is not the node's, as the file that is kept for this, or give the node a \
                       larger disk; never remove a file in its data directory: see \
                       deploy/RECOVERY.md#a-disk-is-full";

/// What this machine shows.
pub(super) fn findings(own: &OwnNode, global: &Global) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some((source, config)) = &own.settings {
        let finding = match config {
            Ok(_) => Finding::good("configuration", source, "it can be used"),
            Err(why) if own.is_file => {
                let next = "correct it: a node does not start with it";
                Finding::good("configuration", source, why).but(Verdict::Problem, next)
            }
            // Flags of its process may say more.
            Err(why) => {
                let next = "look at the flags and the log of the node: with these variables alone it does \
                            not start";
                Finding::good("configuration", source, why).but(Verdict::Warning, next)
            }
        };
        findings.push(finding);
    }
    findings.extend(certificates::findings(own.config(), global));
    match &own.data_dir {
        Some(path) => findings.extend([room(path), syncs(path)]),
        None => {
            let finding = Finding::good("disk", "this machine", "not looked at");
            let next = "run it with --config or --data-dir on the machine of each node";
            findings.push(finding.but(Verdict::Unknown, next));
        }
    }
    findings
}

fn room(path: &Path) -> Finding {
    let subject = path.display().to_string();
    let found = match rustix::fs::statvfs(path) {
        Ok(found) => found,
        Err(why) => return unusable("disk room", subject, &why.into()),
    };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let finding = Finding::good("disk room", subject, format!("{} MiB free", free >> 20));
    let next = NO_ROOM;
    match free {
        0..ROOM_LEAST => finding.but(Verdict::Problem, next),
        ROOM_LEAST..ROOM_GOOD => finding.but(Verdict::Warning, next),
        _ => finding,
    }
}

fn unusable(check: &'static str, subject: String, why: &io::Error) -> Finding {
    let next = match why.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => NO_ROOM,
        _ => "name the data directory of the node, as an account that may write to it",
    };
    Finding::good(check, subject, why.to_string()).but(Verdict::Problem, next)
}

/// How long the disk takes to make a page durable, as for an entry of the log.
fn syncs(path: &Path) -> Finding {
    let subject = path.display().to_string();
    let times = match measure(path) {
        Ok(times) => times,
        Err(why) => return unusable("fsync", subject, &why),
    };
    let median = times[times.len() / 2];
    let slowest = times.last().copied().unwrap_or_default();
    let shown = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let found = format!(
        "{} in the middle, {} at most",
        shown(median),
        shown(slowest)
    );
    let finding = Finding::good("fsync", subject, found);
    let next = "give the log a disk of its own, with a flash or a protected write cache: each grant waits \
                for it on a majority of the nodes";
    if slowest >= SYNC_STALL {
        finding.but(Verdict::Problem, next)
    } else if median >= SYNC_MAX {
        finding.but(Verdict::Warning, next)
    } else {
        finding
    }
}

/// The times of [`SYNCS`] writes, the shortest first.
fn measure(path: &Path) -> io::Result<Vec<Duration>> {
    let mut file = tempfile::Builder::new()
        .prefix(".ringfence-doctor-")
        .tempfile_in(path)?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let begun = since_boot();
        file.write_all(&PAGE)?;
        file.as_file().sync_data()?;
        times.push(since_boot().saturating_sub(begun));
    }
    times.sort_unstable();
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_has_another_next_step_than_a_directory_that_may_not_be_written() {
        let next = |kind: io::ErrorKind| unusable("fsync", "data".to_owned(), &kind.into()).next;
        assert!(next(io::ErrorKind::StorageFull).contains("#a-disk-is-full"));
        assert!(next(io::ErrorKind::PermissionDenied).contains("may write to it"));
    }
}
