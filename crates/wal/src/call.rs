//! What is asked of the writer, by the holder of the log.

use std::sync::{Arc, Mutex};

use crate::{Done, EntryId, LogEntry, WalError};

/// A committed mark that waits for the next batch, with its index.
pub(crate) type CommittedSlot = Arc<Mutex<Option<(u64, Vec<u8>)>>>;

pub(crate) enum Call {
    Append(Vec<LogEntry>, Done),
    Vote(Vec<u8>, Done),
    Truncate(Option<EntryId>, Option<Done>),
    Purge(EntryId),
    Close,
}

impl Call {
    /// Answers a call that is not carried out.
    pub(crate) fn refuse(self, error: &WalError) {
        match self {
            Self::Append(_, done) | Self::Vote(_, done) | Self::Truncate(_, Some(done)) => {
                done(Err(error.clone()));
            }
            Self::Truncate(_, None) | Self::Purge(_) | Self::Close => {}
        }
    }
}
