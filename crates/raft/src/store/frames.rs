//! Frames: the form of every file that a node writes as a whole.
//!
//! ```text
//! magic · frame…        frame = kind, length, crc, bytes        records in a frame = length, bytes
//! ```

use std::io::{self, Read, Write};

use bytes::Bytes;

/// The bytes that a file begins with: what it is, and the version of its form.
pub(crate) type Magic = [u8; 8];

/// Kind, length and checksum.
pub(crate) const HEAD_BYTES: usize = 1 + 4 + 4;
/// A frame of records is closed when it is at least this long.
pub(crate) const FRAME_BYTES: usize = 1 << 20;

/// Writes one frame.
pub(crate) fn write_frame(out: &mut impl Write, kind: u8, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    out.write_all(&[kind])?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&checksum(kind, body).to_le_bytes())?;
    out.write_all(body)
}

/// Writes records in frames of a kind, and says how many. `encode` appends one to a buffer.
pub(crate) fn write_records<R>(
    out: &mut impl Write,
    kind: u8,
    records: impl Iterator<Item = R>,
    encode: impl Fn(&R, &mut Vec<u8>),
) -> io::Result<u64> {
    let mut count = 0;
    let mut frame = Vec::with_capacity(FRAME_BYTES);
    let mut one = Vec::new();
    for record in records {
        one.clear();
        encode(&record, &mut one);
        prost::encoding::encode_varint(one.len() as u64, &mut frame);
        frame.extend_from_slice(&one);
        count += 1;
        if frame.len() >= FRAME_BYTES {
            write_frame(out, kind, &frame)?;
            frame.clear();
        }
    }
    write_frame(out, kind, &frame)?;
    Ok(count)
}

/// Reads one frame; none is longer than `bytes_max`.
pub(crate) fn read_frame(input: &mut impl Read, bytes_max: usize) -> Result<(u8, Bytes), String> {
    let mut head = [0; HEAD_BYTES];
    input
        .read_exact(&mut head)
        .map_err(|error| error.to_string())?;
    let [kind, l0, l1, l2, l3, c0, c1, c2, c3] = head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if length > bytes_max {
        return Err(format!("a frame of {length} bytes"));
    }
    let mut body = Vec::with_capacity(length.min(2 * FRAME_BYTES));
    let read = input.take(length as u64).read_to_end(&mut body);
    if read.map_err(|error| error.to_string())? < length {
        return Err("the file is cut short".to_owned());
    }
    if checksum(kind, &body) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Err("a checksum is wrong".to_owned());
    }
    Ok((kind, body.into()))
}

/// Takes the bytes of the next record out of a frame.
pub(crate) fn next_record(frame: &mut Bytes) -> Result<Bytes, String> {
    let length = prost::encoding::decode_varint(frame).map_err(|error| error.to_string())?;
    let length = usize::try_from(length)
        .ok()
        .filter(|length| *length <= frame.len());
    Ok(frame.split_to(length.ok_or("a record is longer than its frame")?))
}

fn checksum(kind: u8, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[kind]);
    hasher.update(body);
    hasher.finalize()
}
