//! Any bytes into the log's readers: fuzz targets of `crates/fuzz`, and properties of the tests
//! below. Each panics where a reader breaks a promise. Not part of what is shipped.
//!
//! Checksums would keep random bytes from ever getting anywhere, so here they are made right.

use std::path::Path;
use std::sync::Arc;

use crate::format::{Batch, decode};
use crate::marks::Marks;
use crate::segment::{BLOCK, FileName, SegmentHeader};
use crate::sim::SimFs;
use crate::{Fs, MIN_SEGMENT_BYTES, OpenError, Options, Recovered, Writer};

const DIR: &str = "/log";
const IDENTITY: &[u8] = b"whose log";
const SALT: u64 = 7;

/// One record's bytes, a checkpoint's, a file's name: read or refused, and written as they were.
pub fn record(bytes: &[u8]) {
    if let Ok((_, length)) = decode(0, bytes) {
        assert!(length <= bytes.len());
    }
    if bytes.len() >= 8 {
        let mut valid = bytes.to_vec();
        let length = (bytes.len() - 8) as u32;
        valid[..4].copy_from_slice(&length.to_le_bytes());
        let crc = crate::bytes::crc(0, &valid[8..]);
        valid[4..8].copy_from_slice(&crc.to_le_bytes());
        if let Ok((record, length)) = decode(0, &valid) {
            let mut batch = Batch::default();
            let (start, written) = batch.push(0, record);
            assert_eq!(written, length);
            let again = batch.finish(0, 1, BLOCK)[start..start + written].to_vec();
            assert_eq!(again, valid[..length], "a record is written differently");
        }
    }
    if let Some(marks) = Marks::decode(bytes) {
        assert_eq!(Marks::decode(&marks.encode()), Some(marks));
    }
    if let Ok(name) = std::str::from_utf8(bytes)
        && let Some(parsed) = FileName::parse(name)
    {
        let path = parsed.in_dir(Path::new(DIR));
        let name = path.file_name().and_then(|name| name.to_str());
        assert_eq!(name.and_then(FileName::parse), Some(parsed));
    }
}

/// A directory whose only segment holds these bytes behind a valid header: it is refused, or
/// opened, and then it opens again with the same content.
pub fn segment(bytes: &[u8]) {
    open_twice(bytes);
}

/// A segment of batches whose checksums are all right: the first byte of a piece is a record's
/// kind, the next two its term and index, and the highest bit of the kind ends the batch before.
pub fn batches(bytes: &[u8]) {
    let header = header();
    let mut body = Vec::new();
    let mut batch = Batch::default();
    let mut number = 1;
    let mut finish = |batch: &mut Batch, body: &mut Vec<u8>| {
        if !batch.is_empty() {
            let offset = BLOCK + body.len() as u64;
            body.extend_from_slice(batch.finish(header.seed(), number, offset));
            batch.clear(0);
            number += 1;
        }
    };
    for piece in bytes.chunks(24) {
        let [kind, term, index, payload @ ..] = piece else {
            break;
        };
        if kind & 0x80 != 0 {
            finish(&mut batch, &mut body);
        }
        let mut raw = vec![0; 8];
        raw.push(kind & 0x7f);
        raw.extend(u64::from(*term).to_le_bytes());
        raw.extend(u64::from(*index).to_le_bytes());
        raw.extend(payload);
        let length = (raw.len() - 8) as u32;
        raw[..4].copy_from_slice(&length.to_le_bytes());
        let crc = crate::bytes::crc(header.seed(), &raw[8..]);
        raw[4..8].copy_from_slice(&crc.to_le_bytes());
        if let Ok((record, _)) = decode(header.seed(), &raw) {
            batch.push(header.seed(), record);
        }
    }
    finish(&mut batch, &mut body);
    open_twice(&body);
}

fn header() -> SegmentHeader {
    SegmentHeader {
        sequence: 1,
        salt: SALT,
        bytes: MIN_SEGMENT_BYTES,
        block: BLOCK,
        identity: IDENTITY.to_vec(),
    }
}

