//! Where the lines of an audit log go, and how many of them have arrived.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use serde_json::Value;

use super::position::Position;
use crate::acts;

/// How much of a file's end is searched for the last act when the node starts.
const TAIL_BYTES_MAX: u64 = 4 << 20;

/// An open file, pipe or device.
pub(super) struct Out {
    file: File,
    /// Its last line has no end: a write failed within it.
    torn: bool,
}

impl Out {
    /// Standard output, without the buffer of the process: what a write that failed has left there
    /// would be written by the next one, too.
    pub(super) fn stdout() -> io::Result<Self> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Self { file, torn: false })
    }

    /// A file to append to, readable by its owner alone if it is new.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        // A pipe without a reader is full soon, and a write would wait for ever, also when the node stops.
        let is_fit = |kind: FileType| kind.is_file() || kind.is_char_device();
        if let Ok(there) = fs::metadata(path)
            && !is_fit(there.file_type())
        {
            let why = "it is no regular file; expected one, or - for stdout, not a pipe, a socket or \
                       a folder";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut options = OpenOptions::new();
        options.create(true).append(true).read(true).mode(0o600);
        let mut file = options.open(path)?;
        let mut last = [b'\n'];
        // A device has no end to look at.
        if file.metadata()?.is_file() && file.seek(SeekFrom::End(0))? > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        let torn = last != [b'\n'];
        Ok(Self { file, torn })
    }

    /// Writes lines; how many of them are whole there, all of them without an error.
    pub(super) fn write(&mut self, lines: &[String]) -> (usize, io::Result<()>) {
        write(&mut self.file, &mut self.torn, lines)
    }
}

/// Writes lines to something whose last line may be torn.
fn write(to: &mut impl Write, torn: &mut bool, lines: &[String]) -> (usize, io::Result<()>) {
    let mut text = String::new();
    let ends_line = std::mem::take(torn);
    if ends_line {
        text.push('\n');
    }
    lines.iter().for_each(|line| text.push_str(line));
    let bytes = text.as_bytes();
    let mut written = 0;
    let mut done = Ok(());
    while written < bytes.len() && done.is_ok() {
        match to.write(&bytes[written..]) {
            Ok(0) => done = Err(io::ErrorKind::WriteZero.into()),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => done = Err(error),
        }
    }
    let there = &bytes[..written];
    *torn = match there.last() {
        Some(last) => *last != b'\n',
        None => ends_line,
    };
    let mut end = usize::from(ends_line);
    let arrived = lines.iter().take_while(|line| {
        end += line.len();
        // Without its end it is whole: the next line adds that.
        written + 1 >= end
    });
    (arrived.count(), done)
}

/// The newest act at the end of a file; `None` if none stands in its last 4 MiB.
pub(super) fn last_written(path: &Path) -> io::Result<Option<Position>> {
    let mut file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES_MAX)))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES_MAX).read_to_end(&mut tail)?;
    let mut lines = tail.rsplit(|byte| *byte == b'\n');
    Ok(lines.find_map(|line| {
        let object: Value = serde_json::from_slice(line).ok()?;
        Position::of(&object).filter(|_| object["kind"] == acts::ACT)
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_pipe_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        for path in [path.as_path(), folder.path()] {
            let refused = Out::open(path).err().unwrap().to_string();
            assert!(refused.contains("no regular file"), "{refused}");
        }
        assert!(Out::open(Path::new("/dev/null")).is_ok());
    }

    #[test]
    fn a_file_is_its_owners_and_its_end_says_where_to_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut out = Out::open(&path).unwrap();
        assert!(!out.torn && last_written(&path).unwrap().is_none());
        let mode = out.file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let object = json!({ "kind": "ACT", "cluster": "c", "index": 12 });
        let text = format!("{object}\n{{\"kind\":\"REFUSED\"}}\n{{\"half");
        assert_eq!(out.write(&[text]).0, 1);
        let position = Position::new("c".to_owned(), 12);
        assert_eq!(last_written(&path).unwrap(), Some(position));
        let mut out = Out::open(&path).unwrap();
        assert!(out.torn);
        assert_eq!(out.write(&["{}\n".to_owned()]).0, 1);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with("{\"half\n{}\n"), "{text}");
    }

    /// Takes so many bytes, then fails.
    struct Full {
        room: usize,
        taken: Vec<u8>,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 && !bytes.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            // A few at a time, as a pipe does.
            let taken = bytes.len().min(self.room).min(3);
            self.taken.extend(&bytes[..taken]);
            self.room -= taken;
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_arrived_before_a_failed_write_is_not_written_again() {
        let lines: Vec<String> = (0..4).map(|n| format!("{{\"index\":{n}}}\n")).collect();
        let whole: usize = lines.iter().map(String::len).sum();
        for room in 0..=whole {
            let mut to = Full {
                room,
                taken: Vec::new(),
            };
            let mut torn = false;
            let (arrived, done) = write(&mut to, &mut torn, &lines);
            assert!(done.is_err() || arrived == lines.len(), "{room}");
            // A second failure, one byte further, and then there is room.
            to.room = 1;
            let (more, _) = write(&mut to, &mut torn, &lines[arrived..]);
            to.room = usize::MAX;
            let (rest, done) = write(&mut to, &mut torn, &lines[arrived + more..]);
            assert!(
                done.is_ok() && arrived + more + rest == lines.len(),
                "{room}"
            );
            let text = String::from_utf8(to.taken).unwrap();
            for line in &lines {
                let times = text.lines().filter(|there| *there == line.trim_end());
                assert_eq!(times.count(), 1, "{room}: {text}");
            }
        }
    }
}
