//! Names and rotation.

use super::directory::{ABANDONED_AFTER, UNCOUNTED_MAX, last_taken, remove_abandoned, rotate};
use super::*;

/// No backup of the cluster has a later name.
const LATEST: BackupName = BackupName {
    cluster: ClusterId::new([1; 16]),
    wall_ms: u64::MAX,
    index: u64::MAX,
};

fn cluster(byte: u8) -> ClusterId {
    ClusterId::new([byte; 16])
}

fn named(byte: u8, wall_ms: u64, index: u64) -> BackupName {
    let cluster = cluster(byte);
    BackupName {
        cluster,
        wall_ms,
        index,
    }
}

fn name(byte: u8, wall_ms: u64, index: u64) -> String {
    named(byte, wall_ms, index).to_string()
}

fn digest_name(byte: u8, wall_ms: u64, index: u64) -> String {
    named(byte, wall_ms, index).of_digest()
}

#[test]
fn a_name_says_cluster_time_and_index_and_other_names_say_nothing() {
    let text = name(7, 1_700_000_000_123, 42);
    let read = BackupName::parse(&text).unwrap();
    assert_eq!(
        (read.cluster, read.wall_ms, read.index),
        (cluster(7), 1_700_000_000_123, 42)
    );
    for other in [
        "ringfence.backup",
        "ringfence-07-1-42.backup",
        &text.replace(".backup", ".backup.age"),
        &text.replace("00042", "+0042"),
        &format!(".{text}"),
        &format!("{text}.partial"),
        &digest_name(7, 1_700_000_000_123, 42),
    ] {
        assert_eq!(BackupName::parse(other), None, "{other}");
    }
}

#[test]
fn after_each_failure_the_pause_is_longer_up_to_ten_minutes_and_the_interval() {
    let hour = Duration::from_secs(3_600);
    let pauses = [0, 1, 2, 3, 4, 40, u32::MAX].map(|failures| pause(failures, hour).as_secs());
    assert_eq!(pauses, [60, 120, 240, 480, 600, 600, 600]);
    assert_eq!(pause(u32::MAX, RETRY_AFTER * 3), RETRY_AFTER * 3);
    assert_eq!(pause(0, RETRY_AFTER / 2), RETRY_AFTER / 2);
}

#[test]
fn rotation_removes_the_oldest_of_its_own_cluster_and_nothing_else() {
    let temp = tempfile::tempdir().unwrap();
    let own: Vec<String> = (1..=5).map(|at| name(1, at * 1_000, 100 - at)).collect();
    let digests: Vec<String> = (1..=5)
        .map(|at| digest_name(1, at * 1_000, 100 - at))
        .collect();
    let others = [
        name(2, 1, 1),
        digest_name(2, 1, 1),
        "notes.txt".to_owned(),
        "notes.txt.digest".to_owned(),
        format!(".{}", own[0]),
    ];
    for file in own.iter().chain(&digests).chain(&others) {
        std::fs::write(temp.path().join(file), "").unwrap();
    }
    rotate(temp.path(), LATEST, 2).unwrap();
    let there = |file: &String| temp.path().join(file).exists();
    let left: Vec<_> = own.iter().filter(|file| there(file)).collect();
    assert_eq!(left, [&own[3], &own[4]], "the newest two stay");
    let left: Vec<_> = digests.iter().filter(|file| there(file)).collect();
    assert_eq!(
        left,
        [&digests[3], &digests[4]],
        "a digest goes with its backup"
    );
    assert!(others.iter().all(there), "what is not its own stays");
    assert_eq!(
        last_taken(temp.path(), cluster(1), Duration::MAX).unwrap(),
        Some(Duration::from_secs(5))
    );
    assert_eq!(
        last_taken(temp.path(), cluster(3), Duration::MAX).unwrap(),
        None
    );
    // A name from the future says nothing.
    assert_eq!(
        last_taken(temp.path(), cluster(1), Duration::ZERO).unwrap(),
        None
    );
}

/// The node was killed between a backup and its digest, twice.
#[test]
fn a_backup_without_a_digest_does_not_count_and_goes_with_those_of_its_age() {
    let temp = tempfile::tempdir().unwrap();
    for at in 1..=5 {
        std::fs::write(temp.path().join(name(1, at, at)), "").unwrap();
    }
    for at in [1, 3, 4] {
        std::fs::write(temp.path().join(digest_name(1, at, at)), "").unwrap();
    }
    rotate(temp.path(), LATEST, 2).unwrap();
    let left = |at: u64| temp.path().join(name(1, at, at)).exists();
    assert_eq!([1, 2, 3, 4, 5].map(left), [false, false, true, true, true]);
}

