//! Who a node is: the first thing that is written to its directory, and checked before all else.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use prost::Message;
use ringfence_core::{BackupDigest, ClusterId};
use ringfence_planted::{Bug, planted};
use ringfence_proto::raft as pb;
use ringfence_wal::Fs;

use crate::platform::files;
use crate::types::codec;
use crate::types::incarnation::Incarnation;
use crate::types::type_config::Peer;

/// The file in the data directory.
const FILE: &str = "identity";
const MAGIC: &[u8; 8] = b"RFIDENT1";

/// Membership of a cluster: from then on the node is this id and no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) cluster: ClusterId,
    pub(crate) node_id: u64,
}

/// What the identity file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) incarnation: Incarnation,
    pub(crate) name: String,
    /// `None` until the node belongs to a cluster.
    pub(crate) seat: Option<Seat>,
    /// The cluster that this node has drawn and offers to the other first members. It is kept, so
    /// that a founder that is started again offers the same one.
    pub(crate) forming: Option<ClusterId>,
    /// Set until this node, the founder, has begun the log of the cluster with these members.
    pub(crate) first_members: Vec<(u64, Peer)>,
    /// Term and index of an entry that this node has acknowledged and lost: it never starts again.
    pub(crate) forgot: Option<(u64, u64)>,
    /// What the seat's cluster begins with, if that is a backup or a quiet time: the digest that all
    /// first members compared.
    pub(crate) restores: Option<BackupDigest>,
    /// A new cluster goes on with what this node holds, so it never starts again.
    pub(crate) retired: bool,
}

/// An identity file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// It cannot be read or written.
    #[error("identity file {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// Its bytes are damaged.
    #[error(
        "identity file {path} is damaged ({why}); restore the file, or empty the whole directory \
         and let the node join again"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
}

impl Identity {
    /// A node that belongs to no cluster yet.
    pub(crate) fn unseated(name: &str) -> Self {
        Self {
            incarnation: Incarnation::draw(),
            name: name.to_owned(),
            seat: None,
            forming: None,
            first_members: Vec::new(),
            forgot: None,
            restores: None,
            retired: false,
        }
    }

