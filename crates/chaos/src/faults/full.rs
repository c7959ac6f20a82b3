//! Faults of disks without room: one that is full, and a log that may not grow.
//!
//! A node on a full disk goes on: its log writes over segments that it has in reserve, its next
//! snapshot fails and is tried again, and without a reserve it takes no more entries. A write into
//! the log that finds no room in a file ends the node. So that is a fault of its own.

use std::path::{Path, PathBuf};

use super::{Begun, Effect, Running, inserted, resolve};
use crate::clock::now_ns;
use crate::cluster::Ended;
use crate::schedule::Victim;
use crate::stage::Stage;

/// What a node says that finds no room: on its disk, or within a file.
const NO_ROOM: [&str; 4] = [
    "No space left",
    "os error 28",
    "File too large",
    "os error 27",
];
/// The last words of a node that ends on its own.
const STOPPED: &str = "the node stopped on its own";
/// And what they hold if it was its log that could not be written, or a snapshot.
const LOG_REFUSED: &str = "the log accepts nothing more";
const SNAPSHOT_REFUSED: &str = "snapshot";
/// Less than this is no room for anything.
const FULL_BYTES: u64 = 64 << 10;
/// So much the node may still say, and so much of a new segment it may still write: little, since
/// a busy machine writes little in the time that the fault has.
const FILE_BYTES: u64 = 64 << 10;
/// How long beyond its time a disk stays full until its node has had to write, in ns.
const NOTICE_LIMIT_NS: u64 = 30_000_000_000;

/// What has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    /// The disk, for anything.
    Disk,
    /// The log, in its segment.
    Log,
}

struct Full {
    place: usize,
    lack: Lack,
    /// Since when it is to end, in ns.
    over_since: Option<u64>,
    /// How much was free when it was full.
    free: u64,
    /// How often the node had made room for itself, and it was taken away again.
    refilled: u64,
    /// Where the node writes what it has to say, and how much that was when it began.
    log: PathBuf,
    log_at: u64,
    ended: Option<Ended>,
}

pub(super) fn disk(stage: &mut Stage, victim: Victim) -> Result<Begun, String> {
    let place = resolve(stage, victim)?;
    let what = format!("the disk of {} is full", inserted(stage, place));
    let node = &mut stage.nodes[place];
    if !node.disk.can_be_filled() {
        return Err("the node's disk cannot be filled on this machine".to_owned());
    }
    let free = node.disk.fill().map_err(|cause| cause.to_string())?;
    Ok(begun(stage, place, what, Lack::Disk, free))
}

pub(super) fn log(stage: &mut Stage, victim: Victim) -> Result<Begun, String> {
    let place = resolve(stage, victim)?;
    let what = format!("the log of {} has no room", inserted(stage, place));
    let limit = said_bytes(&stage.nodes[place].log) + FILE_BYTES;
    let limited = stage.nodes[place].limit_files(Some(limit));
    limited.map_err(|cause| format!("the node's files could not be limited: {cause}"))?;
    Ok(begun(stage, place, what, Lack::Log, 0))
}

fn begun(stage: &mut Stage, place: usize, what: String, lack: Lack, free: u64) -> Begun {
    let node = &mut stage.nodes[place];
    // It may end by that: a write into its log that fails is final.
    node.doomed = true;
    let log = node.log.clone();
    let log_at = said_bytes(&log);
    // A log that does not grow needs no room.
    stage.crew.flood(true);
    Begun {
        running: Box::new(Full {
            place,
            lack,
            over_since: None,
            free,
            refilled: 0,
            log,
            log_at,
            ended: None,
        }),
        what,
        nodes: vec![place],
        clients: Vec::new(),
    }
}

/// How much a node has said so far, in bytes.
fn said_bytes(log: &Path) -> u64 {
    std::fs::metadata(log).map_or(0, |log| log.len())
}

impl Running for Full {
    fn watch(&mut self, stage: &mut Stage) {
        let node = &mut stage.nodes[self.place];
        if let Some(ended) = node.ended() {
            self.ended = Some(ended);
        }
        let roomy = || node.disk.free().is_ok_and(|free| free >= FULL_BYTES);
        // A node that removes an old file has room again, which a disk that others fill has not.
        if self.lack == Lack::Disk && roomy() && node.disk.fill().is_ok() {
            self.refilled += 1;
        }
    }

    fn heal(&mut self, stage: &mut Stage) -> Option<Effect> {
        self.watch(stage);
        let over_since = *self.over_since.get_or_insert_with(now_ns);
        let said = std::fs::read(&self.log).unwrap_or_default();
        let since = usize::try_from(self.log_at).unwrap_or(usize::MAX);
        let said = said.get(since..).unwrap_or_default();
        let told = Told::by(&String::from_utf8_lossy(said));
        let noticed = self.ended.is_some() || (self.lack == Lack::Disk && told.no_room);
        if !noticed && now_ns().saturating_sub(over_since) < NOTICE_LIMIT_NS {
            return None;
        }
        stage.crew.flood(false);
        let node = &stage.nodes[self.place];
        let relieved = match self.lack {
            Lack::Disk => node.disk.empty(),
            Lack::Log if node.runs() => node.limit_files(None),
            Lack::Log => Ok(()),
        };
        let mut problem = relieved.err().map(|cause| cause.to_string());
        if stage.nodes[self.place].runs() {
            stage.nodes[self.place].doomed = false;
        } else if let Err(why) = stage.start_node(self.place) {
            problem = Some(why);
        }
        Some(self.effect(told, problem))
    }
}

