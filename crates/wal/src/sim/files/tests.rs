//! What the simulated files keep, and what a crash takes from them.
#![allow(clippy::unwrap_used)]

use super::*;

fn written(fs: &SimFs, path: &str) {
    let file = fs.create(Path::new(path)).unwrap();
    file.write_at(b"content", 0).unwrap();
    file.sync_data().unwrap();
}

#[test]
fn a_directory_exists_apart_from_what_is_in_it() {
    let fs = SimFs::with_dir(Path::new("/data/wal"));
    assert!(fs.has_dir(Path::new("/data")) && fs.has_dir(Path::new("/data/wal")));
    assert!(fs.list(Path::new("/data/wal")).unwrap().is_empty());
    assert_eq!(fs.list(Path::new("/data")).unwrap(), ["wal"]);
    assert!(fs.list(Path::new("/data/snapshots")).is_err());
    assert!(fs.sync_dir(Path::new("/data/snapshots")).is_err());
    assert!(fs.create(Path::new("/data/snapshots/new")).is_err());

    written(&fs, "/data/wal/file");
    fs.empty_dir(Path::new("/data/wal"));
    fs.crash(Crash::LoseAll);
    assert!(fs.has_dir(Path::new("/data/wal")) && fs.paths().is_empty());
}

#[test]
fn a_sync_covers_the_names_of_one_directory() {
    let fs = SimFs::with_dir(Path::new("/a"));
    fs.make_dir(Path::new("/b")).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    written(&fs, "/a/kept");
    written(&fs, "/b/lost");
    fs.sync_dir(Path::new("/a")).unwrap();
    fs.crash(Crash::LoseAll);
    assert_eq!(fs.paths(), [Path::new("/a/kept")]);
    assert!(fs.has_dir(Path::new("/b")));
}

#[test]
fn a_directory_that_was_not_synced_into_its_parent_is_lost_with_all_in_it() {
    for (sync_parent, kept) in [(false, 0), (true, 1)] {
        let fs = SimFs::with_dir(Path::new("/data"));
        fs.make_dir(Path::new("/data/new")).unwrap();
        written(&fs, "/data/new/file");
        fs.sync_dir(Path::new("/data/new")).unwrap();
        if sync_parent {
            fs.sync_dir(Path::new("/data")).unwrap();
        }
        fs.crash(Crash::LoseAll);
        assert_eq!(fs.paths().len(), kept);
        assert_eq!(fs.has_dir(Path::new("/data/new")), sync_parent);
    }
}

#[test]
fn a_directory_made_again_and_lost_leaves_the_one_before_it() {
    let fs = SimFs::with_dir(Path::new("/data/wal"));
    written(&fs, "/data/wal/old");
    fs.sync_dir(Path::new("/data/wal")).unwrap();
    fs.remove_dir(Path::new("/data/wal")).unwrap();
    fs.make_dir(Path::new("/data/wal")).unwrap();
    written(&fs, "/data/wal/new");
    fs.sync_dir(Path::new("/data/wal")).unwrap();
    fs.crash(Crash::LoseAll);
    assert_eq!(fs.paths(), [Path::new("/data/wal/old")]);
}

#[test]
fn garbage_fills_whole_pages_with_what_was_synced_in_them() {
    let path = Path::new("/file");
    let garbled = (0..50).any(|seed| {
        let fs = SimFs::new();
        let file = fs.create(path).unwrap();
        file.write_at(&[1; 8192], 0).unwrap();
        file.sync_data().unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        file.write_at(&[2; 512], 512).unwrap();
        fs.crash(Crash::Garble(seed));
        let content = fs.content(path).unwrap();
        assert_eq!(
            content[4096..],
            [1; 4096],
            "the next page was not written to"
        );
        content[..512] != [1; 512]
    });
    assert!(garbled, "no page of 50 was garbled");
}

#[test]
fn room_may_be_limited_below_a_directory() {
    let fs = SimFs::with_dir(Path::new("/a"));
    fs.make_dir(Path::new("/b")).unwrap();
    fs.set_room(Path::new("/a"), Some(10));
    written(&fs, "/a/fits");
    let file = fs.create(Path::new("/a/over")).unwrap();
    let full = file.write_at(&[0; 4], 0).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    written(&fs, "/b/elsewhere");
    fs.set_room(Path::new("/a"), None);
    file.write_at(&[0; 4], 0).unwrap();
}

#[test]
fn a_process_that_has_died_changes_no_file_of_the_next_one() {
    let (disk, from, to) = (SimFs::new(), Path::new("/from"), Path::new("/to"));
    let former = disk.of_process();
    former.create(from).unwrap();
    disk.crash(Crash::ProcessOnly);
    let present = disk.of_process();

    assert!(former.rename(from, to).is_err());
    assert!(former.remove(from).is_err());
    assert!(former.create(to).is_err());
    assert!(former.open(from).is_err());

    present.rename(from, to).unwrap();
    assert_eq!(disk.paths(), [to]);
}
