//! What a cluster is restored from.

use ringfence_core::snapshot::Seeding;
use ringfence_core::{BackupDigest, ClusterId, LINEAGE_MAX, Millis, Restored, Seed};

use super::id::id;
use super::pb;
use crate::DecodeError;

impl From<&Restored> for pb::Restored {
    fn from(restored: &Restored) -> Self {
        Self {
            lineage: restored.lineage.iter().map(Into::into).collect(),
            digest: restored.digest.as_bytes().to_vec().into(),
            parts: restored.parts,
            tokens: restored.tokens,
            token_floor: restored.token_floor,
            sessions: restored.sessions,
            versions: restored.versions,
            ttl_greatest: restored.ttl_greatest.0,
            drill: restored.drill,
        }
    }
}

impl TryFrom<pb::Restored> for Restored {
    type Error = DecodeError;

    fn try_from(restored: pb::Restored) -> Result<Self, DecodeError> {
        Ok(Self {
            lineage: lineage_of(restored.lineage, "restored.lineage")?,
            digest: digest_of(&restored.digest, "restored.digest")?,
            parts: restored.parts,
            tokens: restored.tokens,
            token_floor: restored.token_floor,
            sessions: restored.sessions,
            versions: restored.versions,
            ttl_greatest: Millis(restored.ttl_greatest),
            drill: restored.drill,
        })
    }
}

impl From<&Seed> for pb::Seed {
    fn from(seed: &Seed) -> Self {
        Self {
            digest: seed.digest.as_bytes().to_vec().into(),
            part: seed.part,
            access: seed.access.iter().map(Into::into).collect(),
            held: seed.held.iter().map(Into::into).collect(),
            secret: Some((&seed.secret).into()),
        }
    }
}

impl TryFrom<pb::Seed> for Seed {
    type Error = DecodeError;

    fn try_from(seed: pb::Seed) -> Result<Self, DecodeError> {
        let held = seed.held.into_iter().map(TryInto::try_into);
        let access = seed.access.into_iter().map(TryInto::try_into);
        Ok(Self {
            digest: digest_of(&seed.digest, "seed.digest")?,
            part: seed.part,
            access: access.collect::<Result<_, _>>()?,
            held: held.collect::<Result<_, _>>()?,
            secret: id(seed.secret, "seed.secret")?,
        })
    }
}

impl From<&Seeding> for pb::Seeding {
    fn from(seeding: &Seeding) -> Self {
        Self {
            digest: seeding.digest.as_bytes().to_vec().into(),
            parts: seeding.parts,
            done: seeding.done,
        }
    }
}

impl TryFrom<pb::Seeding> for Seeding {
    type Error = DecodeError;

    fn try_from(seeding: pb::Seeding) -> Result<Self, DecodeError> {
        Ok(Self {
            digest: digest_of(&seeding.digest, "seeding.digest")?,
            parts: seeding.parts,
            done: seeding.done,
        })
    }
}

/// Clusters, the newest last.
pub(super) fn lineage_of(
    lineage: Vec<pb::Id>,
    field: &'static str,
) -> Result<Vec<ClusterId>, DecodeError> {
    let count = lineage.len();
    if count > LINEAGE_MAX {
        let why = format!("{count} clusters; at most {LINEAGE_MAX} are kept");
        return Err(DecodeError::invalid(field, why));
    }
    Ok(lineage.into_iter().map(Into::into).collect())
}

/// The digest of a backup.
pub(super) fn digest_of(bytes: &[u8], field: &'static str) -> Result<BackupDigest, DecodeError> {
    let count = bytes.len();
    let bytes = bytes.try_into().map_err(|_| {
        let why = format!("{count} bytes; a SHA-256 digest has 32");
        DecodeError::invalid(field, why)
    })?;
    Ok(BackupDigest::new(bytes))
}
