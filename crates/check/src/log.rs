//! The dump of a committed log: one JSON object per line.
//!
//! ```text
//! {"log":{"version":1,"node":"n1","committed":1234}}
//! {"entry":{"index":1,"term":1}}
//! {"entry":{"index":2,"term":1,"time_ms":0,"wall_ms":1793491200000,"command":"12020801"}}
//! ```
//!
//! An entry without a command is none of the state machine's business: a blank one or a change of
//! members. `command` is the record that the log holds, in hexadecimal. Secrets of sessions are
//! replaced, each by another one that says nothing, so that a dump can be shown around.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};

use bytes::Bytes;
use ringfence_core::{ClusterTime, Command, Entry, Secret, WallTime};
use ringfence_proto::DecodeError;
use ringfence_proto::record::{decode_command, encode_command};
use serde::{Deserialize, Serialize};

/// The version of the dumps that this crate writes and reads.
pub const DUMP_VERSION: u32 = 1;
/// The longest line of a dump, in bytes: an entry of the log has at most 1 MiB.
pub const DUMP_LINE_BYTES_MAX: u64 = 4 << 20;

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Raft index of the entry, from 1.
    pub index: u64,
    /// Raft term in which the entry was proposed.
    pub term: u64,
    /// What the state machine is given; `None` if it is only made to take notice of the index.
    pub entry: Option<Entry>,
}

impl From<Entry> for Logged {
    fn from(entry: Entry) -> Self {
        Self {
            index: entry.index,
            term: entry.term,
            entry: Some(entry),
        }
    }
}

/// What a dump is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogHeader {
    /// The version of the format; only [`DUMP_VERSION`] can be read.
    pub version: u32,
    /// Name of the node whose log this is.
    pub node: String,
    /// The greatest index that this node knew to be committed, if it knew any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed: Option<u64>,
}

