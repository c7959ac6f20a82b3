//! Where PEM text comes from.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The most bytes of a PEM file: a bundle of all public authorities has a quarter of it.
pub(crate) const PEM_BYTES_MAX: u64 = 1 << 20;

/// What PEM text begins with, and no path of a file has in it.
const BEGIN: &str = "-----BEGIN ";

/// What to do about a file that cannot be read.
pub(crate) fn next_step(error: &io::Error, otherwise: &'static str) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "the account that this program runs as has to be able to read it, and no others: \
             chgrp its group to the file, and chmod 0440 it"
        }
        _ => otherwise,
    }
}

/// PEM text: certificates or a key.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// In a file, which is read again for the next connection once it has changed.
    File(PathBuf),
    /// Given as it is.
    Text(Arc<[u8]>),
}

/// By what a change of a file is noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

impl Pem {
    /// The text.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::Text(text) => Ok(text.to_vec()),
            Self::File(path) => {
                let mut text = Vec::new();
                let file = fs::File::open(path)?;
                file.take(PEM_BYTES_MAX + 1).read_to_end(&mut text)?;
                if text.len() as u64 > PEM_BYTES_MAX {
                    let why = format!("it is longer than {PEM_BYTES_MAX} bytes");
                    return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
                }
                Ok(text)
            }
        }
    }

    /// `None` for what is no file, or for one that is not there.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let Self::File(path) = self else { return None };
        let file = fs::metadata(path).ok()?;
        Some(Stamp {
            modified: file.modified().ok(),
            bytes: file.len(),
        })
    }
}

impl From<PathBuf> for Pem {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl From<&Path> for Pem {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A text in the place of its path: it may be a key, as that below.
            Self::File(path) if path.to_string_lossy().contains(BEGIN) => {
                f.write_str("(PEM text where the path of a file is expected)")
            }
            Self::File(path) => path.display().fmt(f),
            // It may be a key.
            Self::Text(_) => f.write_str("(given as text)"),
        }
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pem({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_the_place_of_its_path_is_not_shown() {
        let key = "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n";
        let shown = Pem::File(PathBuf::from(key)).to_string();
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("path of a file"), "{shown}");
        assert_eq!(Pem::File(PathBuf::from("/n1.key")).to_string(), "/n1.key");
    }
}
