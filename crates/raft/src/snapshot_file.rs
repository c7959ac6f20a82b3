//! Snapshots as files: written beside, verified, renamed, and only then is the previous one gone.
//!
//! ```text
//! magic · frame(header) · frame(records)… · frame(end)        frame = kind, length, crc, bytes
//! ```

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use prost::Message;
use ringfence_core::snapshot::Record;
use ringfence_core::{ClusterId, StateMachine};
use ringfence_proto::raft as pb;
use ringfence_proto::record::{decode_record, encode_record};

use crate::codec;
use crate::identity::sync_dir;
use crate::type_config::{LogId, SnapshotMeta, StoredMembership};

const MAGIC: &[u8; 8] = b"RFSNAP01";
const KIND_HEADER: u8 = 1;
const KIND_RECORDS: u8 = 2;
const KIND_END: u8 = 3;
/// A frame is closed when it is at least this long.
const FRAME_BYTES: usize = 1 << 20;
/// No frame is longer: a length above it is damage. One record may be as long as a session with
/// all its leases and answers.
const FRAME_BYTES_MAX: usize = 1 << 30;
const SUFFIX: &str = "snapshot";

/// A snapshot on disk, as openraft hands it about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotFile {
    pub(crate) path: PathBuf,
}

/// A snapshot that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The file cannot be read or written.
    #[error("snapshot {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// Its bytes are damaged.
    #[error(
        "snapshot {path} is damaged at byte {offset} ({why}); restore the file, or empty the whole \
         directory and let the node join anew"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damaged frame begins.
        offset: u64,
        /// What is wrong.
        why: String,
    },
    /// It belongs to another cluster.
    #[error("snapshot {path} belongs to cluster {found}, not to {expected}")]
    OtherCluster {
        /// The file.
        path: PathBuf,
        /// The cluster of this node.
        expected: ClusterId,
        /// The cluster in the file.
        found: String,
    },
}

/// The whole state as frames, encoded while the state is locked and written when it no longer is.
pub(crate) struct Encoded {
    frames: Vec<Vec<u8>>,
    records: u64,
}

impl Encoded {
    pub(crate) fn of(machine: &StateMachine) -> Self {
        let mut frames = Vec::new();
        let mut frame = Vec::with_capacity(FRAME_BYTES + 4096);
        let mut records = 0;
        let mut record_bytes = Vec::new();
        for record in machine.records() {
            record_bytes.clear();
            encode_record(&record, &mut record_bytes);
            prost::encoding::encode_varint(record_bytes.len() as u64, &mut frame);
            frame.extend_from_slice(&record_bytes);
            records += 1;
            if frame.len() >= FRAME_BYTES {
                let full = std::mem::replace(&mut frame, Vec::with_capacity(FRAME_BYTES + 4096));
                frames.push(full);
            }
        }
        frames.push(frame);
        Self { frames, records }
    }
}

/// The directory of a node's snapshots.
#[derive(Debug, Clone)]
pub(crate) struct SnapshotDir {
    path: PathBuf,
    cluster: ClusterId,
}

/// A snapshot read back.
pub(crate) struct Loaded {
    pub(crate) meta: SnapshotMeta,
    pub(crate) machine: StateMachine,
}

impl SnapshotDir {
    /// Opens the directory, makes it if needed, and clears away what a crash left half written.
    pub(crate) fn open(path: PathBuf, cluster: ClusterId) -> Result<Self, SnapshotError> {
        let dir = Self { path, cluster };
        let prepare = || -> io::Result<()> {
            fs::create_dir_all(&dir.path)?;
            for entry in fs::read_dir(&dir.path)? {
                let path = entry?.path();
                if path
                    .extension()
                    .is_some_and(|extension| extension == "partial")
                {
                    fs::remove_file(path)?;
                }
            }
            Ok(())
        };
        prepare().map_err(|source| io_error(&dir.path, source))?;
        Ok(dir)
    }