/// What a node's words of a time tell of a disk without room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    /// Something found no room.
    no_room: bool,
    /// The log did not, and the node ended by that.
    log: bool,
    /// A snapshot did not, and the node ended by that.
    snapshot: bool,
}

impl Told {
    fn by(said: &str) -> Self {
        let no_room = |line: &&str| NO_ROOM.iter().any(|words| line.contains(words));
        let mut told = Self::default();
        for line in said.lines().filter(no_room) {
            told.no_room = true;
            if line.contains(STOPPED) {
                told.log |= line.contains(LOG_REFUSED);
                told.snapshot |= line.contains(SNAPSHOT_REFUSED) && !line.contains(LOG_REFUSED);
            }
        }
        told
    }
}

impl Full {
    fn effect(&self, told: Told, problem: Option<String>) -> Effect {
        let log_full = told.log && self.ended.is_some();
        let snapshot_full = told.snapshot && self.ended.is_some();
        let note = match (&problem, &self.ended) {
            (Some(problem), _) => problem.clone(),
            (None, Some(ended)) => {
                let what = match (log_full, snapshot_full) {
                    (true, _) => "its log found no room",
                    (false, true) => "its snapshot found no room",
                    (false, false) => "it did not say why",
                };
                format!("the node {ended} since {what}, and was started again")
            }
            (None, None) if told.no_room => "the node said so, and went on".to_owned(),
            (None, None) => "the node had no need of more room meanwhile".to_owned(),
        };
        let took_effect = match self.lack {
            Lack::Disk => self.free < FULL_BYTES && told.no_room,
            Lack::Log => log_full,
        };
        let mut counters = vec![
            ("log_full", u64::from(log_full)),
            ("snapshot_full", u64::from(snapshot_full)),
        ];
        if self.lack == Lack::Disk {
            counters.extend([("free_bytes", self.free), ("refilled", self.refilled)]);
        }
        let counters = counters.into_iter();
        Effect {
            took_effect: problem.is_none() && took_effect,
            counters: counters.map(|(name, n)| (name.to_owned(), n)).collect(),
            note,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTORY: &str = "ERROR sled: failed to flush: No space left on device (os error 28)";
    const SNAPSHOT: &str = "error: the node stopped on its own: storage failed: when Write \
        Snapshot(None): snapshot n2/building.partial; No space left on device (os error 28)";
    const LOG: &str = "error: the node stopped on its own: storage failed: cannot write n1/7.wal: \
        File too large (os error 27); the log accepts nothing more: free some space";

    fn full(lack: Lack, ended: bool) -> Full {
        Full {
            place: 0,
            lack,
            over_since: None,
            free: 0,
            refilled: 2,
            log: PathBuf::new(),
            log_at: 0,
            ended: ended.then(|| Ended::with_code(1)),
        }
    }

    #[test]
    fn a_full_log_is_told_from_a_full_snapshot_and_a_full_history() {
        let effect = full(Lack::Disk, false).effect(Told::by(HISTORY), None);
        assert!(effect.took_effect, "{effect:?}");
        assert_eq!(
            (
                effect.counters["log_full"],
                effect.counters["snapshot_full"]
            ),
            (0, 0)
        );

        let said = format!("{HISTORY}\n{SNAPSHOT}\n");
        let effect = full(Lack::Disk, true).effect(Told::by(&said), None);
        assert!(effect.took_effect, "{effect:?}");
        assert_eq!(
            (
                effect.counters["log_full"],
                effect.counters["snapshot_full"]
            ),
            (0, 1)
        );

        let effect = full(Lack::Log, true).effect(Told::by(LOG), None);
        assert!(effect.took_effect, "{effect:?}");
        assert_eq!(
            (
                effect.counters["log_full"],
                effect.counters["snapshot_full"]
            ),
            (1, 0)
        );
        assert!(effect.note.contains("its log found no room"), "{effect:?}");
    }

    #[test]
    fn a_log_without_room_that_nobody_wrote_to_had_no_effect() {
        assert!(
            !full(Lack::Log, false)
                .effect(Told::by(LOG), None)
                .took_effect
        );
        assert!(
            !full(Lack::Log, true)
                .effect(Told::by(SNAPSHOT), None)
                .took_effect
        );
        assert!(!full(Lack::Log, true).effect(Told::by(""), None).took_effect);
    }

    #[test]
    fn a_disk_that_nobody_missed_or_that_was_not_full_had_no_effect() {
        assert!(
            !full(Lack::Disk, false)
                .effect(Told::by("all is well"), None)
                .took_effect
        );
        let free = FULL_BYTES;
        let roomy = Full {
            free,
            ..full(Lack::Disk, false)
        };
        assert!(!roomy.effect(Told::by(HISTORY), None).took_effect);
        let problem = Some("it did not start".to_owned());
        assert!(
            !full(Lack::Disk, true)
                .effect(Told::by(HISTORY), problem)
                .took_effect
        );
    }
}
