//! The file with the keys of an issuer. It is looked at when a token of the issuer comes, at most
//! every few seconds, and read when it has changed or could not be used.
//!
//! A file that cannot be used changes nothing, whatever makes it so: it is gone, half written, or a
//! JWKS in which no key is one that counts. The former keys stay in use, since a program that writes
//! keys makes such a file when it fails, and without keys all callers of the issuer are refused. It is
//! logged again and again and shown in a metric, since the operator may have meant to take a key away.
//! That is done by a file with another key, or by a start without the issuer.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::key::Keys;
use crate::limits::{KEY_FILE_BYTES_MAX, KEY_FILE_LOG_PAUSE, KEY_FILE_PAUSE};

pub(super) struct KeyFile {
    alias: String,
    path: PathBuf,
    state: Mutex<State>,
    /// How often the file was read.
    reads: AtomicU64,
    /// Whether it could not be used when it was looked at last.
    is_unusable: AtomicBool,
}

struct State {
    stamp: Option<Stamp>,
    /// When it was looked at, in seconds since 1970.
    looked: u64,
    /// When a log line said that it cannot be used.
    said: Option<u64>,
    keys: Arc<Keys>,
    generation: u64,
}

/// By what a change of a file is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl KeyFile {
    /// Reads it for the first time.
    ///
    /// # Errors
    /// What is wrong with it, and what is expected.
    pub(super) fn open(alias: &str, path: &Path, now: u64) -> Result<Self, String> {
        // Before the read: what changes in between is noticed at the next look.
        let stamp = stamp(path);
        let keys = Arc::new(read(path)?);
        Ok(Self {
            alias: alias.to_owned(),
            path: path.to_owned(),
            state: Mutex::new(State {
                stamp: stamp.ok(),
                looked: now,
                said: None,
                keys,
                generation: 0,
            }),
            reads: AtomicU64::new(1),
            is_unusable: AtomicBool::new(false),
        })
    }

    /// The keys, and how often they were replaced.
    pub(super) fn current(&self, now: u64) -> (Arc<Keys>, u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if is_due(state.looked, now, KEY_FILE_PAUSE.as_secs()) {
            state.looked = now;
            self.look(&mut state, now);
        }
        (Arc::clone(&state.keys), state.generation)
    }

    pub(super) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Whether the former keys are in use because the file cannot be.
    pub(super) fn is_unusable(&self) -> bool {
        self.is_unusable.load(Ordering::Relaxed)
    }

    fn look(&self, state: &mut State, now: u64) {
        let stamp = stamp(&self.path);
        let found = match &stamp {
            Ok(stamp) if Some(*stamp) == state.stamp => return,
            Ok(_) => {
                self.reads.fetch_add(1, Ordering::Relaxed);
                read(&self.path)
            }
            Err(why) => Err(why.clone()),
        };
        self.is_unusable.store(found.is_err(), Ordering::Relaxed);
        match found {
            Ok(keys) => {
                state.stamp = stamp.ok();
                state.keys = Arc::new(keys);
                state.generation += 1;
                tracing::info!(issuer = self.alias, "JWTs are verified by the new keys");
            }
            Err(why) => {
                // The next look reads it again: a read also fails for want of file descriptors, which
                // no time of the file shows, and a removed key must not stay in use for that.
                state.stamp = None;
                if state
                    .said
                    .is_none_or(|said| is_due(said, now, KEY_FILE_LOG_PAUSE.as_secs()))
                {
                    state.said = Some(now);
                    tracing::warn!(
                        issuer = self.alias,
                        file = %self.path.display(),
                        why,
                        "the file with the keys of the issuer cannot be used, so the former keys stay in \
                         use: replace it by a JWKS with a key for RS256, ES256 or EdDSA"
                    );
                }
            }
        }
    }
}

/// Whether `pause` seconds have passed, or the clock was set back.
fn is_due(last: u64, now: u64, pause: u64) -> bool {
    now < last || now - last >= pause
}

fn stamp(path: &Path) -> Result<Stamp, String> {
    let file = fs::metadata(path).map_err(|error| format!("it cannot be read: {error}"))?;
    // To open a pipe would wait for its writer.
    if !file.is_file() {
        return Err("it is no file".to_owned());
    }
    Ok(Stamp {
        device: file.dev(),
        inode: file.ino(),
        bytes: file.len(),
        modified: (file.mtime(), file.mtime_nsec()),
        changed: (file.ctime(), file.ctime_nsec()),
    })
}

fn read(path: &Path) -> Result<Keys, String> {
    Keys::parse(&bytes(path)?)
}

/// What stands in a file of keys.
///
/// # Errors
/// Why it cannot be read, and what is expected.
pub(super) fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    stamp(path)?;
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(KEY_FILE_BYTES_MAX + 1).read_to_end(&mut text))
        .map_err(|error| format!("it cannot be read: {error}"))?;
    if text.len() as u64 > KEY_FILE_BYTES_MAX {
        return Err(format!(
            "it is longer than {KEY_FILE_BYTES_MAX} bytes, which is the longest JWKS that is read"
        ));
    }
    Ok(text)
}