    /// The newest snapshot, read and verified; `None` if there is none.
    pub(crate) fn newest(&self) -> Result<Option<(PathBuf, Loaded)>, SnapshotError> {
        let mut names = self.finished()?;
        names.sort();
        let Some(newest) = names.pop() else {
            return Ok(None);
        };
        let loaded = self.load(&newest)?;
        Ok(Some((newest, loaded)))
    }

    /// A path for bytes that come from a peer.
    pub(crate) fn incoming(&self) -> PathBuf {
        let id: String = crate::identity::random_bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        self.path.join(format!("incoming-{id}.partial"))
    }

    /// Writes a snapshot, reads it back, and only then puts it in the place of older ones.
    pub(crate) fn write(
        &self,
        meta: &SnapshotMeta,
        encoded: &Encoded,
    ) -> Result<PathBuf, SnapshotError> {
        let partial = self.path.join("building.partial");
        let write = || -> io::Result<()> {
            let mut file = BufWriter::new(File::create(&partial)?);
            file.write_all(MAGIC)?;
            write_frame(&mut file, KIND_HEADER, &self.header(meta).encode_to_vec())?;
            for frame in &encoded.frames {
                write_frame(&mut file, KIND_RECORDS, frame)?;
            }
            let end = pb::SnapshotEnd {
                records: encoded.records,
            };
            write_frame(&mut file, KIND_END, &end.encode_to_vec())?;
            file.into_inner()
                .map_err(io::IntoInnerError::into_error)?
                .sync_all()
        };
        write().map_err(|source| io_error(&partial, source))?;
        drop(read_frames(&partial, |_| Ok(()))?);
        self.adopt(&partial, meta)
    }

    /// Makes a verified file the newest snapshot and removes the older ones. A file that already
    /// is the newest snapshot stays where it is.
    pub(crate) fn adopt(&self, from: &Path, meta: &SnapshotMeta) -> Result<PathBuf, SnapshotError> {
        let (term, index) = meta
            .last_log_id
            .map_or((0, 0), |id| (id.leader_id.term, id.index));
        let target = self.path.join(format!("{index:020}-{term:020}.{SUFFIX}"));
        let adopt = || -> io::Result<()> {
            if from != target {
                fs::rename(from, &target)?;
                sync_dir(&self.path)?;
            }
            Ok(())
        };
        adopt().map_err(|source| io_error(&target, source))?;
        for older in self.finished()? {
            if older < target {
                fs::remove_file(&older).map_err(|source| io_error(&older, source))?;
            }
        }
        Ok(target)
    }

    /// Checks a file that came from a peer: openraft takes a failed installation for a failure of
    /// this node's own disk.
    pub(crate) fn verify(&self, path: &Path, last: Option<LogId>) -> Result<(), SnapshotError> {
        let header = read_frames(path, |_| Ok(()))?;
        let meta = self.meta(path, header)?;
        if meta.last_log_id != last {
            let why = "it is another one than was offered";
            return Err(damaged(path, MAGIC.len() as u64, why));
        }
        Ok(())
    }

    /// Reads a snapshot and rebuilds its state.
    pub(crate) fn load(&self, path: &Path) -> Result<Loaded, SnapshotError> {
        let mut records: Vec<Record> = Vec::new();
        let header = read_frames(path, |mut frame| {
            while !frame.is_empty() {
                let length =
                    prost::encoding::decode_varint(&mut frame).map_err(|e| e.to_string())?;
                let length = usize::try_from(length)
                    .ok()
                    .filter(|length| *length <= frame.len());
                let length = length.ok_or("a record is longer than its frame")?;
                let record = frame.split_to(length);
                records.push(decode_record(&record).map_err(|error| error.to_string())?);
            }
            Ok(())
        })?;
        let meta = self.meta(path, header)?;
        let machine = StateMachine::restore(records).map_err(|error| damaged(path, 0, error))?;
        Ok(Loaded { meta, machine })
    }