/// Why a dump cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The file cannot be read.
    #[error("cannot read the dump: {0}")]
    Io(#[from] io::Error),
    /// A line is no part of a dump.
    #[error("line {line} of the dump: {why}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// A command means nothing to this version.
    #[error("line {line} of the dump: {source}")]
    Command {
        /// Number of the line, from 1.
        line: u64,
        /// Why the command's bytes could not be decoded.
        source: DecodeError,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Log(LogHeader),
    Entry(EntryLine),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryLine {
    index: u64,
    term: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    time_ms: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    wall_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Writes a dump line by line; secrets of sessions are replaced, equal ones alike.
#[derive(Debug)]
pub struct DumpWriter<W> {
    to: W,
    /// What each secret is replaced by.
    secrets: HashMap<Secret, Secret>,
}

impl<W: Write> DumpWriter<W> {
    /// Begins a dump.
    ///
    /// # Errors
    /// What `to` says.
    pub fn new(to: W, header: &LogHeader) -> io::Result<Self> {
        let mut writer = Self {
            to,
            secrets: HashMap::new(),
        };
        writer.line(&Line::Log(header.clone()))?;
        Ok(writer)
    }

    /// Appends an entry; entries are appended in rising order.
    ///
    /// # Errors
    /// What `to` says.
    pub fn append(&mut self, logged: &Logged) -> io::Result<()> {
        let entry = logged.entry.as_ref();
        let command = entry.map(|entry| {
            let mut command = entry.command.clone();
            self.hide(&mut command);
            hex(&encode_command(&command))
        });
        let line = EntryLine {
            index: logged.index,
            term: logged.term,
            time_ms: entry.map_or(0, |entry| entry.time.0),
            wall_ms: entry.map_or(0, |entry| entry.wall.0),
            command,
        };
        self.line(&Line::Entry(line))
    }

    /// Hands everything over.
    ///
    /// # Errors
    /// What `to` says.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        serde_json::to_writer(&mut self.to, line)?;
        self.to.write_all(b"\n")
    }

    /// Replaces the secret of a command; equal ones stay equal and others others.
    fn hide(&mut self, command: &mut Command) {
        let asked = match command {
            Command::Called(called) => &mut called.command,
            other => other,
        };
        let secret = match asked {
            Command::Open(open) => &mut open.secret,
            Command::OpenForPod(open) => &mut open.secret,
            Command::Request(request) => &mut request.secret,
            Command::Close { secret, .. } | Command::Adopt { secret, .. } => secret,
            _ => return,
        };
        let next = self.secrets.len() as u128 + 1;
        let hidden = self.secrets.entry(*secret);
        *secret = *hidden.or_insert(Secret::new(next.to_be_bytes()));
    }
}

/// Reads a dump entry by entry.
#[derive(Debug)]
pub struct DumpReader<R> {
    from: R,
    header: LogHeader,
    text: Vec<u8>,
    line: u64,
}

impl<R: BufRead> DumpReader<R> {
    /// Begins to read a dump.
    ///
    /// # Errors
    /// [`DumpError`] if it does not begin with the header of this version.
    pub fn new(from: R) -> Result<Self, DumpError> {
        let mut reader = Self {
            from,
            header: LogHeader::default(),
            text: Vec::new(),
            line: 0,
        };
        let header = match reader.read()? {
            Some(Line::Log(header)) if header.version == DUMP_VERSION => header,
            Some(Line::Log(header)) => {
                let offered = header.version;
                return Err(reader.wrong(format!("version {offered}; known is {DUMP_VERSION}")));
            }
            _ => return Err(reader.wrong("a dump begins with {\"log\":{…}}")),
        };
        reader.header = header;
        Ok(reader)
    }

    /// What the dump is of.
    #[must_use]
    pub fn header(&self) -> &LogHeader {
        &self.header
    }

    fn wrong(&self, why: impl ToString) -> DumpError {
        DumpError::Line {
            line: self.line,
            why: why.to_string(),
        }
    }

    fn read(&mut self) -> Result<Option<Line>, DumpError> {
        self.text.clear();
        let mut limited = io::Read::take(&mut self.from, DUMP_LINE_BYTES_MAX);
        if limited.read_until(b'\n', &mut self.text)? == 0 {
            return Ok(None);
        }
        self.line += 1;
        // A dump is made of a log that is at rest: one that was cut off is not the log.
        if self.text.last() != Some(&b'\n') {
            return Err(self.wrong("it is cut off, or longer than any entry of a log"));
        }
        match serde_json::from_slice(&self.text) {
            Ok(line) => Ok(Some(line)),
            Err(wrong) => Err(self.wrong(wrong)),
        }
    }

    fn logged(&self, line: EntryLine) -> Result<Logged, DumpError> {
        let EntryLine { index, term, .. } = line;
        let entry = match line.command {
            None => None,
            Some(text) => {
                let bytes = unhex(&text).ok_or_else(|| self.wrong("no hexadecimal command"))?;
                let command = decode_command(&bytes).map_err(|source| DumpError::Command {
                    line: self.line,
                    source,
                })?;
                Some(Entry {
                    index,
                    term,
                    time: ClusterTime(line.time_ms),
                    wall: WallTime(line.wall_ms),
                    command,
                })
            }
        };
        Ok(Logged { index, term, entry })
    }
}

impl<R: BufRead> Iterator for DumpReader<R> {
    type Item = Result<Logged, DumpError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.read() {
            Ok(None) => None,
            Ok(Some(Line::Entry(line))) => Some(self.logged(line)),
            Ok(Some(Line::Log(_))) => Some(Err(self.wrong("a second header"))),
            Err(error) => Some(Err(error)),
        }
    }
}

fn hex(bytes: &Bytes) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(DIGITS[usize::from(digit)]));
    digits.collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    let bytes = pairs.map(|pair| {
        let [high, low] = pair else { return None };
        u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
    });
    bytes.collect()
}