/// The clock was wrong once, or the cluster was recovered from an older state.
#[test]
fn backups_with_a_later_name_do_not_push_out_the_one_just_taken() {
    let temp = tempfile::tempdir().unwrap();
    for at in [1, 2, 8, 9] {
        std::fs::write(temp.path().join(name(1, at, at)), "").unwrap();
        std::fs::write(temp.path().join(digest_name(1, at, at)), "").unwrap();
    }
    rotate(temp.path(), named(1, 2, 2), 1).unwrap();
    let left = |at: u64| temp.path().join(name(1, at, at)).exists();
    assert_eq!([1, 2, 8, 9].map(left), [false, true, true, true]);
}

#[test]
fn a_directory_with_the_name_of_a_backup_is_none_and_one_of_a_partial_holds_up_no_other() {
    let temp = tempfile::tempdir().unwrap();
    let partial = |at| format!(".{}.0a1b2c3d.partial", name(1, at, at));
    std::fs::write(temp.path().join(name(1, 1, 1)), "").unwrap();
    std::fs::write(temp.path().join(digest_name(1, 1, 1)), "").unwrap();
    std::fs::create_dir(temp.path().join(name(1, 2, 2))).unwrap();
    std::fs::write(temp.path().join(digest_name(1, 2, 2)), "").unwrap();
    rotate(temp.path(), named(1, 2, 2), 1).unwrap();
    assert!(temp.path().join(name(1, 1, 1)).exists());

    std::fs::create_dir(temp.path().join(partial(1))).unwrap();
    std::fs::write(temp.path().join(partial(2)), "").unwrap();
    remove_abandoned(temp.path(), cluster(1), Duration::ZERO).unwrap();
    assert!(!temp.path().join(partial(2)).exists());
}

/// An operator keeps the digests in another place, and moves them there.
#[test]
fn backups_whose_digests_were_moved_away_go_all_the_same() {
    let temp = tempfile::tempdir().unwrap();
    for at in 1..=9 {
        std::fs::write(temp.path().join(name(1, at, at)), "").unwrap();
    }
    rotate(temp.path(), LATEST, 2).unwrap();
    let left = |at: &u64| temp.path().join(name(1, *at, *at)).exists();
    let left: Vec<u64> = (1..=9).filter(left).collect();
    assert_eq!(left, [5, 6, 7, 8, 9], "two, and {UNCOUNTED_MAX}");
}

#[test]
fn what_cannot_be_removed_holds_up_no_other() {
    let temp = tempfile::tempdir().unwrap();
    for at in 1..=4 {
        std::fs::write(temp.path().join(name(1, at, at)), "").unwrap();
        let digest = temp.path().join(digest_name(1, at, at));
        match at {
            2 => std::fs::create_dir(digest).unwrap(),
            _ => std::fs::write(digest, "").unwrap(),
        }
    }
    rotate(temp.path(), LATEST, 1).unwrap();
    let left = |at: u64| temp.path().join(name(1, at, at)).exists();
    assert_eq!([1, 2, 3, 4].map(left), [false, true, false, true]);
}

/// The node was killed in the middle of a backup.
#[test]
fn unfinished_backups_of_its_own_cluster_go_once_they_are_abandoned() {
    let temp = tempfile::tempdir().unwrap();
    let partial = |name: &str| format!(".{name}.0a1b2c3d.partial");
    let own = partial(&name(1, 1_000, 7));
    let own_digest = partial(&digest_name(1, 1_000, 7));
    let others = [
        partial(&name(2, 1_000, 7)),
        partial("notes.txt"),
        format!(".{}.partial", name(1, 1_000, 7)),
        name(1, 1_000, 7),
    ];
    for file in others.iter().chain([&own, &own_digest]) {
        std::fs::write(temp.path().join(file), "part").unwrap();
    }
    let there = |file: &String| temp.path().join(file).exists();
    remove_abandoned(temp.path(), cluster(1), ABANDONED_AFTER).unwrap();
    assert!(there(&own), "a process may still be writing it");
    remove_abandoned(temp.path(), cluster(1), Duration::ZERO).unwrap();
    assert!(!there(&own) && !there(&own_digest));
    assert!(others.iter().all(there), "what is not its own stays");
}