    fn finished(&self) -> Result<Vec<PathBuf>, SnapshotError> {
        let list = || -> io::Result<Vec<PathBuf>> {
            let mut found = Vec::new();
            for entry in fs::read_dir(&self.path)? {
                let path = entry?.path();
                if path
                    .extension()
                    .is_some_and(|extension| extension == SUFFIX)
                {
                    found.push(path);
                }
            }
            Ok(found)
        };
        list().map_err(|source| io_error(&self.path, source))
    }

    fn header(&self, meta: &SnapshotMeta) -> pb::SnapshotHeader {
        pb::SnapshotHeader {
            cluster: Bytes::copy_from_slice(self.cluster.as_bytes()),
            last: meta.last_log_id.map(codec::log_id_to_pb),
            membership_at: meta.last_membership.log_id().map(codec::log_id_to_pb),
            membership: Some(codec::membership_to_pb(meta.last_membership.membership())),
        }
    }

    fn meta(&self, path: &Path, header: pb::SnapshotHeader) -> Result<SnapshotMeta, SnapshotError> {
        if header.cluster[..] != self.cluster.as_bytes()[..] {
            return Err(SnapshotError::OtherCluster {
                path: path.to_owned(),
                expected: self.cluster,
                found: ClusterId::from_slice(&header.cluster)
                    .map_or_else(|| "no cluster".to_owned(), |cluster| cluster.to_string()),
            });
        }
        let membership = codec::membership_from_pb(header.membership.unwrap_or_default())
            .map_err(|error| damaged(path, MAGIC.len() as u64, error))?;
        let at = header.membership_at.map(codec::log_id_from_pb);
        Ok(SnapshotMeta {
            last_log_id: header.last.map(codec::log_id_from_pb),
            last_membership: StoredMembership::new(at, membership),
        })
    }
}

fn write_frame(out: &mut impl Write, kind: u8, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    out.write_all(&[kind])?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&checksum(kind, body).to_le_bytes())?;
    out.write_all(body)
}

fn checksum(kind: u8, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[kind]);
    hasher.update(body);
    hasher.finalize()
}

/// Reads a file from its first frame to its last, checks every one, and hands out those with
/// records.
fn read_frames(
    path: &Path,
    mut records: impl FnMut(Bytes) -> Result<(), String>,
) -> Result<pb::SnapshotHeader, SnapshotError> {
    let file = File::open(path).map_err(|source| io_error(path, source))?;
    let mut input = BufReader::with_capacity(FRAME_BYTES, file);
    let mut magic = [0; MAGIC.len()];
    input
        .read_exact(&mut magic)
        .map_err(|error| damaged(path, 0, error))?;
    if &magic != MAGIC {
        return Err(damaged(path, 0, "it does not begin as a snapshot"));
    }
    let mut offset = MAGIC.len() as u64;
    let mut header = None;
    loop {
        let (kind, body) = read_frame(&mut input).map_err(|why| damaged(path, offset, why))?;
        let next = offset + 9 + body.len() as u64;
        match (kind, &header) {
            (KIND_HEADER, None) => {
                let message = pb::SnapshotHeader::decode(body);
                header = Some(message.map_err(|error| damaged(path, offset, error))?);
            }
            (KIND_RECORDS, Some(_)) => {
                records(body).map_err(|why| damaged(path, offset, why))?;
            }
            (KIND_END, Some(_)) => break,
            _ => {
                return Err(damaged(
                    path,
                    offset,
                    format!("a frame of kind {kind} here"),
                ));
            }
        }
        offset = next;
    }
    let mut rest = [0];
    match input.read(&mut rest) {
        Ok(0) => {}
        Ok(_) => return Err(damaged(path, offset, "bytes behind the end")),
        Err(source) => return Err(io_error(path, source)),
    }
    header.ok_or_else(|| damaged(path, 0, "it has no header"))
}