fn open_twice(body: &[u8]) {
    let mut content = header().encode();
    content.resize(BLOCK as usize, 0);
    content.extend_from_slice(&body[..body.len().min((MIN_SEGMENT_BYTES - BLOCK) as usize)]);
    content.resize(MIN_SEGMENT_BYTES as usize, 0);
    let fs = SimFs::with_dir(Path::new(DIR));
    let path = FileName::Segment(1).in_dir(Path::new(DIR));
    put(&fs, &path, &content);
    let Ok(first) = open(&fs) else {
        return;
    };
    // The opening covered what it found with a batch of its own, so nothing is torn any more.
    let second = open(&fs).expect("what was opened once can be opened again");
    let first = Recovered {
        truncated_tail_bytes: 0,
        // That batch takes room of its own.
        log_bytes: second.log_bytes,
        ..first
    };
    assert_eq!(first, second);
}

fn put(fs: &SimFs, path: &Path, content: &[u8]) {
    let file = fs.create(path).expect("there is room");
    let written = file.write_at(content, 0).and_then(|()| file.sync_data());
    written.expect("nothing is planted");
    fs.sync_dir(Path::new(DIR)).expect("nothing is planted");
}

fn open(fs: &SimFs) -> Result<Recovered, OpenError> {
    let options = Options {
        segment_bytes: MIN_SEGMENT_BYTES,
        spare_segments: 1,
        salt: SALT + 1,
        on_fatal: Box::new(|_| {}),
        ..Options::new(IDENTITY)
    };
    let fs: Arc<dyn Fs> = Arc::new(fs.clone());
    Writer::open(fs, Path::new(DIR), options).map(|(_, recovered)| recovered)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::collection::vec;
    use proptest::prelude::*;
    use ringfence_testkit::heap;

    use super::*;

    #[global_allocator]
    static HEAP: heap::Counting = heap::Counting;

    /// An opening holds a segment, what the medium and the cache hold of it, the entries read from
    /// it, and a further segment that it prepares.
    const OPENING_BYTES: usize = 32 * MIN_SEGMENT_BYTES as usize;

    /// The body of a segment as the log writes it.
    fn valid_body(payloads: &[Vec<u8>]) -> Vec<u8> {
        use crate::format::{Kind, Record};
        let header = header();
        let mut body = Vec::new();
        let mut push = |number: u64, kind, index, payload: &[u8]| {
            let id = crate::EntryId { term: 1, index };
            let mut batch = Batch::default();
            batch.push(header.seed(), Record { kind, id, payload });
            let offset = BLOCK + body.len() as u64;
            body.extend_from_slice(batch.finish(header.seed(), number, offset));
        };
        push(1, Kind::Checkpoint, 0, &Marks::default().encode());
        for (number, payload) in (2..).zip(payloads) {
            push(number, Kind::Entry, number - 1, payload);
        }
        body
    }

    fn feed(bytes: &[u8]) {
        heap::within(OPENING_BYTES + bytes.len(), || {
            record(bytes);
            segment(bytes);
            batches(bytes);
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..600)) {
            feed(&bytes);
        }

        #[test]
        fn records_in_any_order_are_read_or_refused(
            pieces in vec((0..9_u8, 0..4_u8, 0..12_u8, any::<bool>(), vec(0..4_u8, 21)), 0..30),
        ) {
            let mut bytes = vec![7, 0, 0];
            bytes.extend(&Marks::default().encode()[..]);
            bytes.resize(24, 0);
            for (kind, term, index, ends, payload) in pieces {
                bytes.extend([kind | u8::from(ends) << 7, term, index]);
                bytes.extend(payload);
            }
            feed(&bytes);
        }

        #[test]
        fn a_changed_segment_is_read_or_refused(
            payloads in vec(vec(any::<u8>(), 0..700), 0..6),
            changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut body = valid_body(&payloads);
            for (at, byte) in changes {
                let at = at.index(body.len());
                body[at] = byte;
            }
            body.truncate(cut.index(body.len()) + 1);
            feed(&body);
        }
    }

    #[test]
    fn a_segment_made_here_is_one_that_opens() {
        let fs = SimFs::with_dir(Path::new(DIR));
        let mut content = header().encode();
        content.resize(BLOCK as usize, 0);
        content.extend(valid_body(&[b"one".to_vec(), b"two".to_vec()]));
        content.resize(MIN_SEGMENT_BYTES as usize, 0);
        put(&fs, &FileName::Segment(1).in_dir(Path::new(DIR)), &content);

        let recovered = open(&fs).unwrap();

        let payloads = recovered.entries.iter().map(|entry| &entry.payload[..]);
        assert_eq!(payloads.collect::<Vec<_>>(), [b"one", b"two"]);
    }
}
