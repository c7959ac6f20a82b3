//! A proposal: the leader's readings of both clocks and an encoded command, in the very bytes that
//! the log on disk and the wire carry. It is encoded once, where the entry is proposed.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use ringfence_core::{ClusterTime, WallTime};

/// The first byte of every log payload.
pub(crate) const KIND_BLANK: u8 = 0;
pub(crate) const KIND_PROPOSAL: u8 = 1;
pub(crate) const KIND_MEMBERSHIP: u8 = 2;

/// Kind, cluster time, wall time.
const HEADER_BYTES: usize = 1 + 8 + 8;

/// An encoded command with the leader's readings of cluster time and wall time.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proposal {
    /// [`KIND_PROPOSAL`], both times in little endian, the command; never shorter than the header.
    encoded: Bytes,
}

impl Proposal {
    /// Stamps a command that is encoded already.
    pub(crate) fn new(time: ClusterTime, wall: WallTime, command: &[u8]) -> Self {
        let mut encoded = BytesMut::with_capacity(HEADER_BYTES + command.len());
        encoded.put_u8(KIND_PROPOSAL);
        encoded.put_u64_le(time.0);
        encoded.put_u64_le(wall.0);
        encoded.put_slice(command);
        Self {
            encoded: encoded.freeze(),
        }
    }

    /// The bytes of an entry that holds this encoded command.
    pub(crate) const fn encoded_len(command: &[u8]) -> usize {
        HEADER_BYTES + command.len()
    }

    /// The proposal in these bytes of the log, unless they are no proposal.
    pub(crate) fn from_encoded(encoded: Bytes) -> Option<Self> {
        let fits = encoded.len() >= HEADER_BYTES && encoded[0] == KIND_PROPOSAL;
        fits.then_some(Self { encoded })
    }

    /// The bytes that the log holds.
    pub(crate) fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    /// The leader's reading of cluster time.
    pub(crate) fn time(&self) -> ClusterTime {
        ClusterTime(self.number_at(1))
    }

    /// The leader's wall clock.
    pub(crate) fn wall(&self) -> WallTime {
        WallTime(self.number_at(9))
    }

    /// The command, encoded; a view into the proposal's bytes.
    pub(crate) fn command(&self) -> Bytes {
        self.encoded.slice(HEADER_BYTES..)
    }

    fn number_at(&self, at: usize) -> u64 {
        let bytes = self.encoded[at..at + 8].try_into();
        u64::from_le_bytes(bytes.expect("eight bytes, since both constructors see to the length"))
    }
}

/// Says how long it is and no more: commands hold secrets, and openraft prints what it proposes.
impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "command of {} bytes at {}",
            self.encoded.len() - HEADER_BYTES,
            self.time()
        )
    }
}

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_keeps_its_times_and_command() {
        let proposal = Proposal::new(ClusterTime(5), WallTime(u64::MAX), b"command");
        let again = Proposal::from_encoded(proposal.encoded().clone()).unwrap();
        assert_eq!(again.time(), ClusterTime(5));
        assert_eq!(again.wall(), WallTime(u64::MAX));
        assert_eq!(&again.command()[..], b"command");
    }

    #[test]
    fn bytes_that_are_no_proposal_are_refused() {
        assert_eq!(
            Proposal::from_encoded(Bytes::from_static(&[KIND_PROPOSAL; 16])),
            None
        );
        assert_eq!(
            Proposal::from_encoded(Bytes::from_static(&[KIND_BLANK; 17])),
            None
        );
    }

    #[test]
    fn printing_a_proposal_shows_none_of_its_bytes() {
        let proposal = Proposal::new(ClusterTime(7), WallTime(0), b"s3cret");
        assert_eq!(format!("{proposal:?}"), "command of 6 bytes at 7");
    }
}