fn read_frame(input: &mut impl Read) -> Result<(u8, Bytes), String> {
    let mut head = [0; 9];
    input
        .read_exact(&mut head)
        .map_err(|error| error.to_string())?;
    let [kind, l0, l1, l2, l3, c0, c1, c2, c3] = head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(format!("a frame of {length} bytes"));
    }
    let mut body = Vec::new();
    let read = input.take(length as u64).read_to_end(&mut body);
    if read.map_err(|error| error.to_string())? < length {
        return Err("the file is cut short".to_owned());
    }
    if checksum(kind, &body) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Err("a checksum is wrong".to_owned());
    }
    Ok((kind, body.into()))
}

fn io_error(path: &Path, source: io::Error) -> SnapshotError {
    SnapshotError::Io {
        path: path.to_owned(),
        source,
    }
}

fn damaged(path: &Path, offset: u64, why: impl ToString) -> SnapshotError {
    SnapshotError::Damaged {
        path: path.to_owned(),
        offset,
        why: why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::type_config::log_id;

    fn dir() -> (tempfile::TempDir, SnapshotDir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = SnapshotDir::open(temp.path().join("s"), ClusterId::new([1; 16])).unwrap();
        (temp, dir)
    }

    fn meta(index: u64) -> SnapshotMeta {
        SnapshotMeta {
            last_log_id: Some(log_id(2, index)),
            ..SnapshotMeta::default()
        }
    }

    #[test]
    fn a_snapshot_is_read_as_it_was_written_and_replaces_the_older_one() {
        let (_temp, dir) = dir();
        let encoded = Encoded::of(&StateMachine::new());
        let older = dir.write(&meta(9), &encoded).unwrap();
        let newer = dir.write(&meta(10), &encoded).unwrap();
        assert!(!older.exists());
        let (path, loaded) = dir.newest().unwrap().unwrap();
        assert_eq!((path, loaded.meta), (newer, meta(10)));
    }

    #[test]
    fn a_flipped_or_missing_byte_anywhere_is_noticed() {
        let (_temp, dir) = dir();
        let path = dir
            .write(&meta(9), &Encoded::of(&StateMachine::new()))
            .unwrap();
        let bytes = fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            fs::write(&path, &damaged).unwrap();
            assert!(dir.load(&path).is_err(), "byte {at} flipped");
            fs::write(&path, &bytes[..at]).unwrap();
            assert!(dir.load(&path).is_err(), "cut at byte {at}");
        }
        fs::write(&path, &bytes).unwrap();
        assert!(dir.load(&path).is_ok());
    }

    #[test]
    fn what_a_peer_sent_is_checked_before_it_is_installed() {
        let (_temp, dir) = dir();
        let encoded = Encoded::of(&StateMachine::new());
        let path = dir.write(&meta(9), &encoded).unwrap();
        assert!(dir.verify(&path, meta(9).last_log_id).is_ok());
        assert!(dir.verify(&path, meta(10).last_log_id).is_err());
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(dir.verify(&path, meta(9).last_log_id).is_err());
    }

    #[test]
    fn a_snapshot_of_another_cluster_is_refused() {
        let (_temp, dir) = dir();
        let path = dir
            .write(&meta(9), &Encoded::of(&StateMachine::new()))
            .unwrap();
        let other = SnapshotDir {
            cluster: ClusterId::new([2; 16]),
            ..dir
        };
        assert!(matches!(
            other.load(&path),
            Err(SnapshotError::OtherCluster { .. })
        ));
    }

    #[test]
    fn taking_over_the_present_file_keeps_it() {
        let (_temp, dir) = dir();
        let path = dir
            .write(&meta(9), &Encoded::of(&StateMachine::new()))
            .unwrap();
        assert_eq!(dir.adopt(&path, &meta(9)).unwrap(), path);
        assert!(path.exists());
    }
}
