//! A tar archive in gzip, as POSIX describes it (ustar), so that any tool opens it.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

const BLOCK: usize = 512;
/// The longest name of a file in the archive, in bytes.
const NAME_MAX: usize = 100;

/// An archive that is written file by file.
pub(super) struct Archive<W: Write> {
    out: GzEncoder<W>,
    /// When its files were made, in seconds since 1970.
    made: u64,
}

impl<W: Write> Archive<W> {
    /// An archive whose files were made then, in seconds since 1970.
    pub(super) fn new(out: W, made: u64) -> Self {
        let out = GzEncoder::new(out, Compression::default());
        Self { out, made }
    }

    /// Adds a file that its owner alone may read.
    ///
    /// # Errors
    /// What the writer says, and a name that is too long.
    pub(super) fn add(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(&head(name, bytes.len(), self.made)?)?;
        self.out.write_all(bytes)?;
        let padding = bytes.len().next_multiple_of(BLOCK) - bytes.len();
        self.out.write_all(&[0; BLOCK][..padding])
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// What the writer says.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.finish()
    }
}

fn head(name: &str, size: usize, made: u64) -> io::Result<[u8; BLOCK]> {
    if name.is_empty() || name.len() > NAME_MAX {
        let why = format!("a file of {} bytes of name; at most {NAME_MAX}", name.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut head = [0; BLOCK];
    let mut put =
        |at: usize, text: &str| head[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    put(136, &format!("{made:011o}\0"));
    // The sum is made with spaces in its own place.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\0");
    put(263, "00");
    let sum: u64 = head.iter().map(|byte| u64::from(*byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(head)
}
