//! The log of a node that is stopped, read for people and checkers.

use std::path::{Path, PathBuf};

use prost::Message;
use ringfence_core::Entry;
use ringfence_proto::DecodeError;
use ringfence_proto::raft as pb;
use ringfence_proto::record::decode_command;
use ringfence_wal::{LogEntry, OpenError, RealFs, read_back};

use crate::store::data_dir::WAL_DIR;
use crate::store::identity::{Identity, IdentityError};
use crate::types::codec;
use crate::types::type_config::Payload;

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogReadError {
    /// No node has lived in the directory.
    #[error("{} is no data directory of a node: it has no identity file", path.display())]
    NoNode {
        /// The directory.
        path: PathBuf,
    },
    /// The node never belonged to a cluster, and has no log.
    #[error("the node in {} belongs to no cluster yet, and has no log", path.display())]
    NoSeat {
        /// The directory.
        path: PathBuf,
    },
    /// The identity file cannot be used.
    #[error("{0}")]
    Identity(#[from] IdentityError),
    /// The log cannot be read back; a node that runs keeps others out.
    #[error("{0}")]
    Log(#[from] OpenError),
    /// An entry has no meaning to this version.
    #[error("entry {index}: {why}")]
    Entry {
        /// Its index.
        index: u64,
        /// What is wrong with it.
        why: String,
    },
}

/// An entry of the log on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// Its index.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// What the state machine is given; `None` for a blank entry or a change of members.
    pub entry: Option<Entry>,
}

/// A log as it lies on disk, from the first entry that was not purged.
#[derive(Clone, Debug)]
pub struct StoredLog {
    /// The node's name.
    pub node: String,
    /// The greatest index that the node had written down as committed, if any. Entries behind it
    /// may be committed as well: the mark is written with the next entry.
    pub committed: Option<u64>,
    /// In the order of their indices.
    pub entries: Vec<StoredEntry>,
}

/// Reads the log of the node whose data directory this is, and changes nothing. It carries the
/// secrets of sessions.
///
/// # Errors
/// [`LogReadError`], among others if the node is running.
pub fn read_log(data_dir: &Path) -> Result<StoredLog, LogReadError> {
    let path = || data_dir.to_owned();
    let identity = Identity::load(&RealFs, data_dir)?;
    let identity = identity.ok_or_else(|| LogReadError::NoNode { path: path() })?;
    if identity.seat.is_none() {
        return Err(LogReadError::NoSeat { path: path() });
    }
    let recovered = read_back(&RealFs, &data_dir.join(WAL_DIR), &identity.file_header())?;
    let committed = recovered.committed.as_deref().map(pb::LogId::decode);
    let committed = committed.and_then(Result::ok).map(|mark| mark.index);
    let entries = recovered.entries.into_iter().map(stored);
    Ok(StoredLog {
        node: identity.name,
        committed,
        entries: entries.collect::<Result<_, _>>()?,
    })
}

fn stored(logged: LogEntry) -> Result<StoredEntry, LogReadError> {
    let (index, term) = (logged.id.index, logged.id.term);
    let wrong = |why: String| LogReadError::Entry { index, why };
    let payload =
        codec::payload_from_bytes(logged.payload).map_err(|why| wrong(why.to_string()))?;
    let entry = match payload {
        Payload::Blank | Payload::Membership(_) => None,
        Payload::Normal(proposal) => {
            let command = decode_command(&proposal.command());
            let command = command.map_err(|why: DecodeError| wrong(why.to_string()))?;
            Some(Entry {
                index,
                term,
                time: proposal.time(),
                wall: proposal.wall(),
                command,
            })
        }
    };
    Ok(StoredEntry { index, term, entry })
}
