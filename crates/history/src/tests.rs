//! The history on a machine that fails.

mod deaths;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringfence_core::{Event, Granted, HolderData, Identity, RequestNumber, SessionId};
use rustix::io::Errno;

use super::*;
use crate::ground::Act;

const PACE: Pace = Pace {
    write: Duration::from_millis(50),
    retry: Duration::from_millis(20),
    retry_max: Duration::from_millis(40),
    retry_rare: Duration::from_millis(80),
    room: Duration::from_millis(20),
};
/// More than the tests need, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

fn clock() -> Clock {
    Clock {
        since_boot: || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
            Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
        },
        wall: || WallTime(0),
    }
}

/// A machine whose disk fails on demand.
#[derive(Clone, Default)]
struct Faulty {
    faults: Arc<Mutex<Vec<(Act, io::ErrorKind, i32)>>>,
    taken: Arc<AtomicU64>,
    panics: Arc<Mutex<Option<Act>>>,
}

impl Faulty {
    /// `act` fails with `errno` until [`Faulty::mend`].
    fn breaks(&self, act: Act, errno: Errno) {
        let kind = io::Error::from(errno).kind();
        self.faults
            .lock()
            .unwrap()
            .push((act, kind, errno.raw_os_error()));
    }

    fn damages(&self, act: Act) {
        let fault = (act, io::ErrorKind::InvalidData, 0);
        self.faults.lock().unwrap().push(fault);
    }

    /// `act` panics until [`Faulty::mend`].
    fn panics_at(&self, act: Act) {
        *self.panics.lock().unwrap() = Some(act);
    }

    fn mend(&self) {
        self.faults.lock().unwrap().clear();
        *self.panics.lock().unwrap() = None;
    }

    /// Takes all room away, or gives it back.
    fn fills(&self, full: bool) {
        self.taken.store(u64::from(full), Ordering::SeqCst);
    }
}

impl Ground for Faulty {
    fn room(&self, _: &Path) -> io::Result<u64> {
        match self.taken.load(Ordering::SeqCst) {
            0 => Ok(u64::MAX),
            _ => Ok(4_096),
        }
    }

    fn may(&self, act: Act) -> io::Result<()> {
        let panics = *self.panics.lock().unwrap();
        assert_ne!(panics, Some(act), "the store is wrong");
        let faults = self.faults.lock().unwrap();
        match faults.iter().find(|(on, ..)| *on == act) {
            None => Ok(()),
            Some((_, io::ErrorKind::InvalidData, _)) => Err(health::damage("crc mismatch")),
            Some((.., errno)) => Err(io::Error::from_raw_os_error(*errno)),
        }
    }
}

struct Site {
    history: Arc<History>,
    feed: HistoryFeed,
    ground: Faulty,
}

impl Site {
    fn at(dir: &Path) -> Self {
        Self::on(Faulty::default(), dir)
    }

    fn on(ground: Faulty, dir: &Path) -> Self {
        let time = (clock(), PACE);
        let limits = HistoryLimits {
            age_max: Duration::MAX,
            ..HistoryLimits::default()
        };
        let (history, feed) = History::open_on(Box::new(ground.clone()), dir, limits, time);
        Self {
            history,
            feed,
            ground,
        }
    }

    /// A grant with each of these tokens, one entry each, at the index of its token.
    fn grants(&self, tokens: std::ops::RangeInclusive<u64>) {
        for token in tokens {
            self.feed.applied(token, [(token, &granted(token))]);
        }
    }

    async fn knows(&self, token: u64) -> Result<bool, HistoryError> {
        let query = HistoryQuery::Token(FencingToken::new(token).unwrap());
        let answer = tokio::time::timeout(PATIENCE, self.history.query(query)).await;
        Ok(!answer.unwrap()?.records.is_empty())
    }

