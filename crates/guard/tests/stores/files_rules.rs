//! What the guard of files promises beyond the suite.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{env, io, thread};

use ringfence_guard::files::{Changes, FILE_MAX, FilesError, FilesGuard};
use ringfence_guard::{Ceiling, FencingToken, Refused, SealAnswer, Sealable as _};
use rustix::process::{Signal, getpid, kill_process};
use tempfile::TempDir;

use crate::fence;
use crate::servers::Disk;

/// What a child receives by its environment: a directory, and at which step it ends.
const CHILD: &str = "RINGFENCE_FILES_CHILD";

pub(crate) fn guard(directory: &TempDir) -> FilesGuard {
    FilesGuard::new(directory.path(), fence("a#1").name).unwrap()
}

pub(crate) fn scratch() -> TempDir {
    Disk::Memory.directory()
}

/// What the guard shows: its mark, and three files.
pub(crate) fn held(guard: &FilesGuard) -> (Option<u64>, [Option<String>; 3]) {
    let read = |name: &str| {
        let content = guard.read(name).unwrap();
        content.map(|content| String::from_utf8(content).unwrap())
    };
    let mark = guard.mark().unwrap().map(FencingToken::get);
    (mark, ["a", "b", "c"].map(read))
}

pub(crate) fn before() -> Changes {
    Changes::new().put("a", "old").put("b", "old")
}

pub(crate) fn after() -> Changes {
    Changes::new().put("a", "new").delete("b").put("c", "new")
}

fn old() -> (Option<u64>, [Option<String>; 3]) {
    (Some(8), [Some("old".into()), Some("old".into()), None])
}

fn new() -> (Option<u64>, [Option<String>; 3]) {
    (Some(9), [Some("new".into()), None, Some("new".into())])
}

#[test]
fn a_process_killed_at_any_step_leaves_the_old_state_or_the_new_one() {
    let (mut olds, mut news, mut step) = (0, 0, 0);
    loop {
        let directory = scratch();
        let guard = guard(&directory);
        guard.admit(&fence("a#8"), before()).unwrap();
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "files_rules::a_child_writes", "--nocapture"]);
        child.env(CHILD, format!("{} {step}", directory.path().display()));
        let ended = child.stdout(Stdio::null()).status().unwrap();

        // A reader without the guard sees whole files.
        for (name, [one, other]) in [("a", ["old", "new"]), ("c", ["new", "new"])] {
            match fs::read_to_string(directory.path().join(name)) {
                Ok(content) => assert!(content == one || content == other, "{step}: {content}"),
                Err(error) => assert_eq!((name, error.kind()), ("c", io::ErrorKind::NotFound)),
            }
        }
        // The lock is free, and what is there is whole.
        let found = held(&guard);
        if found == old() {
            assert_eq!(news, 0, "step {step} undid an earlier one");
            olds += 1;
        } else {
            assert_eq!(found, new(), "step {step}");
            news += 1;
        }
        guard.admit(&fence("a#9"), after()).unwrap();
        assert_eq!(held(&guard), new(), "step {step}");
        let left = fs::read_dir(directory.path().join(".ringfence")).unwrap();
        assert_eq!(left.count(), 1, "step {step} left more than the mark");
        if ended.success() {
            break;
        }
        step += 1;
    }
    println!("{olds} steps before the commit, {news} behind it");
    assert!(olds >= 10 && news >= 5, "{olds} {news}");
}

