//! Session numbers as differences: a batch of keep-alives names thousands of them, and in rising
//! order most differences fit in a byte.

use bytes::{Bytes, BytesMut};
use prost::encoding::{decode_varint, encode_varint};
use ringfence_core::SessionId;

use crate::{DecodeError, fields};

/// Differences are taken modulo 2^64, so that numbers in any order come back as they were:
/// encoding cannot fail, and what it writes can always be read.
pub(super) fn pack(sessions: &[SessionId]) -> Bytes {
    let mut packed = BytesMut::with_capacity(sessions.len() + sessions.len() / 2 + 10);
    let mut before = 0u64;
    for session in sessions {
        encode_varint(session.get().wrapping_sub(before), &mut packed);
        before = session.get();
    }
    packed.freeze()
}

pub(super) fn unpack(
    mut packed: &[u8],
    field: &'static str,
) -> Result<Vec<SessionId>, DecodeError> {
    // A number takes at least a byte, so `packed` bounds what is reserved.
    let mut sessions = Vec::with_capacity(packed.len());
    let mut before = 0u64;
    while !packed.is_empty() {
        let difference =
            decode_varint(&mut packed).map_err(|why| DecodeError::invalid(field, why))?;
        before = before.wrapping_add(difference);
        sessions.push(fields::session(before, field)?);
    }
    Ok(sessions)
}
