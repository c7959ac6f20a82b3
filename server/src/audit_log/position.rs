//! How far acts were written: the file `audit.position` in a node's data directory.
//!
//! The end of the audit log says the same where it can: not for standard output, and not for a file
//! that is new since the one before was rotated. What is written here comes later than the lines, so a
//! node that is killed in between writes them again.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The name of the file in the data directory.
const NAME: &str = "audit.position";
/// What it is written as before it takes its place.
const NEW: &str = "audit.position.new";
/// The most bytes that are read of it: a path has at most 4 KiB, in JSON six times as many.
const BYTES_MAX: u64 = 32 << 10;

/// An act that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Its cluster, as text.
    pub(super) cluster: String,
    /// Its log index; 0 before the first.
    pub(super) index: u64,
}

impl Position {
    pub(super) fn new(cluster: String, index: u64) -> Self {
        Self { cluster, index }
    }

    /// The index behind which acts of this cluster are new.
    pub(super) fn after(&self, cluster: &str) -> u64 {
        match self.cluster == cluster {
            true => self.index,
            false => 0,
        }
    }

    /// What an object says, if it is about an act.
    pub(super) fn of(object: &Value) -> Option<Self> {
        let cluster = object["cluster"].as_str()?.to_owned();
        let index = object["index"].as_u64()?;
        Some(Self { cluster, index })
    }
}

/// Where the position of one audit log is kept.
#[derive(Clone, Debug)]
pub(super) struct Bookmark {
    folder: PathBuf,
    /// The audit log that it is about: one of another path begins again.
    log: String,
}

impl Bookmark {
    /// That of the log at this path, `None` for standard output.
    pub(super) fn new(data_dir: &Path, log: Option<&Path>) -> Self {
        let log = log.map_or_else(
            || "-".to_owned(),
            |log| {
                let absolute = std::path::absolute(log);
                absolute
                    .unwrap_or_else(|_| log.to_owned())
                    .display()
                    .to_string()
            },
        );
        Self {
            folder: data_dir.to_owned(),
            log,
        }
    }

    /// The position, if one was kept for this log. A file that cannot be read is none: acts are
    /// written again then.
    pub(super) fn read(&self) -> Option<Position> {
        let file = File::open(self.folder.join(NAME)).ok()?;
        let mut text = String::new();
        file.take(BYTES_MAX).read_to_string(&mut text).ok()?;
        let object: Value = serde_json::from_str(&text).ok()?;
        let position = Position::of(&object)?;
        (object["log"] == *self.log).then_some(position)
    }

    /// Keeps a position. It is not synced, as the log is not.
    pub(super) fn write(&self, position: &Position) -> io::Result<()> {
        let object = json!({
            "log": self.log,
            "cluster": position.cluster,
            "index": position.index,
        });
        let new = self.folder.join(NEW);
        fs::write(&new, format!("{object}\n"))?;
        fs::rename(&new, self.folder.join(NAME))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_position_is_that_of_one_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("audit \"1\".jsonl");
        let (stdout, file) = (
            Bookmark::new(folder.path(), None),
            Bookmark::new(folder.path(), Some(&log)),
        );
        assert_eq!(stdout.read(), None);
        let position = Position::new("c".to_owned(), 7);
        stdout.write(&position).unwrap();
        assert_eq!(stdout.read(), Some(position.clone()));
        assert_eq!(file.read(), None);
        file.write(&position).unwrap();
        assert_eq!((stdout.read(), file.read()), (None, Some(position)));
        for damaged in ["", "{", "[]", "{\"log\":\"-\"}"] {
            fs::write(folder.path().join(NAME), damaged).unwrap();
            assert_eq!(stdout.read(), None, "{damaged}");
        }
    }
}
