//! Writing a history while it happens.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::{Header, LINE_BYTES_MAX, Record};

/// Appends records to a history, a line each.
///
/// A record is buffered until [`Writer::flush`] or until the buffer is full, and lines are handed
/// over whole, in order. So a killed recorder leaves a history that lacks its end and may have its
/// last line cut off, both of which a reader notices. Nothing is synced to a disk.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: BufWriter<W>,
    line: Vec<u8>,
    records: u64,
}

impl Writer<File> {
    /// Begins a history in a new file; an old one of that name is replaced.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(path: &Path, header: &Header) -> io::Result<Self> {
        Self::new(File::create(path)?, header)
    }
}

impl<W: Write> Writer<W> {
    /// Begins a history with its header.
    ///
    /// # Errors
    /// What `to` says.
    pub fn new(to: W, header: &Header) -> io::Result<Self> {
        let mut writer = Self {
            to: BufWriter::with_capacity(LINE_BYTES_MAX, to),
            line: Vec::new(),
            records: 0,
        };
        writer.append(&Record::Header(header.clone()))?;
        Ok(writer)
    }

    /// Appends a record.
    ///
    /// # Errors
    /// What the file system says; [`io::ErrorKind::InvalidInput`] if the line would be longer than
    /// [`LINE_BYTES_MAX`], in which case nothing was written.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, record)?;
        self.line.push(b'\n');
        if self.line.len() > LINE_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "the record has {} bytes; a line has at most {LINE_BYTES_MAX}",
                    self.line.len()
                ),
            ));
        }
        self.to.write_all(&self.line)?;
        self.records += 1;
        Ok(())
    }

    /// How many records were appended, the header included.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Hands everything over.
    ///
    /// # Errors
    /// What the file system says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// Hands everything over, and gives back what it was written to.
    ///
    /// # Errors
    /// What the file system says.
    pub fn finish(self) -> io::Result<W> {
        self.to.into_inner().map_err(io::IntoInnerError::into_error)
    }
}