/// Does nothing unless it is the child of another test.
#[test]
fn a_child_writes() {
    let Ok(given) = env::var(CHILD) else {
        return;
    };
    let (directory, last) = given.split_once(' ').unwrap();
    let last: u64 = last.parse().unwrap();
    let seen = AtomicU64::new(0);
    let guard = FilesGuard::new(directory, fence("a#1").name).unwrap();
    let guard = guard.steps(move |_| {
        if seen.fetch_add(1, Ordering::SeqCst) == last {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        Ok(())
    });
    guard.admit(&fence("a#9"), after()).unwrap();
}

#[test]
fn the_mark_is_synced_before_any_data_of_it_is_in_place() {
    let directory = scratch();
    guard(&directory).admit(&fence("a#8"), before()).unwrap();
    let steps = std::sync::Arc::new(Mutex::new(Vec::new()));
    let noted = std::sync::Arc::clone(&steps);
    let guard = guard(&directory).steps(move |step| {
        noted.lock().unwrap().push(step);
        Ok(())
    });
    guard.admit(&fence("a#9"), after()).unwrap();
    let steps = steps.lock().unwrap();
    let at = |what: &str| {
        let all = steps.iter().enumerate().filter(|(_, step)| **step == what);
        all.map(|(at, _)| at).collect::<Vec<_>>()
    };
    // Three staged files and the mark, each synced before the directory is, and that before the rename.
    assert_eq!(at("sync a new file").len(), 4, "{steps:?}");
    let order = [
        at("sync a new file")[3],
        at("sync the new files")[0],
        at("rename the mark")[0],
        at("sync the mark")[0],
        at("rename a file into its place")[0],
        // The first one is for what was renamed before.
        at("sync the guarded directory")[1],
        at("remove a staged file")[0],
    ];
    assert!(order.is_sorted(), "{steps:?}");
}

#[test]
fn a_stale_write_changes_no_file() {
    let directory = scratch();
    let guard = guard(&directory);
    guard.admit(&fence("a#9"), after()).unwrap();
    let error = guard.admit(&fence("a#8"), before()).unwrap_err();
    assert!(
        matches!(error.refused(), Some(Refused::StaleToken { mark, .. }) if mark.get() == 9),
        "{error:?}"
    );
    assert_eq!(held(&guard), new());
    let error = guard.advance(&fence("b#10")).unwrap_err();
    assert_eq!(error.refused().unwrap().reason(), "WRONG_LEASE");
    let error = guard.advance(&fence("a#4611686018427387904")).unwrap_err();
    assert_eq!(error.refused().unwrap().reason(), "TOKEN_TOO_HIGH");
    let all = guard.ceiling(Ceiling::Off);
    all.advance(&fence("a#9223372036854775807")).unwrap();
    assert!(all.advance(&fence("a#9223372036854775806")).is_err());
}

#[test]
fn one_directory_has_one_lease() {
    let directory = scratch();
    guard(&directory).advance(&fence("a#8")).unwrap();
    let other = FilesGuard::new(directory.path(), fence("b#1").name).unwrap();
    for failed in [
        other.advance(&fence("b#9")).map(drop),
        other.advance_to(fence("b#9").token),
        other.read("a").map(drop).and(other.mark().map(drop)),
    ] {
        let error = failed.unwrap_err();
        assert!(matches!(error, FilesError::OtherLease { .. }), "{error:?}");
    }
}

#[test]
fn a_damaged_mark_is_reported_and_a_floor_repairs_it_in_files() {
    let directory = scratch();
    let guard = guard(&directory);
    let mark = directory.path().join(".ringfence/mark");
    guard.advance(&fence("a#8")).unwrap();
    let good = fs::read_to_string(&mark).unwrap();
    for junk in ["", "junk", &good[..good.len() - 4], &good.replace('8', "0")] {
        fs::write(&mark, junk).unwrap();
        for failed in [
            guard.advance(&fence("a#8")).map(drop),
            guard.mark().map(drop),
        ] {
            let error = failed.unwrap_err();
            assert!(matches!(error, FilesError::DamagedMark { .. }), "{error:?}");
        }
    }
    guard.advance_to(fence("a#9").token).unwrap();
    assert!(guard.advance(&fence("a#8")).is_err());
    guard.advance_to(fence("a#3").token).unwrap();
    assert_eq!(guard.mark().unwrap(), FencingToken::new(9));

    let newer = good.replace("mark 1\n", "mark 2\n");
    fs::write(&mark, &newer).unwrap();
    let error = guard.advance_to(fence("a#9").token).unwrap_err();
    assert!(
        matches!(error, FilesError::OtherVersion { .. }),
        "{error:?}"
    );
    assert_eq!(fs::read_to_string(&mark).unwrap(), newer);
}

#[test]
fn names_that_lead_out_of_the_directory_are_refused() {
    let directory = scratch();
    let guard = guard(&directory);
    guard.admit(&fence("a#8"), before()).unwrap();
    let outside = scratch();
    let victim = outside.path().join("victim");
    fs::write(&victim, "theirs").unwrap();
    symlink(&victim, directory.path().join("link")).unwrap();
    fs::create_dir(directory.path().join("folder")).unwrap();
    let absolute = victim.display().to_string();
    for name in [
        "../victim",
        &absolute,
        "folder/x",
        ".ringfence",
        ".ringfence/mark",
        "..",
        "",
    ] {
        for failed in [
            guard
                .admit(&fence("a#8"), Changes::new().put(name, "x"))
                .map(drop),
            guard
                .admit(&fence("a#8"), Changes::new().delete(name))
                .map(drop),
            guard.read(name).map(drop),
        ] {
            let error = failed.unwrap_err();
            assert!(
                matches!(error, FilesError::InvalidName { .. }),
                "{name}: {error:?}"
            );
        }
    }
    for name in ["link", "folder"] {
        for failed in [
            guard
                .admit(&fence("a#8"), before().put(name, "x"))
                .map(drop),
            guard.admit(&fence("a#8"), before().delete(name)).map(drop),
            guard.read(name).map(drop),
        ] {
            let error = failed.unwrap_err();
            assert!(
                matches!(error, FilesError::NotAFile { .. }),
                "{name}: {error:?}"
            );
        }
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "theirs");
    assert_eq!(held(&guard), old());
}

#[test]
fn a_control_directory_that_is_a_link_is_not_followed() {
    let (directory, elsewhere) = (scratch(), scratch());
    symlink(elsewhere.path(), directory.path().join(".ringfence")).unwrap();
    let made = FilesGuard::new(directory.path(), fence("a#1").name);
    assert!(matches!(made, Err(FilesError::Io { .. })), "{made:?}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn a_file_that_is_too_large_is_neither_written_nor_read() {
    let directory = scratch();
    let guard = guard(&directory);
    let large = vec![0; usize::try_from(FILE_MAX).unwrap() + 1];
    let error = guard
        .admit(&fence("a#8"), Changes::new().put("a", large))
        .unwrap_err();
    assert!(matches!(error, FilesError::TooLarge { .. }), "{error:?}");
    assert_eq!(guard.mark().unwrap(), None);
    let sparse = File::create(directory.path().join("b")).unwrap();
    sparse.set_len(FILE_MAX + 1).unwrap();
    let error = guard.read("b").unwrap_err();
    assert!(matches!(error, FilesError::TooLarge { .. }), "{error:?}");
}

#[test]
fn permissions_of_a_file_stay() {
    let directory = scratch();
    let guard = guard(&directory);
    guard.admit(&fence("a#8"), before()).unwrap();
    let file = directory.path().join("a");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    guard
        .admit(&fence("a#8"), Changes::new().put("a", "new"))
        .unwrap();
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
}

#[test]
fn a_process_that_is_stopped_with_the_lock_makes_others_busy_and_no_more() {
    let directory = scratch();
    let guard = guard(&directory).lock_timeout(Duration::from_millis(50));
    guard.admit(&fence("a#8"), before()).unwrap();
    let lock = File::open(directory.path()).unwrap();
    lock.lock().unwrap();
    for failed in [
        guard.admit(&fence("a#9"), after()).map(drop),
        guard.read("a").map(drop),
    ] {
        let error = failed.unwrap_err();
        assert!(matches!(error, FilesError::Busy { .. }), "{error:?}");
    }
    drop(lock);
    guard.admit(&fence("a#9"), after()).unwrap();
}

#[test]
fn readers_see_whole_files_while_they_are_replaced() {
    let directory = scratch();
    let guard = guard(&directory);
    let content = |round: u64| round.to_string().repeat(10_000);
    let put = |round: u64| {
        Changes::new()
            .put("a", content(round))
            .put("b", content(round))
    };
    guard.admit(&fence("a#8"), put(1)).unwrap();
    let over = AtomicBool::new(false);
    let is_whole = |text: &str| (1..=9).any(|round| text == content(round));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let plain = fs::read_to_string(directory.path().join("a")).unwrap();
                assert!(is_whole(&plain), "{} bytes", plain.len());
                let guarded = guard.read("b").unwrap().unwrap();
                assert!(is_whole(str::from_utf8(&guarded).unwrap()));
            }
        });
        let mut rounds = 0..200;
        let done = rounds.try_for_each(|round| {
            let admitted = guard.admit(&fence("a#8"), put(round % 9 + 1));
            admitted.map(drop)
        });
        // The reader ends whatever came of it.
        over.store(true, Ordering::SeqCst);
        done.unwrap();
    });
}

#[tokio::test]
async fn a_directory_on_a_disk_is_sealed_and_one_in_memory_is_not() {
    let disk = Disk::Real.directory();
    let memory = Path::new("/dev/shm");
    let sealed = guard(&disk);
    assert!(sealed.label().ends_with(", a"), "{}", sealed.label());
    // Where temporary files are in memory, that one is not sealed either.
    let answer = sealed.seal(&fence("a#9")).await;
    let as_it_is = matches!(answer, SealAnswer::Durable | SealAnswer::NotDurable { .. });
    assert!(as_it_is, "{answer:?}");
    let stale = sealed.seal(&fence("a#8")).await;
    assert!(
        matches!(stale, SealAnswer::Refused(Refused::StaleToken { .. })),
        "{stale:?}"
    );
    if memory.is_dir() {
        let unsealed = guard(&scratch()).seal(&fence("a#9")).await;
        assert!(
            matches!(unsealed, SealAnswer::NotDurable { .. }),
            "{unsealed:?}"
        );
    }
    let gone = guard(&disk);
    drop(disk);
    let answer = gone.seal(&fence("a#10")).await;
    assert!(matches!(answer, SealAnswer::Failed { .. }), "{answer:?}");
}