    async fn becomes(&self, what: &str, mut done: impl FnMut(HistoryFigures) -> bool) {
        let reached = async {
            while !done(self.history.figures()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let figures = || self.history.figures();
        let reached = tokio::time::timeout(PATIENCE, reached).await;
        assert!(reached.is_ok(), "{what}: {:?}", figures());
    }

    async fn is(&self, state: HistoryState) {
        let what = state.name();
        self.becomes(what, |figures| figures.state == state).await;
    }

    /// Waits until what was noted so far is in the index on disk.
    async fn written(&self) {
        let flushes = || self.feed.shared.health.flushes.load(Ordering::SeqCst);
        // One may be under way already.
        let enough = flushes() + 2;
        self.becomes("flushed", |_| flushes() >= enough).await;
    }
}

fn granted(token: u64) -> Event {
    Event::Granted(Granted {
        name: LeaseName::parse("a").unwrap(),
        token: FencingToken::new(token).unwrap(),
        session: SessionId::new(1).unwrap(),
        identity: Identity::parse("me").unwrap(),
        data: HolderData::default(),
        request: RequestNumber::new(1).unwrap(),
        index: token,
        since: WallTime(0),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_cannot_be_opened_for_now_is_kept_and_opened_later() {
    for errno in [Errno::MFILE, Errno::ACCESS, Errno::NOSPC, Errno::IO] {
        let temp = tempfile::tempdir().unwrap();
        let first = Site::at(temp.path());
        first.grants(1..=3);
        first.history.close().await;

        let ground = Faulty::default();
        ground.breaks(Act::Open, errno);
        let site = Site::on(ground, temp.path());
        site.is(HistoryState::Unavailable).await;
        let refused = site.knows(1).await.unwrap_err();
        assert!(refused.to_string().contains("it is retried"), "{refused}");
        site.feed.skipped_to(3);
        site.grants(4..=4);
        site.becomes("several attempts", |figures| figures.failures > 2)
            .await;

        site.ground.mend();
        site.is(HistoryState::Serving).await;
        assert!(site.knows(1).await.unwrap(), "{errno}");
        assert!(site.knows(4).await.unwrap(), "{errno}");
        assert_eq!(site.history.figures().set_aside, 0);
        assert_eq!(site.history.gaps().await.unwrap(), []);
        site.history.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_waited_for_and_what_happened_meanwhile_is_recorded() {
    let temp = tempfile::tempdir().unwrap();
    let site = Site::at(temp.path());
    site.grants(1..=1);
    site.written().await;
    site.ground.fills(true);
    site.is(HistoryState::NoRoom).await;
    site.grants(2..=9);
    assert!(site.knows(1).await.unwrap());
    assert!(site.knows(9).await.unwrap());

    site.ground.fills(false);
    site.is(HistoryState::Serving).await;
    site.written().await;
    site.history.close().await;
    let again = Site::at(temp.path());
    assert!(again.knows(9).await.unwrap());
    assert_eq!(again.history.figures().failures, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_at_the_start_is_waited_for() {
    let temp = tempfile::tempdir().unwrap();
    let ground = Faulty::default();
    ground.fills(true);
    let site = Site::on(ground, temp.path());
    site.grants(1..=2);
    let refused = site.knows(1).await.unwrap_err().to_string();
    assert!(refused.contains("4096 bytes of room"), "{refused}");
    site.ground.fills(false);
    site.is(HistoryState::Serving).await;
    assert!(site.knows(2).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_fails_in_use_is_opened_again_with_what_it_held() {
    for act in [Act::Write, Act::Flush] {
        let temp = tempfile::tempdir().unwrap();
        let site = Site::at(temp.path());
        site.grants(1..=3);
        site.written().await;
        site.ground.breaks(act, Errno::NOSPC);
        site.grants(4..=4);
        site.becomes("a failure", |figures| figures.failures > 0)
            .await;
        site.ground.mend();
        site.is(HistoryState::Serving).await;
        assert!(site.knows(2).await.unwrap(), "{act:?}");
        site.grants(5..=5);
        site.written().await;
        assert!(site.knows(5).await.unwrap(), "{act:?}");
        // What was lost with the failed store is named, and a peer fills it.
        let gaps = site.history.gaps().await.unwrap();
        if act == Act::Write || !gaps.is_empty() {
            assert_eq!(gaps, [(4, 4)], "{act:?}");
            assert_eq!(site.history.figures().state, HistoryState::Filling);
        }
        let part = pb::HistoryPart {
            records: vec![record::of_event(4, &granted(4)).unwrap()],
            covered: vec![pb::IndexRange { first: 4, last: 4 }],
        };
        site.history.add(part).await;
        assert_eq!(site.history.gaps().await.unwrap(), []);
        assert!(site.knows(4).await.unwrap());
        site.history.close().await;
    }
}

/// Makes every write to a new leaf fail as on a full disk: `/dev/full` stands in for the files of
/// the index that are still empty.
fn fill_for_real(index: &Path, sink: &Path) -> usize {
    let mut replaced = 0;
    for entry in fs::read_dir(index.join("slabs")).unwrap() {
        let path = entry.unwrap().path();
        if fs::metadata(&path).unwrap().len() == 0 {
            let to = sink.join(path.file_name().unwrap());
            std::os::unix::fs::symlink("/dev/full", &to).unwrap();
            fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink(&to, &path).unwrap();
            replaced += 1;
        }
    }
    replaced
}

/// The disk has room again.
fn empty_for_real(sink: &Path) {
    for entry in fs::read_dir(sink).unwrap() {
        let path = entry.unwrap().path();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_really_runs_out_of_room_hangs_nothing_and_heals() {
    let (temp, sink) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let site = Site::at(temp.path());
    site.grants(1..=1);
    site.written().await;
    site.history.close().await;
    assert!(fill_for_real(&temp.path().join("history/index-1"), sink.path()) > 40);

    let site = Site::at(temp.path());
    site.feed.skipped_to(1);
    site.grants(2..=900);
    site.becomes("a failure", |figures| figures.failures > 0)
        .await;
    empty_for_real(sink.path());
    site.is(HistoryState::Serving).await;
    assert!(site.knows(1).await.unwrap());
    site.grants(901..=901);
    site.written().await;
    assert!(site.knows(901).await.unwrap());
    assert_eq!(site.history.figures().set_aside, 0);
    tokio::time::timeout(PATIENCE, site.history.close())
        .await
        .expect("it closes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_keeps_failing_is_tried_later_and_keeps_what_it_held() {
    let temp = tempfile::tempdir().unwrap();
    let site = Site::at(temp.path());
    site.grants(1..=1);
    site.written().await;
    site.ground.breaks(Act::Flush, Errno::IO);
    site.becomes("many failures", |figures| figures.failures >= 7)
        .await;
    let refused = site.knows(1).await;
    assert!(refused.is_err() || refused == Ok(true), "{refused:?}");
    site.grants(2..=2);

    site.ground.mend();
    site.is(HistoryState::Serving).await;
    site.written().await;
    assert!(site.knows(1).await.unwrap());
    assert!(site.knows(2).await.unwrap());
    assert_eq!(site.history.figures().set_aside, 0);
    site.history.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_store_is_left_behind_while_the_disk_still_fails() {
    let temp = tempfile::tempdir().unwrap();
    let site = Site::at(temp.path());
    site.written().await;
    for act in [Act::Probe, Act::Write] {
        site.ground.breaks(act, Errno::DQUOT);
    }
    site.grants(1..=1);
    site.becomes("many failures", |figures| figures.failures >= 7)
        .await;
    let refused = site.knows(1).await.unwrap_err().to_string();
    assert!(refused.contains("cannot be opened"), "{refused}");
    // Each store that was left behind moved the index into a directory with the next number.
    assert!(temp.path().join("history/index-1").is_dir());
    site.ground.mend();
    site.is(HistoryState::Serving).await;
    assert!(temp.path().join("history/index-2").is_dir());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_found_damaged_in_use_is_set_aside() {
    let temp = tempfile::tempdir().unwrap();
    let site = Site::at(temp.path());
    site.grants(1..=3);
    site.written().await;
    site.ground.damages(Act::Write);
    site.grants(4..=4);
    site.becomes("a failure", |figures| figures.failures > 0)
        .await;
    site.ground.mend();
    site.is(HistoryState::Serving).await;
    assert_eq!(site.history.figures().set_aside, 1);
    assert!(!site.knows(1).await.unwrap());
    assert_eq!(site.history.gaps().await.unwrap(), [(1, 4)]);
    assert!(temp.path().join("history/damaged/slabs").is_dir());
}

/// Garbles every file of the index, as a bad disk might.
fn garble(dir: &Path) -> usize {
    let mut garbled = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            garbled += garble(&path);
        } else if fs::metadata(&path).unwrap().len() > 0 {
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, vec![0xA5; bytes.len()]).unwrap();
            garbled += 1;
        }
    }
    garbled
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_index_is_set_aside_at_the_start_and_a_new_one_serves() {
    for part in ["", "metadata", "slabs"] {
        let temp = tempfile::tempdir().unwrap();
        let site = Site::at(temp.path());
        site.grants(1..=500);
        site.written().await;
        site.history.close().await;
        assert!(garble(&temp.path().join("history/index-1").join(part)) > 0);

        let site = Site::at(temp.path());
        site.feed.skipped_to(500);
        // Whether the damage shows at the start or at the first look is the store's affair.
        let knows = site.knows(1).await;
        assert!(!matches!(knows, Ok(true)), "{part}: {knows:?}");
        site.becomes("an index set aside", |figures| figures.set_aside == 1)
            .await;
        site.is(HistoryState::Serving).await;
        assert_eq!(site.history.gaps().await.unwrap(), [(1, 500)], "{part}");
        assert!(temp.path().join("history/damaged").is_dir());
        site.grants(501..=501);
        assert!(site.knows(501).await.unwrap());
        site.history.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_is_cut_short_keeps_what_it_brought() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sender = Site::at(from.path());
    sender.grants(1..=3_000);
    sender.written().await;
    let taker = Site::at(to.path());
    taker.feed.skipped_to(3_000);
    assert_eq!(taker.history.gaps().await.unwrap(), [(1, 3_000)]);

    let mut parts = sender.history.parts(1, 3_000);
    for _ in 0..2 {
        let part = tokio::time::timeout(PATIENCE, parts.recv()).await.unwrap();
        taker.history.add(part.unwrap().unwrap()).await;
    }
    drop(parts);
    let gaps = taker.history.gaps().await.unwrap();
    assert_eq!(gaps, [(1_001, 3_000)]);

    let mut parts = sender.history.parts(1_001, 3_000);
    while let Some(part) = tokio::time::timeout(PATIENCE, parts.recv()).await.unwrap() {
        taker.history.add(part.unwrap()).await;
    }
    assert_eq!(taker.history.gaps().await.unwrap(), []);
    for token in [1, 1_000, 1_001, 3_000] {
        assert!(taker.knows(token).await.unwrap(), "{token}");
    }
}
