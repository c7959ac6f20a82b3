//! A store that panics, and a node that ends by it: a release build ends with its first panic.

use std::process::Command;

use super::*;
use crate::trial::Trial;

/// The directory of the node that a child process plays, and how it ends.
const CHILD: &str = "RINGFENCE_HISTORY_CHILD";

/// A machine on which an act on the index ends the process.
#[derive(Clone, Copy)]
struct Deadly {
    act: Act,
    panics: bool,
}

impl Ground for Deadly {
    fn room(&self, _: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn may(&self, act: Act) -> io::Result<()> {
        if act == self.act && self.panics {
            panic!("the store is wrong");
        } else if act == self.act {
            std::process::abort();
        }
        Ok(())
    }
}

/// Plays a node in a process of its own. Returns only in the process of the tests.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_in_a_process_of_its_own() {
    let Ok(play) = std::env::var(CHILD) else {
        return;
    };
    let (how, dir) = play.split_once(": ").unwrap();
    // As `panic = "abort"` does: the hook, and then the end.
    std::panic::set_hook(Box::new(|_| std::process::abort()));
    let (panics, act) = match how {
        "killed in the opening" => (false, Act::Open),
        "killed while its disk hangs" => (false, Act::Flush),
        _ => (true, Act::Write),
    };
    let time = (clock(), PACE);
    let ground = Box::new(Deadly { act, panics });
    let dir = Path::new(dir);
    let (history, _) = History::open_on(ground, dir, HistoryLimits::default(), time);
    if how == "reader" {
        panic_in_a_reader(&history).await;
    }
    tokio::time::sleep(PATIENCE).await;
}

async fn panic_in_a_reader(history: &History) {
    let readers = history.readers().unwrap();
    let panics = |_: &store::Store| -> io::Result<()> { panic!("the store is wrong") };
    let error = readers.read(&history.feed.shared, panics).await;
    assert!(error.unwrap_err().to_string().contains("panicked"));
}

/// Starts a node that ends as `how` says, and waits for its end.
fn dies(dir: &Path, how: &str) {
    let name = "tests::deaths::a_node_in_a_process_of_its_own";
    let ended = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, format!("{how}: {}", dir.display()))
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), None, "it is to be aborted: {ended:?}");
}

/// A directory with an index of one grant.
async fn filled() -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    let site = Site::at(temp.path());
    site.grants(1..=1);
    site.written().await;
    site.history.close().await;
    temp
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_whose_opening_ends_the_node_twice_is_set_aside_and_kept() {
    let temp = filled().await;
    let how = "killed in the opening";
    dies(temp.path(), how);
    let once = Site::at(temp.path());
    assert!(once.knows(1).await.unwrap(), "a kill may be a chance");
    once.history.close().await;

    for _ in 0..5 {
        dies(temp.path(), how);
    }
    let site = Site::at(temp.path());
    site.is(HistoryState::Serving).await;
    assert!(!site.knows(1).await.unwrap());
    let suspect = temp.path().join("history/suspect");
    assert!(suspect.join("slabs").is_dir());
    site.grants(2..=2);
    site.written().await;
    site.history.close().await;

    // The next one that is suspected takes no place from the first.
    dies(temp.path(), how);
    dies(temp.path(), how);
    let site = Site::at(temp.path());
    site.is(HistoryState::Unavailable).await;
    let refused = site.knows(2).await.unwrap_err().to_string();
    assert!(refused.contains("move that away"), "{refused}");
    let elsewhere = temp.path().join("elsewhere");
    fs::create_dir_all(elsewhere.join("history")).unwrap();
    fs::rename(&suspect, elsewhere.join("history/index-1")).unwrap();
    site.is(HistoryState::Serving).await;
    assert!(!site.knows(2).await.unwrap());
    let first = Site::at(&elsewhere);
    assert!(first.knows(1).await.unwrap(), "it was sound");
}

/// A disk that hangs holds the first work up, and a supervisor that watches the node kills it there
/// every time.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_hangs_for_long_costs_no_index() {
    let temp = filled().await;
    for _ in 0..5 {
        dies(temp.path(), "killed while its disk hangs");
    }
    let site = Site::at(temp.path());
    site.is(HistoryState::Serving).await;
    assert_eq!(site.history.figures().set_aside, 0);
    assert!(site.knows(1).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_whose_store_panics_ends_a_node_once() {
    for how in ["writer", "reader"] {
        let temp = filled().await;
        dies(temp.path(), how);
        let site = Site::at(temp.path());
        site.is(HistoryState::Serving).await;
        assert_eq!(site.history.figures().set_aside, 1, "{how}");
        site.feed.skipped_to(1);
        assert_eq!(site.history.gaps().await.unwrap(), [(1, 1)], "{how}");
        site.history.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_panics_with_a_new_index_too_is_left_alone() {
    let temp = filled().await;
    dies(temp.path(), "writer");
    dies(temp.path(), "writer");
    let site = Site::at(temp.path());
    site.is(HistoryState::Unavailable).await;
    let refused = site.knows(1).await.unwrap_err().to_string();
    assert!(refused.contains("remove "), "{refused}");
    assert!(refused.contains("history/opening"), "{refused}");
    fs::remove_file(Trial::of(&temp.path().join("history")).file()).unwrap();
    site.is(HistoryState::Serving).await;
    assert!(temp.path().join("history/damaged/slabs").is_dir());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_the_thread_or_in_a_reader_is_damage() {
    for reads in [false, true] {
        let temp = filled().await;
        let site = Site::at(temp.path());
        site.feed.skipped_to(1);
        site.written().await;
        match reads {
            true => panic_in_a_reader(&site.history).await,
            false => {
                site.ground.panics_at(Act::Write);
                site.grants(2..=2);
            }
        }
        site.becomes("an index set aside", |figures| figures.set_aside == 1)
            .await;
        site.ground.mend();
        site.is(HistoryState::Serving).await;
        site.grants(3..=3);
        site.written().await;
        assert!(site.knows(3).await.unwrap());
        site.history.close().await;
    }
}

/// A move of an earlier process that cannot be completed at present.
#[tokio::test(flavor = "multi_thread")]
async fn what_fails_before_the_index_is_opened_passes_and_costs_no_index() {
    let temp = filled().await;
    let obstacle = temp.path().join("history/index-0");
    fs::create_dir_all(obstacle.join("slabs/lost")).unwrap();
    let site = Site::at(temp.path());
    site.becomes("several attempts", |figures| figures.failures > 3)
        .await;
    fs::remove_dir_all(&obstacle).unwrap();
    site.is(HistoryState::Serving).await;
    assert_eq!(site.history.figures().set_aside, 0);
    assert!(site.knows(1).await.unwrap());
}
