//! The records of a snapshot.

mod lease;
mod session;

use ringfence_core::snapshot::{ClosingRelease, EndedRecord, Header, Record, TokenCounter};
use ringfence_core::{ClusterTime, LEVEL_FIRST, WallTime};

use super::access::{principal_or_none, text_of};
use super::id::id;
use super::pb::record::Kind;
use super::restored::lineage_of;
use super::{known_level, pb};
use crate::{DecodeError, fields};

impl From<&Record> for pb::Record {
    fn from(record: &Record) -> Self {
        let kind = match record {
            Record::Header(header) => Kind::Header(header.into()),
            Record::Session(session) => Kind::Session(session.into()),
            Record::Lease(lease) => Kind::Lease(lease.into()),
            Record::Ended(ended) => Kind::Ended(ended.into()),
            Record::Access(access) => Kind::Access(access.into()),
            Record::Audit(act) => Kind::Audit(act.into()),
            Record::Object(object) => Kind::Object(object.into()),
            Record::GoneObject(gone) => Kind::GoneObject(gone.into()),
            Record::Owing(owing) => Kind::Owing(owing.into()),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<Kind> for Record {
    type Error = DecodeError;

    fn try_from(kind: Kind) -> Result<Self, DecodeError> {
        Ok(match kind {
            Kind::Header(header) => Self::Header(header.try_into()?),
            Kind::Session(session) => Self::Session(session.try_into()?),
            Kind::Lease(lease) => Self::Lease(lease.try_into()?),
            Kind::Ended(ended) => Self::Ended(ended.try_into()?),
            Kind::Access(access) => Self::Access(access.try_into()?),
            Kind::Audit(act) => Self::Audit(act.try_into()?),
            Kind::Object(object) => Self::Object(object.try_into()?),
            Kind::GoneObject(gone) => Self::GoneObject(gone.try_into()?),
            Kind::Owing(owing) => Self::Owing(owing.try_into()?),
        })
    }
}

impl From<&Header> for pb::Header {
    fn from(header: &Header) -> Self {
        Self {
            cluster: header.cluster.as_ref().map(Into::into),
            // A state that was never raised is written as releases before the level wrote it.
            level: match header.level {
                LEVEL_FIRST => 0,
                raised => raised,
            },
            token_floor: header.token_floor,
            settings: Some((&header.settings).into()),
            settings_set_at: header.settings_set_at,
            index: header.index,
            term: header.term,
            term_start: header.term_start.0,
            time: header.time.0,
            wall: header.wall.0,
            counter: header.tokens.reached(),
            last_token: header.tokens.granted(),
            next_session: header.next_session,
            next_place: header.next_place,
            forgotten: fields::token_or_zero(header.forgotten),
            quiet_until: header.quiet_until.0,
            unserved: header
                .unserved
                .iter()
                .map(|name| name.as_str().into())
                .collect(),
            versions: header.versions,
            versions_forgotten: header.versions_forgotten,
            lineage: header.lineage.iter().map(Into::into).collect(),
            seeding: header.seeding.as_ref().map(Into::into),
            audit_dropped: header.audit_dropped,
        }
    }
}

impl TryFrom<pb::Header> for Header {
    type Error = DecodeError;

    fn try_from(header: pb::Header) -> Result<Self, DecodeError> {
        let unserved = header.unserved.iter();
        Ok(Self {
            cluster: header.cluster.map(Into::into),
            level: known_level(header.level)?.max(LEVEL_FIRST),
            token_floor: header.token_floor,
            settings: fields::there(header.settings, "header.settings")?.into(),
            settings_set_at: header.settings_set_at,
            index: header.index,
            term: header.term,
            term_start: ClusterTime(header.term_start),
            time: ClusterTime(header.time),
            wall: WallTime(header.wall),
            tokens: TokenCounter::restored(header.counter, header.last_token),
            next_session: header.next_session,
            next_place: header.next_place,
            forgotten: fields::token_or_none(header.forgotten, "header.forgotten")?,
            quiet_until: ClusterTime(header.quiet_until),
            unserved: unserved
                .map(|name| fields::lease_name(name, "header.unserved"))
                .collect::<Result<_, _>>()?,
            versions: header.versions,
            versions_forgotten: header.versions_forgotten,
            lineage: lineage_of(header.lineage, "header.lineage")?,
            seeding: header.seeding.map(TryInto::try_into).transpose()?,
            audit_dropped: header.audit_dropped,
        })
    }
}

impl From<&EndedRecord> for pb::Ended {
    fn from(ended: &EndedRecord) -> Self {
        Self {
            session: ended.session.get(),
            open: Some((&ended.open).into()),
            secret: Some((&ended.secret).into()),
            cause: Some((&ended.cause).into()),
            at: ended.at.0,
            owner: text_of(ended.owner.as_ref()),
            release: ended.release.map(|release| pb::ClosingRelease {
                number: release.number.get(),
                fingerprint: release.fingerprint,
                token: release.token.get(),
            }),
        }
    }
}

impl TryFrom<pb::Ended> for EndedRecord {
    type Error = DecodeError;

    fn try_from(ended: pb::Ended) -> Result<Self, DecodeError> {
        Ok(Self {
            session: fields::session(ended.session, "ended.session")?,
            open: id(ended.open, "ended.open")?,
            secret: id(ended.secret, "ended.secret")?,
            cause: fields::there(ended.cause, "ended.cause")?.try_into()?,
            at: ClusterTime(ended.at),
            owner: principal_or_none(&ended.owner, "ended.owner")?,
            release: ended.release.map(TryInto::try_into).transpose()?,
        })
    }
}

impl TryFrom<pb::ClosingRelease> for ClosingRelease {
    type Error = DecodeError;

    fn try_from(release: pb::ClosingRelease) -> Result<Self, DecodeError> {
        Ok(Self {
            number: fields::number(release.number, "release.number")?,
            fingerprint: release.fingerprint,
            token: fields::token(release.token, "release.token")?,
        })
    }
}
