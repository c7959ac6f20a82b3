//! Lease objects: their writes, and what is kept of them.

use ringfence_core::snapshot::{GoneRecord, ObjectRecord, OwingRecord};
use ringfence_core::{
    Candidate, ClusterTime, GoneObject, LeaseObject, Millis, ObjectMetadata, ObjectSpec,
    ObjectView, ObjectWrite, ObjectWritten, Owing, PodUid, Term, WallTime, WriteObject,
};

use super::access::{principal_or_none, text_of};
use super::id::id;
use super::pb;
use crate::{DecodeError, fields};

impl From<&WriteObject> for pb::WriteObject {
    fn from(write: &WriteObject) -> Self {
        use pb::write_object::Write;
        Self {
            name: write.name.as_str().into(),
            version: write.version,
            pod: uid_text(write.pod.as_ref()),
            watched: write.watched.as_ref().map(Into::into),
            write: Some(match &write.write {
                ObjectWrite::Put { metadata, spec } => Write::Put(pb::PutObject {
                    metadata: metadata.as_bytes().to_vec().into(),
                    spec: spec.as_ref().map(Into::into),
                }),
                ObjectWrite::Delete { revoke } => Write::Delete(pb::DeleteObject {
                    revoke: revoke.as_ref().map(Into::into),
                }),
            }),
        }
    }
}

impl TryFrom<pb::WriteObject> for WriteObject {
    type Error = DecodeError;

    fn try_from(write: pb::WriteObject) -> Result<Self, DecodeError> {
        use pb::write_object::Write;
        Ok(Self {
            name: fields::lease_name(&write.name, "write_object.name")?,
            version: write.version,
            pod: uid(&write.pod)?,
            watched: write.watched.map(TryInto::try_into).transpose()?,
            write: match fields::there(write.write, "write_object.write")? {
                Write::Put(put) => ObjectWrite::Put {
                    metadata: metadata(&put.metadata)?,
                    spec: put.spec.map(TryInto::try_into).transpose()?,
                },
                Write::Delete(delete) => ObjectWrite::Delete {
                    revoke: delete.revoke.map(TryInto::try_into).transpose()?,
                },
            },
        })
    }
}

impl From<&ObjectSpec> for pb::ObjectSpec {
    fn from(spec: &ObjectSpec) -> Self {
        Self {
            holder: spec.holder.as_str().into(),
            seconds: spec.seconds,
            new_term: spec.new_term,
            open: Some((&spec.open).into()),
            secret: Some((&spec.secret).into()),
        }
    }
}

impl TryFrom<pb::ObjectSpec> for ObjectSpec {
    type Error = DecodeError;

    fn try_from(spec: pb::ObjectSpec) -> Result<Self, DecodeError> {
        Ok(Self {
            holder: fields::identity(&spec.holder, "object.holder")?,
            seconds: spec.seconds,
            new_term: spec.new_term,
            open: id(spec.open, "object.open")?,
            secret: id(spec.secret, "object.secret")?,
        })
    }
}

impl From<&LeaseObject> for pb::LeaseObject {
    fn from(object: &LeaseObject) -> Self {
        Self {
            version: object.version,
            created: object.created,
            created_at: object.created_at.0,
            metadata: object.metadata.as_bytes().to_vec().into(),
            seconds: object.seconds,
            acquired: object.acquired.0,
            renewed: object.renewed.0,
            heard: object.heard.0,
            native: object.native,
            owner: text_of(object.owner.as_ref()),
            transitions: object.transitions,
            term: object.term.as_ref().map(|term| pb::Term {
                token: term.token.get(),
                session: term.session.get(),
                candidate: Some((&term.candidate).into()),
                pod: term.pod.as_ref().map(Into::into),
            }),
        }
    }
}

impl TryFrom<pb::LeaseObject> for LeaseObject {
    type Error = DecodeError;

    fn try_from(object: pb::LeaseObject) -> Result<Self, DecodeError> {
        Ok(Self {
            version: object.version,
            created: object.created,
            created_at: WallTime(object.created_at),
            metadata: metadata(&object.metadata)?,
            seconds: object.seconds,
            acquired: WallTime(object.acquired),
            renewed: WallTime(object.renewed),
            heard: ClusterTime(object.heard),
            transitions: object.transitions,
            term: object.term.map(TryInto::try_into).transpose()?,
            native: object.native,
            owner: principal_or_none(&object.owner, "object.owner")?,
        })
    }
}

impl TryFrom<pb::Term> for Term {
    type Error = DecodeError;