    /// The identity in `data_dir`, or `None` if no node has lived there.
    pub(crate) fn load(files: &dyn Fs, data_dir: &Path) -> Result<Option<Self>, IdentityError> {
        let path = data_dir.join(FILE);
        match read(files, &path) {
            Ok(bytes) => match Self::decode(&bytes) {
                Ok(identity) => Ok(Some(identity)),
                Err(why) => Err(IdentityError::Damaged { path, why }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(IdentityError::Io { path, source }),
        }
    }

    /// Writes the identity so that a crash leaves either the old one or the new one.
    pub(crate) fn save(&self, files: &dyn Fs, data_dir: &Path) -> Result<(), IdentityError> {
        let path = data_dir.join(FILE);
        let partial = data_dir.join("identity.tmp");
        let write = || -> io::Result<()> {
            let file = files::create_anew(files, &partial)?;
            file.write_at(&self.encode(), 0)?;
            if !planted(Bug::IdentityNotSynced) {
                file.sync_data()?;
            }
            files.rename(&partial, &path)?;
            files.sync_dir(data_dir)
        };
        write().map_err(|source| IdentityError::Io {
            path: path.clone(),
            source,
        })
    }

    /// What every file of this node begins with, so that none is taken for another node's.
    pub(crate) fn file_header(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(40);
        if let Some(seat) = &self.seat {
            bytes.extend_from_slice(seat.cluster.as_bytes());
            bytes.extend_from_slice(&seat.node_id.to_le_bytes());
        }
        bytes.extend_from_slice(self.incarnation.as_bytes());
        bytes
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let id = |id: &ClusterId| Bytes::copy_from_slice(id.as_bytes());
        let message = pb::Identity {
            incarnation: Bytes::copy_from_slice(self.incarnation.as_bytes()),
            name: self.name.clone(),
            cluster: self
                .seat
                .as_ref()
                .map(|seat| id(&seat.cluster))
                .unwrap_or_default(),
            node_id: self.seat.as_ref().map_or(0, |seat| seat.node_id),
            forming: self.forming.as_ref().map(id).unwrap_or_default(),
            first_members: self
                .first_members
                .iter()
                .map(|(id, peer)| codec::peer_to_pb(*id, peer))
                .collect(),
            forgot: self.forgot.map(|(term, index)| pb::LogId { term, index }),
            restores: digest_to_pb(self.restores.as_ref()),
            retired: self.retired,
        };
        Self::framed(&message.encode_to_vec())
    }

    /// The file with this body.
    pub(crate) fn framed(body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MAGIC.len() + 4 + body.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&crc32fast::hash(body).to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let rest = bytes
            .strip_prefix(MAGIC)
            .ok_or("it does not begin as one")?;
        let (crc, body) = rest.split_first_chunk().ok_or("it is cut short")?;
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return Err("its checksum is wrong");
        }
        let message = pb::Identity::decode(body).map_err(|_| "it cannot be decoded")?;
        let incarnation = Incarnation::from_slice(&message.incarnation);
        let cluster = optional_cluster(&message.cluster)?;
        let first_members = message.first_members.into_iter().map(codec::peer_from_pb);
        Ok(Self {
            incarnation: incarnation.ok_or("its incarnation is not 16 bytes")?,
            name: message.name,
            seat: cluster.map(|cluster| Seat {
                cluster,
                node_id: message.node_id,
            }),
            forming: optional_cluster(&message.forming)?,
            first_members: first_members
                .collect::<Result<_, _>>()
                .map_err(|_| "a first member cannot be decoded")?,
            forgot: message.forgot.map(|entry| (entry.term, entry.index)),
            restores: digest_from_pb(&message.restores)?,
            retired: message.retired,
        })
    }
}

/// The digest as a message carries it: empty if there is none.
pub(crate) fn digest_to_pb(digest: Option<&BackupDigest>) -> Bytes {
    digest.map_or_else(Bytes::new, |digest| {
        Bytes::copy_from_slice(digest.as_bytes())
    })
}

/// The cluster that the node of this directory belongs to; `None` if it belongs to none yet.
///
/// # Errors
/// [`IdentityError`] if the directory cannot be read.
pub fn belongs_to(data_dir: &Path) -> Result<Option<ClusterId>, IdentityError> {
    let identity = Identity::load(&ringfence_wal::RealFs, data_dir)?;
    Ok(identity.and_then(|identity| Some(identity.seat?.cluster)))
}

/// The digest in such bytes.
pub(crate) fn digest_from_pb(bytes: &[u8]) -> Result<Option<BackupDigest>, &'static str> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| "a digest is not 32 bytes")?;
    Ok(Some(BackupDigest::new(bytes)))
}

fn optional_cluster(bytes: &[u8]) -> Result<Option<ClusterId>, &'static str> {
    if bytes.is_empty() {
        return Ok(None);
    }
    ClusterId::from_slice(bytes)
        .map(Some)
        .ok_or("a cluster id is not 16 bytes")
}

fn read(files: &dyn Fs, path: &Path) -> io::Result<Vec<u8>> {
    let file = files.open(path)?;
    let length = usize::try_from(file.len()?).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use ringfence_wal::RealFs;

    use super::*;

    fn seated() -> Identity {
        Identity {
            seat: Some(Seat {
                cluster: ClusterId::new([7; 16]),
                node_id: 3,
            }),
            forming: Some(ClusterId::new([8; 16])),
            first_members: vec![(
                1,
                Peer {
                    name: "a".into(),
                    ..Peer::default()
                },
            )],
            forgot: Some((4, 17)),
            restores: Some(BackupDigest::new([9; 32])),
            retired: true,
            ..Identity::unseated("n3")
        }
    }

    #[test]
    fn an_identity_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Identity::load(&RealFs, dir.path()).unwrap(), None);
        for identity in [Identity::unseated("n3"), seated()] {
            identity.save(&RealFs, dir.path()).unwrap();
            let read = Identity::load(&RealFs, dir.path()).unwrap();
            assert_eq!(read, Some(identity));
        }
    }

    #[test]
    fn a_flipped_byte_anywhere_in_an_identity_is_noticed() {
        let bytes = seated().encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Identity::decode(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn two_directories_get_two_incarnations() {
        assert_ne!(
            Identity::unseated("a").incarnation,
            Identity::unseated("a").incarnation
        );
    }
}
