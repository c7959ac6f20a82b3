//! Reading a history line by line.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::{Header, LINE_BYTES_MAX, RATE_BOUND_PPM, RECORDS_MAX, Record, VERSION};

/// Rates are within this many parts per million; at a million clocks could stand still.
const RATE_PPM_END: u32 = 1_000_000;

/// Why a history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("cannot read the history: {0}")]
    Io(#[from] io::Error),
    /// A line is no record.
    #[error("line {line} is no record of a history: {why}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// A line is too long.
    #[error("line {line} is longer than {LINE_BYTES_MAX} bytes, the most that a line has")]
    LongLine {
        /// Number of the line, from 1.
        line: u64,
    },
    /// The history is too long.
    #[error("the history has more than {RECORDS_MAX} records; record for a shorter time")]
    TooLong,
    /// The first line is no header.
    #[error(
        "the first line is no header; a history begins with {{\"header\":{{\"version\":{VERSION},…}}}}"
    )]
    NoHeader,
    /// The history is of another version.
    #[error("the history has version {offered}; this program reads version {VERSION}")]
    Version {
        /// The version in the header.
        offered: u32,
    },
    /// The bound of the clocks' rates makes no sense.
    #[error(
        "rate_bound_ppm is {offered}; it is less than {RATE_PPM_END}, and {RATE_BOUND_PPM} in the contract"
    )]
    RateBound {
        /// What the header says.
        offered: u32,
    },
}

/// A last line that was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutOff {
    /// Number of the line, from 1.
    pub line: u64,
    /// How much of it is there, in bytes.
    pub bytes: usize,
}

/// Reads a history record by record; the header has been read when it exists.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    header: Header,
    text: Vec<u8>,
    line: u64,
    records: u64,
    cut_off: Option<CutOff>,
    over: bool,
}

impl Reader<BufReader<File>> {
    /// Opens the history in a file.
    ///
    /// # Errors
    /// [`ReadError`] if it cannot be opened, or does not begin with a header of this version.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::new(BufReader::with_capacity(1 << 20, File::open(path)?))
    }
}

impl<R: BufRead> Reader<R> {
    /// Reads a history from `from`.
    ///
    /// # Errors
    /// [`ReadError`] if it does not begin with a header of this version.
    pub fn new(from: R) -> Result<Self, ReadError> {
        let mut reader = Self {
            from,
            header: Header::new(""),
            text: Vec::new(),
            line: 0,
            records: 0,
            cut_off: None,
            over: false,
        };
        let Some(Record::Header(header)) = reader.read().map_err(no_header)? else {
            return Err(ReadError::NoHeader);
        };
        if header.version != VERSION {
            let offered = header.version;
            return Err(ReadError::Version { offered });
        }
        if header.rate_bound_ppm >= RATE_PPM_END {
            let offered = header.rate_bound_ppm;
            return Err(ReadError::RateBound { offered });
        }
        reader.header = header;
        Ok(reader)
    }

    /// The header, which was read before the first record.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The last line, if it was cut off; known once all records were read.
    #[must_use]
    pub fn cut_off(&self) -> Option<CutOff> {
        self.cut_off
    }

    /// The number of the line that was read last, from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    fn read(&mut self) -> Result<Option<Record>, ReadError> {
        loop {
            self.text.clear();
            let mut limited = io::Read::take(&mut self.from, LINE_BYTES_MAX as u64 + 1);
            let bytes = limited.read_until(b'\n', &mut self.text)?;
            if bytes == 0 {
                return Ok(None);
            }
            self.line += 1;
            if bytes > LINE_BYTES_MAX {
                return Err(ReadError::LongLine { line: self.line });
            }
            let whole = self.text.last() == Some(&b'\n');
            if self.text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return match serde_json::from_slice(&self.text) {
                Ok(record) => self.counted(record).map(Some),
                Err(_) if !whole => {
                    let line = self.line;
                    self.cut_off = Some(CutOff { line, bytes });
                    Ok(None)
                }
                Err(wrong) => Err(ReadError::Line {
                    line: self.line,
                    why: wrong.to_string(),
                }),
            };
        }
    }

    fn counted(&mut self, record: Record) -> Result<Record, ReadError> {
        self.records += 1;
        if self.records > RECORDS_MAX {
            return Err(ReadError::TooLong);
        }
        Ok(record)
    }
}

/// Whatever else the first line is, it is no header.
fn no_header(error: ReadError) -> ReadError {
    match error {
        ReadError::Line { .. } => ReadError::NoHeader,
        other => other,
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record, ReadError>;

    /// The next record; nothing follows an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let read = self.read().and_then(|record| match record {
            Some(Record::Header(_)) => Err(ReadError::Line {
                line: self.line,
                why: "a second header; one file holds one history".to_owned(),
            }),
            record => Ok(record),
        });
        self.over = !matches!(read, Ok(Some(_)));
        read.transpose()
    }
}