    fn try_from(term: pb::Term) -> Result<Self, DecodeError> {
        Ok(Self {
            token: fields::token(term.token, "term.token")?,
            session: fields::session(term.session, "term.session")?,
            candidate: fields::there(term.candidate, "term.candidate")?.try_into()?,
            pod: term.pod.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<&Candidate> for pb::Candidate {
    fn from(candidate: &Candidate) -> Self {
        Self {
            principal: text_of(candidate.principal.as_ref()),
            pod: uid_text(candidate.pod.as_ref()),
        }
    }
}

impl TryFrom<pb::Candidate> for Candidate {
    type Error = DecodeError;

    fn try_from(candidate: pb::Candidate) -> Result<Self, DecodeError> {
        Ok(Self {
            principal: principal_or_none(&candidate.principal, "candidate.principal")?,
            pod: uid(&candidate.pod)?,
        })
    }
}

impl From<&ObjectRecord> for pb::ObjectRecord {
    fn from(record: &ObjectRecord) -> Self {
        Self {
            name: record.name.as_str().into(),
            object: Some((&record.object).into()),
        }
    }
}

impl TryFrom<pb::ObjectRecord> for ObjectRecord {
    type Error = DecodeError;

    fn try_from(record: pb::ObjectRecord) -> Result<Self, DecodeError> {
        Ok(Self {
            name: fields::lease_name(&record.name, "object.name")?,
            object: fields::there(record.object, "object.object")?.try_into()?,
        })
    }
}

impl From<&GoneRecord> for pb::GoneObject {
    fn from(record: &GoneRecord) -> Self {
        Self {
            name: record.name.as_str().into(),
            version: record.version,
            created: record.gone.created,
            created_at: record.gone.created_at.0,
        }
    }
}

impl TryFrom<pb::GoneObject> for GoneRecord {
    type Error = DecodeError;

    fn try_from(gone: pb::GoneObject) -> Result<Self, DecodeError> {
        Ok(Self {
            name: fields::lease_name(&gone.name, "gone_object.name")?,
            version: gone.version,
            gone: GoneObject {
                created: gone.created,
                created_at: WallTime(gone.created_at),
            },
        })
    }
}

impl From<&OwingRecord> for pb::OwingOfLease {
    fn from(record: &OwingRecord) -> Self {
        let notes = record.notes.iter().map(|note| pb::Owing {
            identity: note.identity.as_str().into(),
            candidate: Some((&note.candidate).into()),
            until: note.until.map(|until| until.0),
            lost: note.lost,
        });
        Self {
            name: record.name.as_str().into(),
            notes: notes.collect(),
        }
    }
}

impl TryFrom<pb::OwingOfLease> for OwingRecord {
    type Error = DecodeError;

    fn try_from(record: pb::OwingOfLease) -> Result<Self, DecodeError> {
        let notes = record.notes.into_iter().map(TryInto::try_into);
        Ok(Self {
            name: fields::lease_name(&record.name, "owing.name")?,
            notes: notes.collect::<Result<_, _>>()?,
        })
    }
}

impl TryFrom<pb::Owing> for Owing {
    type Error = DecodeError;

    fn try_from(note: pb::Owing) -> Result<Self, DecodeError> {
        Ok(Self {
            identity: fields::identity(&note.identity, "owing.identity")?,
            candidate: fields::there(note.candidate, "owing.candidate")?.try_into()?,
            lost: note.lost,
            until: note.until.map(ClusterTime),
        })
    }
}

impl From<&ObjectWritten> for pb::ObjectWritten {
    fn from(written: &ObjectWritten) -> Self {
        let (token, ttl) = match written.held {
            Some((token, ttl)) => (token.get(), ttl.0),
            None => (0, 0),
        };
        Self {
            object: Some((&written.object).into()),
            token,
            ttl,
        }
    }
}

impl TryFrom<pb::ObjectWritten> for ObjectWritten {
    type Error = DecodeError;

    fn try_from(written: pb::ObjectWritten) -> Result<Self, DecodeError> {
        let token = fields::token_or_none(written.token, "written.token")?;
        Ok(Self {
            object: fields::there(written.object, "written.object")?.try_into()?,
            held: token.map(|token| (token, Millis(written.ttl))),
        })
    }
}

impl From<&ObjectView> for pb::ObjectView {
    fn from(view: &ObjectView) -> Self {
        let holder = view.holder.as_ref();
        Self {
            name: view.name.as_str().into(),
            object: Some(pb::LeaseObject {
                version: view.version,
                created: view.created,
                created_at: view.created_at.0,
                metadata: view.metadata.as_bytes().to_vec().into(),
                seconds: view.seconds,
                acquired: view.acquired.0,
                renewed: view.renewed.0,
                heard: 0,
                transitions: view.transitions,
                term: None,
                native: false,
                owner: String::new(),
            }),
            token: holder.map_or(0, |(_, token)| token.get()),
            identity: holder.map_or(String::new(), |(identity, _)| identity.as_str().into()),
        }
    }
}

impl TryFrom<pb::ObjectView> for ObjectView {
    type Error = DecodeError;

    fn try_from(view: pb::ObjectView) -> Result<Self, DecodeError> {
        let object: LeaseObject = fields::there(view.object, "view.object")?.try_into()?;
        let identity = fields::identity(&view.identity, "view.identity")?;
        let token = fields::token_or_none(view.token, "view.token")?;
        Ok(Self {
            name: fields::lease_name(&view.name, "view.name")?,
            version: object.version,
            created: object.created,
            created_at: object.created_at,
            metadata: object.metadata,
            holder: token.map(|token| (identity, token)),
            seconds: object.seconds,
            acquired: object.acquired,
            renewed: object.renewed,
            transitions: object.transitions,
        })
    }
}

fn metadata(bytes: &[u8]) -> Result<ObjectMetadata, DecodeError> {
    ObjectMetadata::new(bytes).map_err(|why| DecodeError::invalid("object.metadata", why))
}

fn uid(text: &str) -> Result<Option<PodUid>, DecodeError> {
    if text.is_empty() {
        return Ok(None);
    }
    let uid = PodUid::parse(text);
    uid.map(Some)
        .map_err(|why| DecodeError::invalid("object.pod", why))
}

fn uid_text(uid: Option<&PodUid>) -> String {
    uid.map_or(String::new(), |uid| uid.as_str().into())
}
