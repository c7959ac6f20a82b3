//! What becomes of guarded files when others move, link or leave things in their directory.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ringfence_guard::files::{Changes, FilesError, FilesGuard};
use tempfile::TempDir;

use crate::fence;
use crate::files_rules::{after, before, guard, held, scratch};

/// A guard that does something before its first step of this name.
fn interrupted(
    directory: &Path,
    step: &'static str,
    work: impl Fn() + Send + Sync + 'static,
) -> FilesGuard {
    let done = AtomicBool::new(false);
    let guard = FilesGuard::new(directory, fence("a#1").name).unwrap();
    guard.steps(move |name| {
        if name == step && !done.swap(true, Ordering::SeqCst) {
            work();
        }
        Ok(())
    })
}

/// A guard whose process ends before this step, as far as the directory can see it.
fn ended(directory: &TempDir, step: &'static str) {
    let guard = guard(directory).steps(move |name| match name == step {
        true => std::panic::resume_unwind(Box::new("ended")),
        false => Ok(()),
    });
    let write = || guard.admit(&fence("a#8"), after());
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)).unwrap_err();
}

#[test]
fn a_holder_that_waited_for_a_directory_that_is_gone_is_refused_by_the_one_in_its_place() {
    // `.ringfence` is taken away, and the whole directory: a new holder writes in what is there then.
    for away in [".ringfence", "."] {
        let parent = scratch();
        let path = parent.path().join("data");
        fs::create_dir(&path).unwrap();
        let of_path = |path: &Path| FilesGuard::new(path, fence("a#1").name).unwrap();
        of_path(&path).admit(&fence("a#8"), before()).unwrap();
        let (moved, aside) = (path.join(away), parent.path().join("aside"));
        let there = path.clone();
        let old = interrupted(&path, "lock the directory", move || {
            match away {
                "." => fs::rename(&there, &aside).unwrap(),
                _ => fs::rename(&moved, &aside).unwrap(),
            }
            fs::create_dir_all(&there).unwrap();
            let guard = FilesGuard::new(&there, fence("a#1").name).unwrap();
            guard.advance_to(fence("a#9").token).unwrap();
            guard.admit(&fence("a#9"), before()).unwrap();
        });
        let refused = old.admit(&fence("a#8"), after()).unwrap_err();
        assert!(matches!(refused, FilesError::Refused(_)), "{refused:?}");
        let expected = scratch();
        guard(&expected).admit(&fence("a#9"), before()).unwrap();
        assert_eq!(held(&of_path(&path)), held(&guard(&expected)));
    }
}

#[test]
fn what_a_killed_writer_left_is_not_written_to() {
    let live = scratch();
    guard(&live).admit(&fence("a#7"), before()).unwrap();
    ended(&live, "rename the mark");
    // A copy of links shares what lies in `.ringfence`.
    let copies = scratch();
    let copy = copies.path().join("copy");
    let copied = Command::new("cp")
        .arg("-al")
        .arg(live.path())
        .arg(&copy)
        .status();
    assert!(copied.unwrap().success());
    guard(&live).admit(&fence("a#9"), after()).unwrap();
    let copy = FilesGuard::new(&copy, fence("a#1").name).unwrap();
    copy.admit(&fence("a#8"), before()).unwrap();
    let refused = guard(&live).admit(&fence("a#8"), before()).unwrap_err();
    assert!(matches!(refused, FilesError::Refused(_)), "{refused:?}");

    // No reader will come to this pipe.
    let pipe = scratch();
    guard(&pipe).mark().unwrap();
    let made = Command::new("mkfifo")
        .arg(pipe.path().join(".ringfence/mark.new"))
        .status();
    assert!(made.unwrap().success());
    guard(&pipe).admit(&fence("a#8"), before()).unwrap();
}

#[test]
fn what_was_renamed_is_on_the_disk_before_the_next_mark() {
    let directory = scratch();
    let steps = std::sync::Arc::new(Mutex::new(Vec::new()));
    let recorded = |of: &TempDir| {
        let steps = std::sync::Arc::clone(&steps);
        guard(of).steps(move |name| {
            steps.lock().unwrap().push(name);
            Ok(())
        })
    };
    let synced_before_the_mark = || {
        let steps = std::mem::take(&mut *steps.lock().unwrap());
        let at = |step: &str| steps.iter().position(|name| *name == step);
        let mark = at("rename the mark").unwrap();
        at("sync the guarded directory").is_some_and(|sync| sync < mark)
    };
    // Where `.ringfence` was just made, and behind a process that ended before it synced its renames.
    recorded(&directory).advance(&fence("a#7")).unwrap();
    assert!(synced_before_the_mark());
    ended(&directory, "sync the guarded directory");
    recorded(&directory).advance(&fence("a#9")).unwrap();
    assert!(synced_before_the_mark());
    // Nothing was renamed since.
    recorded(&directory).advance(&fence("a#10")).unwrap();
    assert!(!synced_before_the_mark());
}

#[test]
fn no_one_runs_a_file_as_its_writer() {
    let directory = scratch();
    let file = directory.path().join("a");
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).unwrap();
    guard(&directory)
        .admit(&fence("a#8"), Changes::new().put("a", "new"))
        .unwrap();
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let directory = scratch();
    let missing = directory.path().join("missing");
    let error = FilesGuard::new(&missing, fence("a#1").name).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains(&*missing.to_string_lossy()), "{cause}");
    assert!(!missing.exists());
}
