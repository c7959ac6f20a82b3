//! The records of a backup.

use ringfence_core::snapshot::TokenCounter;
use ringfence_core::{
    AccessRecord, BackupHeader, BackupRecord, ClusterTime, HeldByPod, Millis, WallTime,
};

use super::id::id;
use super::pb::backup_record::Kind;
use super::{known_level, pb};
use crate::{DecodeError, fields};

impl From<&BackupRecord> for pb::BackupRecord {
    fn from(record: &BackupRecord) -> Self {
        let kind = match record {
            BackupRecord::Header(header) => Kind::Header(header.into()),
            BackupRecord::Access(access) => Kind::Access(access.into()),
            BackupRecord::Floor { name, token } => Kind::Floor(pb::BackupFloor {
                name: name.as_str().into(),
                token: token.get(),
            }),
            BackupRecord::HeldByPod(held) => Kind::HeldByPod(held.into()),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<Kind> for BackupRecord {
    type Error = DecodeError;

    fn try_from(kind: Kind) -> Result<Self, DecodeError> {
        Ok(match kind {
            Kind::Header(header) => Self::Header(header.try_into()?),
            Kind::Access(access) => match access.try_into()? {
                AccessRecord::Token { .. } => {
                    let why = "a cluster token, which no backup holds";
                    return Err(DecodeError::invalid("backup_record.access", why));
                }
                access => Self::Access(access),
            },
            Kind::Floor(floor) => Self::Floor {
                name: fields::lease_name(&floor.name, "backup_floor.name")?,
                token: fields::token(floor.token, "backup_floor.token")?,
            },
            Kind::HeldByPod(held) => Self::HeldByPod(held.try_into()?),
        })
    }
}

impl From<&HeldByPod> for pb::HeldByPod {
    fn from(held: &HeldByPod) -> Self {
        Self {
            name: held.name.as_str().into(),
            token: held.token.get(),
            pod: Some((&held.pod).into()),
        }
    }
}

impl TryFrom<pb::HeldByPod> for HeldByPod {
    type Error = DecodeError;

    fn try_from(held: pb::HeldByPod) -> Result<Self, DecodeError> {
        Ok(Self {
            name: fields::lease_name(&held.name, "held_by_pod.name")?,
            token: fields::token(held.token, "held_by_pod.token")?,
            pod: fields::there(held.pod, "held_by_pod.pod")?.try_into()?,
        })
    }
}

impl From<&BackupHeader> for pb::BackupHeader {
    fn from(header: &BackupHeader) -> Self {
        Self {
            cluster: Some((&header.cluster).into()),
            lineage: header.lineage.iter().map(Into::into).collect(),
            index: header.index,
            term: header.term,
            time: header.time.0,
            wall: header.wall.0,
            level: header.level,
            settings: Some((&header.settings).into()),
            settings_set_at: header.settings_set_at,
            counter: header.tokens.reached(),
            last_token: header.tokens.granted(),
            token_floor: header.token_floor,
            forgotten: fields::token_or_zero(header.forgotten),
            ttl_greatest: header.ttl_greatest.0,
            next_session: header.next_session,
            versions: header.versions,
        }
    }
}

impl TryFrom<pb::BackupHeader> for BackupHeader {
    type Error = DecodeError;

    fn try_from(header: pb::BackupHeader) -> Result<Self, DecodeError> {
        Ok(Self {
            cluster: id(header.cluster, "backup_header.cluster")?,
            lineage: header.lineage.into_iter().map(Into::into).collect(),
            index: header.index,
            term: header.term,
            time: ClusterTime(header.time),
            wall: WallTime(header.wall),
            level: known_level(header.level)?,
            settings: fields::there(header.settings, "backup_header.settings")?.into(),
            settings_set_at: header.settings_set_at,
            tokens: TokenCounter::restored(header.counter, header.last_token),
            token_floor: header.token_floor,
            forgotten: fields::token_or_none(header.forgotten, "backup_header.forgotten")?,
            ttl_greatest: Millis(header.ttl_greatest),
            next_session: header.next_session,
            versions: header.versions,
        })
    }
}
